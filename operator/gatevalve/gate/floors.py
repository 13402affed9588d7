"""Floors: absolute demands that no release moves: a guard's rate is shown to be above its floor, and what must pass does."""

from __future__ import annotations

from gatevalve.contracts.files import SCORE_ONE
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, measured
from gatevalve.gate.samples import candidate_rate, counts_exactly, right, scores
from gatevalve.gate.statistics import rate_lower


def floors(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """Each Guard whose floorBasisPoints is not 0, at guardAlphaBasisPoints, then each MustPass suite."""
    alpha = policy.guard_alpha_basis_points / 10_000
    guards = evidence.with_role(policy, "Guard")
    above = (_above(suite, evidence, alpha) for suite in guards if suite.floor_basis_points)
    return (*above, *(_all_right(suite, evidence) for suite in evidence.with_role(policy, "MustPass")))


def _above(suite: Suite, evidence: Evidence, alpha: float) -> CheckResult:
    rate, bound = _counted(suite, evidence, alpha) if counts_exactly(evidence, suite) else _averaged(suite, evidence, alpha)
    least = (suite.floor_basis_points or 0) / 10_000
    sentence = (
        f"The candidate's rate is {rate:.2%}; at an error rate of {alpha:.4f} the true rate is above {bound:.2%}. "
        f"Asked for: at least {least:.2%}."
    )
    finding = Finding.OK if bound >= least else Finding.BELOW_FLOOR
    return measured(Check.FLOORS, suite, finding, rate, bound, len(evidence.rows(suite.name)), sentence)


def _counted(suite: Suite, evidence: Evidence, alpha: float) -> tuple[float, float]:
    """Clopper & Pearson's lower bound of the share of items that the candidate has wholly right."""
    rows = evidence.rows(suite.name)
    hits = sum(right(row, "candidate") for row in rows)
    return hits / len(rows), rate_lower(hits, len(rows), alpha)


def _averaged(suite: Suite, evidence: Evidence, alpha: float) -> tuple[float, float]:
    rate = candidate_rate(evidence, suite)
    return rate.mean, rate.cautious_lower_bound(alpha)


def _all_right(suite: Suite, evidence: Evidence) -> CheckResult:
    """Every single reply of the candidate; a missing one counts as wrong."""
    given = [score for row in evidence.rows(suite.name) for score in scores(row, "candidate")]
    hits = sum(score == SCORE_ONE for score in given)
    finding = Finding.OK if hits == len(given) else Finding.MUST_PASS_FAILED
    share = hits / len(given)
    sentence = f"{hits} of {len(given)} replies are wholly right. Asked for: all."
    return measured(Check.FLOORS, suite, finding, share, share, len(evidence.rows(suite.name)), sentence)
