"""What the chart renders for Prometheus, and Prometheus' own programs to judge it."""

from __future__ import annotations

from typing import Any

import pytest

from minicluster.programs import HELM, PROMTOOL, build_programs
from support.chart import Helm, Rendering
from support.prometheus import Promtool

API = ("--api-versions", "monitoring.coreos.com/v1")


@pytest.fixture(scope="session")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Rendering:
    """The chart on a cluster that has the Prometheus operator's kinds."""
    return Helm(build_programs([HELM])["helm"], tmp_path_factory.mktemp("helm")).render(*API)


@pytest.fixture(scope="session")
def groups(monitored: Rendering) -> list[dict[str, Any]]:
    """The rendered rules."""
    found: list[dict[str, Any]] = monitored.get("PrometheusRule", "gatevalve")["spec"]["groups"]
    return found


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Promtool:
    """The promtool program."""
    return Promtool(build_programs([PROMTOOL])["promtool"], tmp_path_factory.mktemp("promtool"))
