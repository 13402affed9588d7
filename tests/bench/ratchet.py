"""A long line of candidates that each improve the primary suite and lose a little elsewhere: what is lost after all of them.

A candidate breaks every guard item that its parent has right with one small probability of its own, so its true loss is known without
error. Whole judgements decide; without an anchor, the anchor arm answers as the incumbent does, which is what an anchor that moves with
each release comes to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.population import Bench, Generator
from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.reasons import Outcome, Verdict
from gatevalve.gate.anchored import anchored
from gatevalve.gate.inputs import Evidence
from gatevalve.gate.judge import judge
from gatevalve.gate.noninferiority import noninferiority
from support.gate_cases import manners_rows, policy_of, row_of, target_rows

Rights = NDArray[np.bool_]

GUARD = {"marginBasisPoints": 200, "floorBasisPoints": 0}
"""Half the demo's margin: with 600 items, up to four lost ones are allowed."""
ITEMS = 600
CANDIDATES = 300
BASE_RATE = 0.97
MEAN_HARM = 0.004
"""Of the items that the parent has right, the share that a candidate breaks on average."""


@dataclass
class Line:
    """One line of releases on guard items that are drawn anew after each of them, or stay the same for ever."""

    rng: Generator
    to_anchor: bool
    fixed: bool = False
    lost: float = 0.0
    releases: int = 0
    anchor_I: Rights = field(init=False)
    incumbent_I: Rights = field(init=False)

    def __post_init__(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.anchor_I = self.rng.random(ITEMS) < BASE_RATE
        self.incumbent_I = self.anchor_I & (self.rng.random(ITEMS) >= self.lost)

    def harmed(self) -> tuple[float, Rights]:
        """The next candidate: how much it breaks, and what it has right."""
        harm = float(self.rng.exponential(MEAN_HARM))
        return harm, self.incumbent_I & (self.rng.random(ITEMS) >= harm)

    def release(self, harm: float, candidate_I: Rights) -> None:
        """It serves; `lost` is the share of what the first anchor had right that is truly gone."""
        self.lost, self.incumbent_I, self.releases = 1 - (1 - self.lost) * (1 - harm), candidate_I, self.releases + 1
        if not self.fixed:
            self._draw()

    def rows(self, candidate_I: Rights) -> list[PairRow]:
        """Guard rows of a candidate."""
        against_I = self.anchor_I if self.to_anchor else self.incumbent_I
        arms = zip(candidate_I.tolist(), self.incumbent_I.tolist(), against_I.tolist(), strict=True)
        return [_guard_row(item, *rights) for item, rights in enumerate(arms)]


@cache
def _guard_row(item: int, candidate: bool, incumbent: bool, anchor: bool) -> PairRow:
    return row_of("regression", item, *((SCORE_ONE * right,) for right in (candidate, incumbent, anchor)))


def accepts(bench: Bench, evidence: Evidence) -> bool:
    """Whether the gate accepts; its whole chain is asked only where the checks that see the harm pass."""
    seen = (*noninferiority(bench.policy, evidence, bench.ledger), *anchored(bench.policy, evidence, bench.ledger))
    if any(result.outcome is not Outcome.PASS for result in seen):
        return False
    return judge(bench.policy, evidence, bench.ledger).verdict is Verdict.ACCEPTED


def loss_bp(seed: int, candidates: int, *, to_anchor: bool, fixed: bool = False) -> float:
    """What a line has truly lost on the guard after so many candidates, in basis points of the anchor's rate."""
    line = Line(np.random.default_rng(seed), to_anchor, fixed)
    improved = [*target_rows(), *manners_rows()]
    policy = policy_of(guard=GUARD)
    bench = Bench(policy, [*improved, *line.rows(line.anchor_I)])
    for _ in range(candidates):
        harm, candidate_I = line.harmed()
        evidence = bench.evidence([*improved, *line.rows(candidate_I)])
        if accepts(bench, evidence):
            line.release(harm, candidate_I)
    return 10_000 * line.lost


def ratchet_figures(lines: int) -> dict[str, Any]:
    """What is lost after 300 candidates, on average over several lines, with the base as anchor and with an anchor that follows."""
    return {"ratchet_loss_bp": {"with_anchor": _mean(lines, to_anchor=True), "without_anchor": _mean(lines, to_anchor=False)}}


def fixed_guard_figures(lines: int) -> dict[str, Any]:
    """The same with the anchor, but on a guard whose items never change: of what is lost elsewhere they tell ever less."""
    return {"ratchet_loss_on_a_fixed_guard_bp": _mean(lines, to_anchor=True, fixed=True)}


def _mean(lines: int, *, to_anchor: bool, fixed: bool = False) -> int:
    return round(sum(loss_bp(seed, CANDIDATES, to_anchor=to_anchor, fixed=fixed) for seed in range(lines)) / lines)
