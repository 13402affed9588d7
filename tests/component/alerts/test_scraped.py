"""From the operator's counters to a firing alert: a real Prometheus scrapes the operator's registry and evaluates the chart's rules."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus, DecisionStatus, KnownTampering, Tampering
from gatevalve.contracts.reasons import CandidateState, ConditionReason, EntryReason, Verdict
from gatevalve.decide.plan import CandidateStatusUpdate, ChannelStatusUpdate, Plan
from gatevalve.decide.view import ChannelView, LogView, ObjectMeta, PoolView, View
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.metrics import Metrics
from gatevalve.io.ports import ADAPTER_CANDIDATES
from minicluster.programs import HELM, PROMETHEUS, build_programs
from support import world
from support.chart import NAMESPACE, Helm
from support.engine_world import START, settings
from support.prometheus import Prometheus, running

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds helm and prometheus

PATIENCE_SECONDS = 60
SOON = {"for": "1s", "window": "10m"}
VALUES = {
    "prometheusRule": {"enabled": True},
    "alerts": {"rejectionRateHigh": SOON | {"above": 0.5, "minimum": 2}, "tampering": SOON},
}


class Operator:
    """What an operator counts of channel support, served as it serves it."""

    def __init__(self) -> None:
        self.registry, self.cache = CollectorRegistry(), ObjectCache()
        self.metrics = Metrics(self.registry, self.cache)
        channel = ChannelView(ObjectMeta("support", "uid-1"), world.channel_spec(), AdapterChannelStatus())
        self.view = View(START, settings("sha256:" + "0" * 64), "support", channel, None, LogView(), pool=PoolView())
        self.metrics.observed(self.view, Plan())

    def refuses(self, name: str) -> None:
        found = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {"channel": "support"}}
        self.cache.put(ADAPTER_CANDIDATES, found)
        decision = DecisionStatus(verdict=Verdict.REJECTED, reason=EntryReason.PRIMARY_NOT_PASSED)
        ended = AdapterCandidateStatus(state=CandidateState.REJECTED, decision=decision)
        self.metrics.written(CandidateStatusUpdate(name, name, ended), AdapterCandidateStatus())

    def sees_a_forged_document(self) -> None:
        known = KnownTampering(reason=ConditionReason.DOCUMENT_FORGED, subject="a", at="2026-01-02T03:04:05Z")
        seen = Tampering(reason=known.reason, at=known.at, known=(known,))
        self.metrics.written(ChannelStatusUpdate("support", "uid-1", AdapterChannelStatus(tampering=seen)), AdapterChannelStatus())


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def watching(operator: Operator, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the operator every second."""
    programs = build_programs([HELM, PROMETHEUS])
    rule = Helm(programs["helm"], tmp_path / "helm").render(values={"monitoring": VALUES}).get("PrometheusRule", "gatevalve")
    (tmp_path / "rules.json").write_text(json.dumps(rule["spec"]))
    server, thread = start_http_server(0, addr="127.0.0.1", registry=operator.registry)
    target = {"targets": [f"127.0.0.1:{server.server_port}"], "labels": {"namespace": NAMESPACE}}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "operator", "static_configs": [target]}],
        "rule_files": [str(tmp_path / "rules.json")],
    }
    try:
        with running(programs["prometheus"], tmp_path / "prometheus", config) as prometheus:
            yield prometheus
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def eventually(prometheus: Prometheus, query: str) -> list[dict[str, Any]]:
    """What a query answers as soon as it answers anything."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := prometheus.query(query)):
        assert time.monotonic() < deadline, f"never: {query}"
        time.sleep(0.3)
    return found


def test_the_first_refused_candidates_and_the_first_tampering_of_an_operator_fire(operator: Operator, watching: Prometheus) -> None:
    eventually(watching, "gatevalve_log_valid")
    assert watching.query('ALERTS{alertname=~"Gatevalve(RejectionRateHigh|Tampering)"}') == []
    operator.refuses("a")
    operator.refuses("b")
    operator.sees_a_forged_document()
    for alert, severity in (("RejectionRateHigh", "warning"), ("Tampering", "critical")):
        (firing,) = eventually(watching, f'ALERTS{{alertname="Gatevalve{alert}", alertstate="firing"}}')
        labels = firing["metric"]
        assert (labels["namespace"], labels["channel"], labels["severity"]) == (NAMESPACE, "support", severity)
