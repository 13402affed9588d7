"""Pytest plugin: the cluster of a test session, and a namespace of its own for a test."""

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minicluster.cluster import Cluster
from minicluster.images import product_images, prometheus_image
from minicluster.programs import PROMETHEUS, build_programs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that puts any other cluster in place of the rig."""
    parser.addoption("--kubeconfig", type=Path, default=None, help="run cluster tests on the cluster of this kubeconfig instead of the rig")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of the session: the rig, or the one of ``--kubeconfig``."""
    kubeconfig: Path | None = request.config.getoption("--kubeconfig")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # building the programs takes a while: show the progress
        if kubeconfig:
            running = Cluster.attach(kubeconfig)
        else:
            images = product_images(request.config.rootpath, Path(sys.prefix))
            images |= prometheus_image(build_programs([PROMETHEUS])["prometheus"])
            running = Cluster.start(f"pytest-{os.getpid()}", images=images, audit=True)
    with running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace, removed after the test."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
