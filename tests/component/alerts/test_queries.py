"""Alerts and dashboard ask only for what exists: Prometheus parses every query, the contracts know each metric, label and value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gatevalve.contracts.metrics import FIRST_ENDS, METRICS, SERVING_METRICS, TAMPERING_REASONS, Metric
from gatevalve.contracts.reasons import Action
from minicluster.programs import PROMETHEUS, build_programs
from support.chart import Rendering
from support.prometheus import Prometheus, running

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds prometheus

TARGET_LABELS = {"namespace", "pod", "container", "job", "instance", "endpoint"}
"""What a PodMonitor adds to every series."""
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
VALUES = {
    "verdict": {str(verdict) for verdict, _ in FIRST_ENDS},
    "reason": {str(reason) for _, reason in FIRST_ENDS} | {str(reason) for reason in TAMPERING_REASONS},
    "action": {str(action) for action in Action},
}


def labels_of(metric: Metric, suffix: str) -> set[str]:
    return {*metric.labels, *TARGET_LABELS, *({"le"} if suffix == "_bucket" else ())}


SERIES = {
    metric.full_name + suffix: labels_of(metric, suffix) for metric in (*METRICS, *SERVING_METRICS) for suffix in SUFFIXES[metric.kind]
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(build_programs([PROMETHEUS])["prometheus"], tmp_path_factory.mktemp("prometheus"), {}) as server:
        yield server


@pytest.fixture(scope="module")
def dashboard(monitored: Rendering) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(monitored.get("ConfigMap", "gatevalve-dashboard")["data"]["gatevalve.json"])
    return found


def targets(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [target for panel in dashboard["panels"] for target in panel.get("targets", ())]


def variable_queries(dashboard: dict[str, Any]) -> list[str]:
    """The selectors and labels of label_values(selector, label), as a query."""
    texts = [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    found = [re.fullmatch(r"label_values\((.+), (\w+)\)", text) for text in texts]
    return [f"group by ({match[2]}) ({match[1]})" for match in found if match]


def with_variables(query: str) -> str:
    """A query as Grafana sends it."""
    return re.sub(r"\$__\w+", "5m", query).replace("$namespace", "team").replace("$channel", "support")


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every node of a syntax tree."""
    if isinstance(tree, dict):
        yield tree
        for child in tree.values():
            yield from nodes(child)
    if isinstance(tree, list):
        for child in tree:
            yield from nodes(child)


def unknown(tree: dict[str, Any]) -> set[str]:
    """What a query names that does not exist."""
    found: set[str] = set()
    asked = [node for node in nodes(tree) if node.get("type") in ("vectorSelector", "matrixSelector")]
    for selector in asked:
        matchers = {matcher["name"]: matcher["value"] for matcher in selector["matchers"] if matcher["name"] != "__name__"}
        known = SERIES.get(selector["name"])
        found |= {selector["name"]} if known is None else set(matchers) - known
        found |= {value for name in VALUES.keys() & matchers for value in matchers[name].split("|") if value not in VALUES[name]}
    labels = set().union(*(SERIES.get(selector["name"], set()) for selector in asked))
    for node in nodes(tree):
        found |= set(node.get("grouping") or ()) - labels
        found |= set((node.get("matching") or {}).get("labels") or ()) - labels
    return found


def test_every_alert_asks_only_for_what_exists(prometheus: Prometheus, groups: list[dict[str, Any]]) -> None:
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["alert"]: found for rule in rules if (found := unknown(prometheus.parsed(rule["expr"])))} == {}


def test_every_panel_and_variable_asks_only_for_what_exists(prometheus: Prometheus, dashboard: dict[str, Any]) -> None:
    queries = [with_variables(query) for query in (*(target["expr"] for target in targets(dashboard)), *variable_queries(dashboard))]
    assert {query: found for query in queries if (found := unknown(prometheus.parsed(query)))} == {}


def test_every_legend_names_a_label_that_its_query_keeps(prometheus: Prometheus, dashboard: dict[str, Any]) -> None:
    for target in targets(dashboard):
        tree = prometheus.parsed(with_variables(target["expr"]))
        kept = {label for node in nodes(tree) for label in node.get("grouping") or ()}
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, target["expr"]


def test_the_dashboard_shows_every_metric_of_the_operator_and_the_pods(prometheus: Prometheus, dashboard: dict[str, Any]) -> None:
    trees = [prometheus.parsed(with_variables(target["expr"])) for target in targets(dashboard)]
    asked = {node["name"] for tree in trees for node in nodes(tree) if node.get("type") in ("vectorSelector", "matrixSelector")}
    assert {metric.full_name for metric in (*METRICS, *SERVING_METRICS)} == {name.removesuffix("_bucket") for name in asked}


INVENTED = {
    "a metric": ("gatevalve_candidates", {"gatevalve_candidates"}),
    "a label that is matched": ('gatevalve_log_valid{entry="x"}', {"entry"}),
    "a label to group by": ("sum by (verdict) (gatevalve_log_valid)", {"verdict"}),
    "a label to join on": ("gatevalve_log_valid and on (entry) gatevalve_log_head_sequence", {"entry"}),
    "a verdict": ('increase(gatevalve_candidates_total{verdict=~"Accepted|Refused"}[5m])', {"Refused"}),
}


@pytest.mark.parametrize("sentence", INVENTED)
def test_what_does_not_exist_is_found(prometheus: Prometheus, sentence: str) -> None:
    query, expected = INVENTED[sentence]
    assert unknown(prometheus.parsed(query)) == expected


def test_panels_lie_side_by_side_and_have_ids_of_their_own(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
