"""Training rows: which snapshot rows enter the loss, with what advantage, in what order and in what batches."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SnapshotRow
from gatevalve.contracts.recipes import Recipe
from gatevalve_trainer.errors import NoSignal

MIN_ROWS = 16
"""Fewest rows that are trained on."""

REWARDED_ABOVE = 0.5
"""SFT learns from replies scored above this."""

TRUNCATED = "length"
"""Finish reason of a reply cut at its token limit: its score is about the limit as much as about the reply."""


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One reply in its context. The four lists run over the same tokens; loss_mask is true on the reply's."""

    token_ids: Sequence[int]
    loss_mask: Sequence[bool]
    behavior_logprobs: Sequence[float]
    advantage: float
    weight: float = 1.0

    @property
    def loss_tokens(self) -> int:
        """Number of tokens in the loss."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The rows of a run and how many others were left out, by reason."""

    rows: tuple[TrainRow, ...]
    dropped: dict[str, int]
    mean_score: float

    def mean_reply_tokens(self) -> float:
        """Loss tokens per row."""
        return sum(row.loss_tokens for row in self.rows) / len(self.rows)


def training_set(recipe: Recipe, snapshot: Sequence[SnapshotRow]) -> TrainingSet:
    """The rows that a recipe learns from.

    SFT: replies scored above REWARDED_ABOVE, advantage 1. LoggedRL: scored replies with advantage = score - mean (no division by the
    spread: Liu et al. 2025, Dr. GRPO, section 3), those with advantage 0 left out. Truncated and unscored replies never enter the loss.
    Raises NoSignal when fewer than MIN_ROWS remain, ContractError when a row's lists do not fit together.
    """
    dropped: Counter[str] = Counter()
    scored: list[tuple[SnapshotRow, float]] = []
    for row in snapshot:
        if row.score is None:
            dropped["unscored"] += 1
        elif row.finish_reason == TRUNCATED:
            dropped["truncated"] += 1
        else:
            scored.append((row, row.score))
    mean = sum(score for _, score in scored) / max(1, len(scored))
    kept = _rewarded(scored, dropped) if recipe == "SFT" else _centred(scored, mean, dropped)
    _refuse_no_signal(recipe, kept, scored, dropped, mean)
    return TrainingSet(tuple(_train_row(row, advantage) for row, advantage in kept), dict(dropped), mean)


def check_vocabulary(rows: Sequence[TrainRow], vocabulary: int) -> None:
    """Raises ContractError when a token id is beyond the base's vocabulary."""
    largest = max(max(row.token_ids) for row in rows)
    if largest >= vocabulary or min(min(row.token_ids) for row in rows) < 0:
        raise ContractError("rows.tokenIds", f"hold {largest}, the base has {vocabulary} tokens", "cut a snapshot of traffic on this base")


def schedule(rows: int, minibatch: int, epochs: int, key: str) -> list[list[int]]:
    """Row numbers of every optimiser step: each epoch in its own order, drawn from the key, in minibatches of even size."""
    steps: list[list[int]] = []
    for epoch in range(epochs):
        order = list(range(rows))
        random.Random(hashlib.sha256(f"{key}/{epoch}".encode()).digest()).shuffle(order)
        count = ceil(rows / minibatch)
        steps += [order[index * rows // count : (index + 1) * rows // count] for index in range(count)]
    return steps


def micro_batches(rows: Sequence[TrainRow], token_budget: int) -> list[list[TrainRow]]:
    """Rows grouped by length so that no group has more padded tokens than the budget, but for a single longer row."""
    groups: list[list[TrainRow]] = []
    for row in sorted(rows, key=lambda row: len(row.token_ids)):
        if groups and len(row.token_ids) * (len(groups[-1]) + 1) <= token_budget:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _rewarded(scored: Sequence[tuple[SnapshotRow, float]], dropped: Counter[str]) -> list[tuple[SnapshotRow, float]]:
    kept = [(row, 1.0) for row, score in scored if score > REWARDED_ABOVE]
    dropped["notRewarded"] = len(scored) - len(kept)
    return kept


def _centred(scored: Sequence[tuple[SnapshotRow, float]], mean: float, dropped: Counter[str]) -> list[tuple[SnapshotRow, float]]:
    if len({score for _, score in scored}) <= 1:  # rounding of the mean must not make a signal out of equal scores
        dropped["noAdvantage"] = len(scored)
        return []
    kept = [(row, score - mean) for row, score in scored if score != mean]
    dropped["noAdvantage"] = len(scored) - len(kept)
    return kept


def _refuse_no_signal(recipe: Recipe, kept: Sequence[object], scored: Sequence[object], dropped: Counter[str], mean: float) -> None:
    if len(kept) >= MIN_ROWS:
        return
    why = "replies scored above 0.5" if recipe == "SFT" else "replies whose score differs from the mean"
    left_out = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()) if count)
    raise NoSignal(f"{len(kept)} {why} of {len(scored)} scored (mean {mean:.3f}), {MIN_ROWS} are needed ({left_out}); take a longer window")


def _train_row(row: SnapshotRow, advantage: float) -> TrainRow:
    if not row.prompt_token_ids or not row.response_token_ids or len(row.response_token_ids) != len(row.response_logprobs):
        raise ContractError(f"rows.{row.row_id}", "token ids and log-probabilities do not fit together", "cut the snapshot anew")
    prompt = len(row.prompt_token_ids)
    return TrainRow(
        token_ids=[*row.prompt_token_ids, *row.response_token_ids],
        loss_mask=[False] * prompt + [True] * len(row.response_token_ids),
        behavior_logprobs=[0.0] * prompt + row.response_logprobs,
        advantage=advantage,
    )
