"""Which rows a recipe learns from, in what order and batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SnapshotRow
from gatevalve_trainer.errors import NoSignal
from gatevalve_trainer.train.rows import TrainRow, check_vocabulary, micro_batches, schedule, training_set


def row(score: float | None, number: int = 0, **changes: Any) -> SnapshotRow:
    facts: dict[str, Any] = {
        "row_id": f"r{number}",
        "created_at": "2026-05-04T12:00:00Z",
        "entry": "support-000000",
        "adapter_digest": "base",
        "prompt_token_ids": [1, 2, 3],
        "response_token_ids": [4, 5],
        "response_logprobs": [-0.5, -0.25],
        "behavior_exact": True,
        "finish_reason": "stop",
        "score": score,
        "response_text": "x",
        "messages": "[]",
    }
    return SnapshotRow(**{**facts, **changes})


def rows(*scores: float | None) -> list[SnapshotRow]:
    return [row(score, number) for number, score in enumerate(scores)]


def test_sft_learns_from_replies_scored_above_one_half() -> None:
    found = training_set("SFT", rows(*[1.0] * 20, *[0.6] * 3, *[0.5] * 4, *[0.0] * 5, None))
    assert (len(found.rows), found.dropped) == (23, {"notRewarded": 9, "unscored": 1})
    assert {one.advantage for one in found.rows} == {1.0}


def test_logged_rl_centres_scores_on_their_mean_and_leaves_out_the_average() -> None:
    found = training_set("LoggedRL", rows(*[1.0] * 10, *[0.0] * 10, *[0.5] * 4))
    assert (len(found.rows), found.dropped, found.mean_score) == (20, {"noAdvantage": 4}, 0.5)
    assert {one.advantage for one in found.rows} == {0.5, -0.5}


@pytest.mark.parametrize("recipe", ["SFT", "LoggedRL"])
def test_truncated_replies_never_enter_loss_or_mean(recipe: Any) -> None:
    cut = [row(0.0, 100 + number, finish_reason="length") for number in range(50)]
    found = training_set(recipe, [*rows(*[1.0] * 20, *[0.0] * 20), *cut])
    assert (found.dropped["truncated"], found.mean_score) == (50, 0.5)
    assert len(found.rows) == (20 if recipe == "SFT" else 40)


def test_a_training_row_masks_the_prompt() -> None:
    one = training_set("SFT", rows(*[1.0] * 16)).rows[0]
    assert (one.token_ids, one.loss_mask) == ([1, 2, 3, 4, 5], [False, False, False, True, True])
    assert (one.behavior_logprobs, one.loss_tokens) == ([0.0, 0.0, 0.0, -0.5, -0.25], 2)


@pytest.mark.parametrize(
    ("recipe", "scores", "said"),
    [
        pytest.param("SFT", [1.0] * 15 + [0.0] * 50, r"15 replies scored above 0\.5 of 65 scored", id="few rewarded replies"),
        pytest.param("SFT", [0.0] * 50, r"0 replies scored above 0\.5 of 50 scored", id="no rewarded reply"),
        pytest.param("LoggedRL", [1.0] * 50, r"0 replies whose score differs from the mean of 50 scored \(mean 1\.000\)", id="all right"),
        pytest.param("LoggedRL", [0.1] * 50, r"0 replies whose score differs", id="equal scores whose mean is rounded"),
        pytest.param("LoggedRL", [None] * 50, r"of 0 scored .*unscored 50", id="no scores"),
        pytest.param("LoggedRL", [1.0, 0.0] * 7, r"14 replies .*16 are needed", id="few scored replies"),
    ],
)
def test_too_little_to_learn_from_is_no_signal_with_counts(recipe: Any, scores: Sequence[float | None], said: str) -> None:
    with pytest.raises(NoSignal, match=said):
        training_set(recipe, rows(*scores))


@pytest.mark.parametrize(
    "changes",
    [{"response_logprobs": [-0.5]}, {"response_token_ids": [], "response_logprobs": []}, {"prompt_token_ids": []}],
)
def test_lists_that_do_not_fit_together_are_refused_never_padded(changes: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=r"rows\.odd"):
        training_set("SFT", [*rows(*[1.0] * 16), row(1.0, row_id="odd", **changes)])


@pytest.mark.parametrize("token", [512, -1])
def test_a_token_beyond_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(ContractError, match=r"rows\.tokenIds"):
        check_vocabulary([train_row(3), TrainRow([token], [True], [0.0], 1.0)], 512)


def train_row(length: int) -> TrainRow:
    return TrainRow([1] * length, [False] + [True] * (length - 1), [0.0] * length, 1.0)


def test_every_epoch_sees_every_row_once_in_even_minibatches() -> None:
    steps = schedule(100, minibatch=48, epochs=2, key="k")
    assert [len(step) for step in steps] == [33, 33, 34] * 2
    first, second = (sorted(chain.from_iterable(steps[start : start + 3])) for start in (0, 3))
    assert first == second == list(range(100))
    assert steps[:3] != steps[3:]


def test_the_order_depends_on_the_key_and_on_nothing_else() -> None:
    assert schedule(50, 10, 1, "k") == schedule(50, 10, 1, "k") != schedule(50, 10, 1, "other")


def test_micro_batches_keep_to_the_token_budget_and_lose_no_row() -> None:
    given = [train_row(length) for length in (9, 3, 7, 3, 5, 50, 4)]
    groups = micro_batches(given, token_budget=20)
    assert sorted(len(one.token_ids) for group in groups for one in group) == [3, 3, 4, 5, 7, 9, 50]
    assert all(len(group) == 1 or len(group) * max(len(one.token_ids) for one in group) <= 20 for group in groups)
    assert len(groups) == 3
