"""Options and fixtures that every test may use, and which tests share a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["minicluster.fixtures"]

CLUSTER = Path(__file__).parent / "cluster"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cluster tests share one rig, one after the other; where there are several workers, all others run beside them."""
    for item in items:
        if item.path.is_relative_to(CLUSTER):
            item.add_marker(pytest.mark.xdist_group("cluster"))
