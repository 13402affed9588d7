"""Evidence drawn near every threshold of one policy, so that Accepted and Rejected are both common and each check has its say."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import ARMS, SCORE_ONE, Arm, PairRow
from gatevalve.contracts.policy import SCREEN, GatePolicySpec
from support.gate_cases import NEAR, PLAIN, Scores, must_pass_policy, row_of, without_answer
from support.thresholds import THRESHOLDS

DIALOGUE = {
    "name": "dialogue",
    "role": "Guard",
    "items": {"traffic": {"min": 60}},
    "verifier": "exact-match",
    "sampling": {"temperature": "1.0", "maxTokens": 48},
    "decodes": 2,
    "marginBasisPoints": 3500,
    "floorBasisPoints": 5000,
}
"""A guard on captured conversations, whose losses are means."""


def drawn_policy(screen: int = 20) -> GatePolicySpec:
    """Suites of every role and kind of items, with room to tighten every threshold."""
    behaviour = {**THRESHOLDS["behaviour"], "maxGainByLengthPercent": 60, "maxExcessNegativeFlipBasisPoints": 1500}
    wire = must_pass_policy(
        items=60,
        behaviour={**behaviour, "maxJudgeTextBasisPoints": 500, "maxAvoidanceBasisPoints": 500},
        futility={"items": screen, "alphaBasisPoints": 5000},
        evidence={"maxMissingBasisPoints": 500, "minClusters": 30},
    ).wire()
    return GatePolicySpec.parse({**wire, "suites": [*wire["suites"], DIALOGUE]})


@cache
def drawn_case(seed: int) -> tuple[PairRow, ...]:
    """Rows of one candidate, the screen's among them. Clusters differ in size, scores may be partial, a few answers may be missing."""
    rng = random.Random(seed)
    gain, loss = rng.choice([0.15, 0.35, 0.5, 0.8]), rng.choice([0.0, 0.0, 0.0, 0.01])
    rows = [
        *_scored(rng, "target", 60, 2, 0.05 + gain, 0.05, longer=rng.random() < 0.2),
        *_scored(rng, SCREEN, 20, 2, 0.05 + gain, 0.05),
        *_scored(rng, "dialogue", 60, 2, 0.97 - 5 * loss, 0.97),
        *_counted(rng, loss),
        *[row_of("safety", item, (SCORE_ONE,), (SCORE_ONE,)) for item in range(10)],
        *_shown(seed, rng.choice([19, 20, 22, 24])),
    ]
    return tuple(_with_gaps(rng, rows))


def _scored(rng: random.Random, suite: str, items: int, decodes: int, rate: float, other: float, longer: bool = False) -> list[PairRow]:
    def scores(chance: float) -> Scores:
        return tuple([rng.choice([SCORE_ONE, SCORE_ONE, SCORE_ONE, SCORE_ONE // 4 * 3]) * (rng.random() < chance) for _ in range(decodes)])

    made = []
    for item in range(items):
        candidate, incumbent = scores(rate), scores(other)
        tokens = 20 + (rng.randrange(12) if longer and any(candidate) else rng.randrange(2))
        made.append(row_of(suite, item, candidate, incumbent, cluster=f"{suite}-{max(item, 1):05d}", tokens=(tokens, 20, 20)))
    return made


def _counted(rng: random.Random, loss: float) -> list[PairRow]:
    rights = [(SCORE_ONE * (rng.random() >= loss), SCORE_ONE * (rng.random() >= 0.01)) for _ in range(120)]
    return [row_of("regression", item, (new,), (old,)) for item, (new, old) in enumerate(rights)]


ODD: tuple[dict[str, Any], ...] = ({}, {"repetition": 30_000}, {"markup": True}, {"addresses_judge": True}, {"avoids": True})


def _shown(seed: int, length: int) -> list[PairRow]:
    """Replies to the behaviour suite, of which the candidate's are a little worse in one way, in turn."""
    rows = [row_of("manners", item, (None,), (None,), tokens=(length, 20, 20)) for item in range(25)]
    odd, cut, same = ODD[seed % len(ODD)], seed % 3 == 0, seed % 4 == 0
    return [_altered(row, odd if item == 0 else {}, cut and item == 1, same and item < 3) for item, row in enumerate(rows)]


def _altered(row: PairRow, style: dict[str, Any], cut: bool, same: bool) -> PairRow:
    def candidate(given: dict[Arm, Any], value: Any) -> dict[Arm, Any]:
        return {**given, "candidate": (value,)}

    changes: dict[str, Any] = {"styles": candidate(row.styles or {}, PLAIN.model_copy(update=style)), "likelihoods": (NEAR,)}
    if cut:
        changes["finishes"] = candidate(row.finishes, "length")
    if same:
        changes["texts"] = candidate(row.texts, sha256(b"the same again"))
    return row.model_copy(update=changes)


def _with_gaps(rng: random.Random, rows: Sequence[PairRow]) -> Iterable[PairRow]:
    gaps = {("target", 7)} if rng.random() < 0.3 else set()
    for row in rows:
        gap = (row.suite, int(row.item[-5:])) in gaps
        yield without_answer(row, rng.choice(ARMS), 0) if gap else row
