"""One base, one lot of scored traffic and one trained adapter for all tests of the trainer."""

from __future__ import annotations

import pytest

from support.training import Record
from support.words import TrainedOnce, Words


@pytest.fixture(scope="session")
def words() -> Words:
    return Words.load()


@pytest.fixture(scope="session")
def traffic(words: Words) -> list[Record]:
    return words.traffic(480)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, traffic: list[Record]) -> TrainedOnce:
    return TrainedOnce.make(tmp_path_factory.mktemp("trained"), traffic)
