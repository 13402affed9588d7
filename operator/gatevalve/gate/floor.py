"""Floor: on every guard suite that has one, the candidate's rate is shown to be above an absolute floor that no release moves."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, measured
from gatevalve.gate.samples import candidate_rate, counts_exactly, right
from gatevalve.gate.statistics import rate_lower


def floor(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """Each Guard whose floorBasisPoints is not 0, at guardAlphaBasisPoints."""
    alpha = policy.guard_alpha_basis_points / 10_000
    return tuple(_above(suite, evidence, alpha) for suite in policy.with_role("Guard") if suite.floor_basis_points)


def _above(suite: Suite, evidence: Evidence, alpha: float) -> CheckResult:
    rate, bound = _counted(suite, evidence, alpha) if counts_exactly(evidence, suite) else _averaged(suite, evidence, alpha)
    least = (suite.floor_basis_points or 0) / 10_000
    sentence = (
        f"The candidate's rate is {rate:.2%}; at an error rate of {alpha:.4f} the true rate is above {bound:.2%}. "
        f"Asked for: at least {least:.2%}."
    )
    finding = Finding.OK if bound >= least else Finding.BELOW_FLOOR
    return measured(Check.FLOOR, suite, finding, rate, bound, len(evidence.rows(suite.name)), sentence)


def _counted(suite: Suite, evidence: Evidence, alpha: float) -> tuple[float, float]:
    rows = evidence.rows(suite.name)
    hits = sum(right(row, "candidate") for row in rows)
    return hits / len(rows), rate_lower(hits, len(rows), alpha)


def _averaged(suite: Suite, evidence: Evidence, alpha: float) -> tuple[float, float]:
    rate = candidate_rate(evidence, suite)
    return rate.mean, rate.cautious_lower_bound(alpha)
