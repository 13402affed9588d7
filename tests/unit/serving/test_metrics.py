"""The middleware's metrics are exactly those of the contracts."""

from __future__ import annotations

from prometheus_client import REGISTRY, generate_latest

from gatevalve.contracts.metrics import SERVING_METRICS
from gatevalve_serving.metrics import start_at_zero


def test_every_metric_of_the_contract_is_shown_from_the_start_and_no_other() -> None:
    start_at_zero("some-channel")
    shown = {line.split("{")[0] for line in generate_latest(REGISTRY).decode().splitlines() if line.startswith("gatevalve_serving_")}
    assert {name for name in shown if not name.endswith("_created")} == {metric.full_name for metric in SERVING_METRICS}
