"""Items, arms and their answers, drawn with numpy and written as the rows that the gate reads.

No rate is ever clipped: a candidate that is meant to equal the incumbent does so exactly in the population, on either side of every item.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.gate.inputs import Evidence, Ledger
from support.gate_cases import Scores, facts_of, guard_rows, ledger_of, manners_rows, policy_of, report_of, row_of

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Generator = np.random.Generator

LEVEL, SPREAD = -0.5, 1.2
"""Logits of the items' rates: the incumbent has about 40 % right, from hardly ever to nearly always."""
HABIT = 0.5
"""Deviation, in logits, between two models of equal skill on one item."""
GUARD_ITEMS = 600
POLICY: GatePolicySpec = policy_of(items=240, decodes=3)
"""The demo's suites and error rates: 240 items of 3 decodes, 500 bp over 10 tests."""


def logits(rng: Generator, items: int = 240) -> Floats:
    """How hard each of a round's items is."""
    return rng.normal(LEVEL, SPREAD, items)


def habits(rng: Generator, items: int = 240) -> Floats:
    """What one model finds easier or harder than others of its skill, item by item: 0 on average over all items there are."""
    return rng.normal(0, HABIT, items)


def chances(logits_I: Floats) -> Floats:
    """Rates of right answers from logits."""
    return np.asarray(1 / (1 + np.exp(-logits_I)))


def answered(rng: Generator, rates_I: Floats, decodes: int = 3) -> Counts:
    """Right answers of one arm to each item."""
    return np.asarray(rng.binomial(decodes, rates_I))


def skill_of_gain(gain: float) -> float:
    """The shift in logits that gains just so much on average over all items there are."""
    level_I = np.random.default_rng(0).normal(LEVEL, float(np.hypot(SPREAD, HABIT)), 400_000)
    low, high = 0.0, 10.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(chances(level_I + middle) - chances(level_I)) < gain else (low, middle)
    return high


def primary_rows(candidate_I: Counts, incumbent_I: Counts, decodes: int = 3) -> list[PairRow]:
    """Rows of the Primary from counts of right answers. The anchor has nothing right, so that nothing but superiority is in the way."""
    pairs = zip(candidate_I.tolist(), incumbent_I.tolist(), strict=True)
    return [_primary_row(item, new, old, decodes) for item, (new, old) in enumerate(pairs)]


@cache
def _primary_row(item: int, new: int, old: int, decodes: int) -> PairRow:
    def scores(hits: int) -> Scores:
        return (SCORE_ONE,) * hits + (0,) * (decodes - hits)

    return row_of("target", item, scores(new), scores(old), scores(0))


def unharmed_rows() -> list[PairRow]:
    """Guard and behaviour rows of a candidate that answers there as the incumbent does."""
    return [*guard_rows(0, GUARD_ITEMS), *manners_rows()]


class Bench:
    """Evidence of one policy: its report and ledger are made once, as only the rows differ from test to test."""

    def __init__(self, policy: GatePolicySpec, first: Iterable[PairRow]) -> None:
        """Take the policy and the rows of any one test of it."""
        facts = facts_of(policy, first)
        self.policy = policy
        self.ledger: Ledger = ledger_of(policy, facts)
        self._report = report_of(self.ledger, facts)

    def evidence(self, rows: Iterable[PairRow]) -> Evidence:
        """The evidence of a test with these rows."""
        return Evidence.of(self._report, rows)
