"""A sentinel's items: its own, apart from every round, and neither can stand in the place of the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.kinds import SentinelRef
from gatevalve.contracts.names import round_dir, sentinel_dir
from gatevalve_trainer.evaluate.rounds import Areas, Keys
from gatevalve_trainer.evaluate.suites import load_suites
from support.evaluation import SEAL, SPLIT, job, policy, write_suites

FUTILITY = {"items": 30, "alphaBasisPoints": 5000}


def items(task: EvaluateInput) -> dict[str, tuple[Item, ...]]:
    return {loaded.suite.name: loaded.items for loaded in load_suites(task, Areas.of(task), Keys(SEAL, SPLIT))}


def sentinel(root: Path, number: int = 3) -> EvaluateInput:
    """A sentinel whose number is that of a round."""
    return job(root, policy=policy(futility=FUTILITY), round=number, test=1, sentinel=SentinelRef(kind="Same", number=number))


def candidate(root: Path) -> EvaluateInput:
    return job(root, policy=policy(futility=FUTILITY))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_suites(tmp_path)
    return tmp_path


def test_a_sentinel_shares_generated_items_with_no_round_and_fixed_files_with_all(root: Path) -> None:
    its, theirs = items(sentinel(root)), items(candidate(root))
    for suite in ("target", "screen"):
        assert not {item.id for item in its[suite]} & {item.id for item in theirs[suite]}
    assert (its["regression"], its["manners"]) == (theirs["regression"], theirs["manners"])


def test_a_sentinel_draws_no_round(root: Path) -> None:
    items(sentinel(root))
    assert (root / "sealed" / sentinel_dir("channel-uid", 3)).is_dir()
    assert not (root / "sealed" / round_dir("channel-uid", 3)).parent.exists()


def test_each_sentinel_has_other_items_and_a_second_attempt_the_same(root: Path) -> None:
    first = items(sentinel(root))
    assert items(sentinel(root)) == first
    assert {item.id for item in items(sentinel(root, 4))["target"]} != {item.id for item in first["target"]}


@pytest.mark.parametrize("backwards", [False, True], ids=["as a round's", "of a round"])
def test_items_of_the_one_are_refused_in_the_place_of_the_other(root: Path, backwards: bool) -> None:
    drawn, asked = (candidate(root), sentinel(root)) if backwards else (sentinel(root), candidate(root))
    places = [root / "sealed" / path("channel-uid", 3) for path in (round_dir, sentinel_dir)]
    items(drawn)
    source, place = places if backwards else places[::-1]
    shutil.copytree(source, place)
    with pytest.raises(ContractError, match="was not written by an evaluation"):
        items(asked)
