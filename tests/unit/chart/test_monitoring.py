"""What the chart renders for Prometheus and Grafana: when, for which Pods, and with links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.chart import NAMESPACE, Helm, Rendering

pytestmark = pytest.mark.timeout(1200)  # the first run on a machine builds helm

REPO = Path(__file__).parents[3]
API = ("--api-versions", "monitoring.coreos.com/v1")
PARTS = {
    "podMonitor": {("PodMonitor", "gatevalve-operator"), ("PodMonitor", "gatevalve-pools")},
    "prometheusRule": {("PrometheusRule", "gatevalve")},
    "dashboard": {("ConfigMap", "gatevalve-dashboard")},
}
ALL = set().union(*PARTS.values())


@pytest.fixture(scope="module")
def monitored(helm: Helm) -> Rendering:
    """The chart with a pool, on a cluster that has the Prometheus operator's kinds."""
    return helm.render(*API, values={"pool": {"enabled": True}})


def rules(rendering: Rendering) -> dict[str, dict[str, Any]]:
    found = rendering.get("PrometheusRule", "gatevalve")["spec"]["groups"]
    return {rule["alert"]: rule for group in found for rule in group["rules"]}


# ---- when


def test_nothing_is_rendered_where_the_cluster_lacks_the_kinds(plain: Rendering) -> None:
    assert plain.kinds() & ALL == set()


def test_everything_is_rendered_where_the_cluster_has_the_kinds(monitored: Rendering) -> None:
    assert monitored.kinds() & ALL == ALL


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_left_out(helm: Helm, part: str) -> None:
    assert helm.render(*API, values={"monitoring": {part: {"enabled": False}}}).kinds() & ALL == ALL - PARTS[part]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_asked_for_where_helm_cannot_see_the_cluster(helm: Helm, part: str) -> None:
    assert helm.render(values={"monitoring": {part: {"enabled": True}}}).kinds() & ALL == PARTS[part]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_carries_the_labels_that_it_is_selected_by(helm: Helm, part: str) -> None:
    rendering = helm.render(*API, values={"monitoring": {part: {"labels": {"release": "prometheus", "app.kubernetes.io/part-of": "mine"}}}})
    for kind, name in PARTS[part]:
        labels = rendering.get(kind, name)["metadata"]["labels"]
        assert (labels["release"], labels["app.kubernetes.io/part-of"], labels["app.kubernetes.io/name"]) == (
            "prometheus",
            "mine",
            "gatevalve",
        )


def test_grafanas_sidecar_finds_the_dashboard_by_its_usual_label(monitored: Rendering) -> None:
    assert monitored.get("ConfigMap", "gatevalve-dashboard")["metadata"]["labels"]["grafana_dashboard"] == "1"


# ---- which Pods


def test_the_monitors_select_operator_and_pool_and_name_ports_that_they_have(monitored: Rendering) -> None:
    for monitor, deployment in (("gatevalve-operator", "gatevalve-operator"), ("gatevalve-pools", "gatevalve-pool-support")):
        spec = monitored.get("PodMonitor", monitor)["spec"]
        template = monitored.get("Deployment", deployment)["spec"]["template"]
        ports = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        assert selected(spec["selector"], template["metadata"]["labels"])
        assert {(endpoint["port"], endpoint["path"]) for endpoint in spec["podMetricsEndpoints"]} == {(*ports, "/metrics")}


def test_no_monitor_selects_the_other_ones_pods(monitored: Rendering) -> None:
    for monitor, deployment in (("gatevalve-pools", "gatevalve-operator"), ("gatevalve-operator", "gatevalve-pool-support")):
        labels = monitored.get("Deployment", deployment)["spec"]["template"]["metadata"]["labels"]
        assert not selected(monitored.get("PodMonitor", monitor)["spec"]["selector"], labels)


def selected(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    exist = [expression["key"] for expression in selector.get("matchExpressions", ()) if expression["operator"] == "Exists"]
    return selector.get("matchLabels", {}).items() <= labels.items() and set(exist) <= set(labels)


# ---- alerts


def test_every_alert_has_a_duration_a_severity_and_sentences(monitored: Rendering) -> None:
    for rule in rules(monitored).values():
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert all(rule["annotations"][name].endswith(".") for name in ("summary", "description"))


def test_no_setting_is_left_open(monitored: Rendering) -> None:
    assert "${" not in str(monitored.get("PrometheusRule", "gatevalve"))


def test_every_query_looks_only_at_the_series_of_its_release(monitored: Rendering) -> None:
    for rule in rules(monitored).values():
        assert len(re.findall(r"gatevalve_\w+", rule["expr"])) == rule["expr"].count(f'namespace="{NAMESPACE}"')


def test_every_alert_leads_to_a_section_of_the_runbooks_and_every_section_is_an_alerts(monitored: Rendering) -> None:
    page = REPO / "docs" / "runbooks.md"
    anchors = {title.lower() for title in re.findall(r"^## (Gatevalve\w+)$", page.read_text(), re.MULTILINE)}
    urls = {rule["annotations"]["runbook_url"] for rule in rules(monitored).values()}
    assert urls == {f"{page.relative_to(REPO)}#{anchor}" for anchor in anchors}


def test_the_runbooks_can_lie_elsewhere(helm: Helm) -> None:
    moved = rules(helm.render(*API, values={"monitoring": {"runbookBase": "https://wiki.example/gatevalve"}}))
    assert moved["GatevalveLogInvalid"]["annotations"]["runbook_url"] == "https://wiki.example/gatevalve#gatevalveloginvalid"


def test_settings_of_an_alert_reach_its_rule(helm: Helm) -> None:
    settings = {"severity": "critical", "for": "5m", "window": "2h", "above": 0.25, "minimum": 2}
    values = {"monitoring": {"selector": 'job="mine"', "alerts": {"rejectionRateHigh": settings, "noAccept": {"enabled": False}}}}
    found = rules(helm.render(*API, values=values))
    rule = found["GatevalveRejectionRateHigh"]
    assert (rule["for"], rule["labels"]["severity"]) == ("5m", "critical")
    assert all(text in rule["expr"] for text in ('job="mine"', "[2h]", "> 0.25", ">= 2"))
    assert "GatevalveNoAccept" not in found


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an alert that does not exist": ({"alerts": {"logInvalids": {}}}, "additional properties 'logInvalids' not allowed"),
    "a setting that the alert has not": ({"alerts": {"logInvalid": {"window": "1h"}}}, "additional properties 'window' not allowed"),
    "a share in percent": ({"alerts": {"rejectionRateHigh": {"above": 90}}}, "maximum"),
    "a duration without a unit": ({"alerts": {"noAccept": {"window": "7"}}}, "does not match pattern"),
    "a part that is perhaps rendered": ({"podMonitor": {"enabled": "maybe"}}, "must be one of"),
    "a link with a section of its own": ({"runbookBase": "https://wiki.example/page#here"}, "does not match pattern"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_with_a_readable_message(helm: Helm, sentence: str) -> None:
    values, message = REFUSED[sentence]
    assert message in helm.refusal({"monitoring": values})
