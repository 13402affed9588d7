"""A trainer that climbs towards sealed items by what it is told of each try: one bit, or, for contrast, the exact score.

In this world no adapter is truly better than another: every item has a mirror image on which what helped harms as much. Whatever an
adapter gains on a round's items is luck of the draw, and what a trainer gets released by climbing is worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.false_accepts import accepted
from bench.population import Bench, Floats, Generator, answered, primary_rows, unharmed_rows
from gatevalve.contracts.files import PairRow
from gatevalve.gate.samples import paired_gain
from support.gate_cases import policy_of

TRIES = 1000
FEATURES = 60
STRIDE = 2.0
POLICY = policy_of(items=240, decodes=3, round={"alphaBasisPoints": 500, "maxTests": TRIES})
"""All tries on one sealed item set, until one is accepted: nothing a policy can say gives a trainer more to learn from."""


def rates(features_IF: Floats, adapter_F: Floats) -> Floats:
    """Rates of right answers, between 0.1 and 0.9, one half on average over all items there are, whatever the adapter."""
    return np.asarray(0.5 + 0.4 * np.tanh(features_IF @ adapter_F))


@dataclass
class Climb:
    """One trainer against one gate; `untrue` sums what its releases gained on the sealed items and nowhere else."""

    rng: Generator
    sees_scores: bool
    bench: Bench
    others: list[PairRow]
    incumbent_F: Floats = field(default_factory=lambda: np.zeros(FEATURES))
    untrue: float = 0.0
    releases: int = 0

    def __post_init__(self) -> None:
        self._new_round()

    def _new_round(self) -> None:
        self.features_IF: Floats = self.rng.normal(0, 1, (240, FEATURES))
        self.slope_F, self.scores = np.zeros(FEATURES), list[float]()
        self.hint_F: Floats | None = None

    def try_once(self) -> None:
        """Propose an adapter, be told, keep it or learn from what was told."""
        step_F = self._step()
        proposed_F = self.incumbent_F + self._uphill() + step_F
        new_I, old_I = (rates(self.features_IF, adapter_F) for adapter_F in (proposed_F, self.incumbent_F))
        rows = primary_rows(answered(self.rng, new_I), answered(self.rng, old_I))
        if accepted(self.bench, rows, self.others):
            self.incumbent_F, self.releases = proposed_F, self.releases + 1
            self.untrue += float(np.mean(new_I - old_I))
            self._new_round()
        elif self.sees_scores:
            self._learn(step_F, paired_gain(self.bench.evidence(rows), POLICY.primary, "incumbent").mean)

    def _learn(self, step_F: Floats, score: float) -> None:
        """The slope leans towards steps that scored above what was usual so far."""
        self.slope_F += step_F * (score - (float(np.mean(self.scores)) if self.scores else 0.0))
        self.scores.append(score)

    def _step(self) -> Floats:
        """Any direction; told of one bit only, then its opposite: that is what a rejection speaks for, if for anything."""
        if self.hint_F is not None:
            step_F, self.hint_F = self.hint_F, None
            return step_F
        step_F = self.rng.normal(0, STRIDE / np.sqrt(FEATURES), FEATURES) * self.rng.exponential()
        self.hint_F = None if self.sees_scores else -step_F
        return step_F

    def _uphill(self) -> Floats:
        """As far as a stride along the slope that scores have shown; nowhere without them."""
        length = float(np.linalg.norm(self.slope_F))
        return STRIDE * self.slope_F / length if length else self.slope_F


def climbed(seed: int, *, sees_scores: bool) -> Climb:
    """A trainer after all its tries."""
    rng, others, nothing = np.random.default_rng(seed), unharmed_rows(), np.zeros(240, dtype=np.int64)
    climb = Climb(rng, sees_scores, Bench(POLICY, [*primary_rows(nothing, nothing), *others]), others)
    for _ in range(TRIES):
        climb.try_once()
    return climb


def untrue_bp(trainers: int, *, sees_scores: bool) -> int:
    """What a trainer gets released on average that is no gain at all, in basis points."""
    return round(sum(10_000 * climbed(seed, sees_scores=sees_scores).untrue for seed in range(trainers)) / trainers)


def adaptive_figures(trainers: int, seeing: int) -> dict[str, Any]:
    """What climbing is worth in 1,000 tries: told one bit a try, and told the exact score of each."""
    return {
        "adaptive_gain_bp": untrue_bp(trainers, sees_scores=False),
        "adaptive_gain_seeing_scores_bp": untrue_bp(seeing, sees_scores=True),
    }
