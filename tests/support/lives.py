"""Fixtures: a channel's whole life, lived once, and a copy of it for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.audited import Life, lived


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A life that no test changes."""
    return lived(tmp_path_factory.mktemp("life"))


@pytest.fixture
def life(once: Life, tmp_path: Path) -> Life:
    """A life of the test's own."""
    return once.copied_to(tmp_path / "life")
