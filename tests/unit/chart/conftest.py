"""Helm, built from its Go module once and kept in the rig's cache."""

import pytest

from minicluster.programs import HELM, build_programs
from support.chart import Helm, Rendering


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The helm program."""
    return Helm(build_programs([HELM])["helm"], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def plain(helm: Helm) -> Rendering:
    """The chart with its own values."""
    return helm.render()


@pytest.fixture(scope="session")
def pooled(helm: Helm) -> Rendering:
    """The chart with a pool and models on the node."""
    return helm.render(values={"pool": {"enabled": True}, "models": {"hostPath": "/srv/models"}})
