"""Options and fixtures that every test may use, and which tests go to one worker."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ["minicluster.fixtures", "support.lives"]


class ClusterApart(LoadScopeScheduling):  # type: ignore[misc]  # xdist publishes no types
    """Cluster tests share one rig, one after the other; the files of all other tests run beside them."""

    def _split_scope(self, nodeid: str) -> str:
        return "cluster" if nodeid.startswith("tests/cluster/") else nodeid.split("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Where there are several workers, ClusterApart decides who runs what."""
    return ClusterApart(config, log)
