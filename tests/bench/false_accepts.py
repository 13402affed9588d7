"""Rounds of candidates that are no better than the incumbent, and single tests of one that is better by what the policy is made to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.population import (
    POLICY,
    Bench,
    Counts,
    Floats,
    Generator,
    answered,
    chances,
    habits,
    logits,
    primary_rows,
    skill_of_gain,
    unharmed_rows,
)
from gatevalve.contracts.files import PairRow
from gatevalve.contracts.reasons import Outcome, Verdict
from gatevalve.gate.inputs import Evidence
from gatevalve.gate.judge import judge
from gatevalve.gate.samples import paired_gain
from gatevalve.gate.statistics import rate_lower, rate_upper
from gatevalve.gate.superiority import superiority

MAX_TESTS = POLICY.round.max_tests


@dataclass(frozen=True)
class Released:
    """What two rules did in one round: whether the gate accepted anything, and whether `mean above the incumbent` did."""

    by_gate: bool
    by_naive: bool


def bench() -> Bench:
    """The policy with evidence of its size."""
    nothing = np.zeros(240, dtype=np.int64)
    return Bench(POLICY, [*primary_rows(nothing, nothing), *unharmed_rows()])


def accepted(bench: Bench, primary: list[PairRow], others: list[PairRow]) -> bool:
    """Whether the gate accepts. Its whole chain is asked only where superiority passes: an Accept needs that of every check."""
    evidence = bench.evidence(primary)
    if any(result.outcome is not Outcome.PASS for result in superiority(bench.policy, evidence, bench.ledger)):
        return False
    return judge(bench.policy, bench.evidence([*primary, *others]), bench.ledger).verdict is Verdict.ACCEPTED


def null_round(rng: Generator, bench: Bench, others: list[PairRow], *, same_model: bool) -> Released:
    """One sealed item set and maxTests candidates. `same_model`: each is the incumbent itself; otherwise another model of its skill."""
    level_I = logits(rng)
    incumbent_I = chances(level_I + habits(rng))
    gate = naive = False
    for _ in range(MAX_TESTS):
        candidate_I = incumbent_I if same_model else chances(level_I + habits(rng))
        rows = primary_rows(answered(rng, candidate_I), answered(rng, incumbent_I))
        gate = gate or accepted(bench, rows, others)
        naive = naive or beats_on_average(bench.evidence(rows))
    return Released(gate, naive)


def beats_on_average(evidence: Evidence) -> bool:
    """The rule that the gate is there to replace."""
    return paired_gain(evidence, POLICY.primary, "incumbent").mean > 0


def rounds(seed: int, number: int, *, same_model: bool) -> list[Released]:
    """Independent rounds."""
    rng, made, others = np.random.default_rng(seed), bench(), unharmed_rows()
    return [null_round(rng, made, others, same_model=same_model) for _ in range(number)]


def better_by(rng: Generator, skill: float) -> tuple[Counts, Counts]:
    """Answers of a candidate of more skill, and of the incumbent, to fresh items."""
    level_I: Floats = logits(rng)
    return answered(rng, chances(level_I + habits(rng) + skill)), answered(rng, chances(level_I + habits(rng)))


def power(seed: int, tests: int, gain: float) -> int:
    """How many of so many candidates that are truly better by `gain` the gate accepts, each on fresh items."""
    rng, made, others, skill = np.random.default_rng(seed), bench(), unharmed_rows(), skill_of_gain(gain)
    return sum(accepted(made, primary_rows(*better_by(rng, skill)), others) for _ in range(tests))


def interval(hits: int, n: int) -> list[float]:
    """The two-sided 95 % interval of a share (Clopper & Pearson 1934)."""
    return [round(rate_lower(hits, n, 0.025), 4), round(rate_upper(hits, n, 0.025), 4)]


def false_accept_figures(number: int, others: int) -> dict[str, Any]:
    """Shares of rounds with an accept: of the incumbent itself, of other models of its skill, and under the naive rule."""
    same = rounds(1, number, same_model=True)
    hits = sum(released.by_gate for released in same)
    other = rounds(2, others, same_model=False)
    return {
        "rounds": number,
        "tests_per_round": MAX_TESTS,
        "round_false_accept": round(hits / number, 4),
        "round_false_accept_interval": interval(hits, number),
        "round_false_accept_of_other_models": round(sum(released.by_gate for released in other) / others, 4),
        "naive_false_accept": round(sum(released.by_naive for released in same) / number, 4),
    }


def power_figures(tests: int) -> dict[str, Any]:
    """The share of candidates accepted whose true gain is the smallest that the policy is made to see."""
    mde = POLICY.primary.min_detectable_effect_basis_points or 0
    hits = power(3, tests, mde / 10_000)
    return {"mde_bp": mde, "power_at_mde": round(hits / tests, 4), "power_at_mde_interval": interval(hits, tests)}
