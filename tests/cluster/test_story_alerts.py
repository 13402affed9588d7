"""A real Prometheus watches the story: it finds operator and pool as the PodMonitors say, and the rejection-rate alert fires."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.stage import CHANNEL, NAMESPACE, Stage
from demo.story import Outcome
from support.prometheus import NAME, PORT, Prometheus

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.timeout(1800)]

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks.md"
PATIENCE_SECONDS = 60
LATELY = "[3h]"


@pytest.fixture
def watching(stage: Stage, prometheus: None) -> Iterator[Prometheus]:
    """The API of the Prometheus in the cluster."""
    with stage.cluster.port_forward(NAMESPACE, f"pod/{NAME}", PORT) as port:
        yield Prometheus(f"http://127.0.0.1:{port}")


def test_the_rejection_rate_alert_fires_after_the_poisoned_candidate(outcome: Outcome, stage: Stage, watching: Prometheus):
    assert outcome.poisoned_rejected == 1
    query = f'max_over_time(ALERTS{{alertname="GatevalveRejectionRateHigh", alertstate="firing"}}{LATELY})'
    (alert,) = stage.wait_for("the alert", PATIENCE_SECONDS, lambda: watching.query(query))
    assert alert["metric"].items() >= {"namespace": NAMESPACE, "channel": CHANNEL, "severity": "warning"}.items()


def test_nothing_says_that_the_operator_is_silent_or_that_too_much_is_accepted(outcome: Outcome, watching: Prometheus):
    query = f'max_over_time(ALERTS{{alertname=~"Gatevalve(OperatorSilent|RejectionRateLow)", alertstate="firing"}}{LATELY})'
    assert watching.query(query) == []


def test_operator_and_pool_are_scraped_as_the_pod_monitors_say(outcome: Outcome, watching: Prometheus):
    scraped = {sample["metric"]["job"]: sample["metric"]["pod"] for sample in watching.query(f"max_over_time(up{LATELY}) == 1")}
    operator, pool = (scraped[f"podMonitor/{NAMESPACE}/{monitor}/0"] for monitor in ("gatevalve-operator", "gatevalve-pools"))
    assert operator.startswith("gatevalve-operator-")
    assert pool.startswith("gatevalve-pool-support-")


def test_the_pools_own_count_of_requests_arrives(outcome: Outcome, watching: Prometheus):
    query = f'sum by (channel) (max_over_time(gatevalve_serving_requests_total{{outcome="ok"}}{LATELY}))'
    (sample,) = watching.query(query)
    assert sample["metric"] == {"channel": CHANNEL}
    assert float(sample["value"][1]) > 1000


def commands_of_the_runbooks() -> list[str]:
    """Every line shown as bash, once."""
    blocks = re.findall(r"^```bash\n(.*?)^```", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL)
    return sorted({line for block in blocks for line in block.splitlines()})


@pytest.mark.parametrize("command", commands_of_the_runbooks())
def test_what_the_runbooks_look_at_can_be_looked_at(outcome: Outcome, stage: Stage, command: str):
    path = os.pathsep.join([str(stage.cluster.kubectl_bin.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, shell=True, env=stage.cluster.env | {"PATH": path}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
