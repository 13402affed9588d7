"""Non-inferiority: on every guard suite the candidate's loss against the incumbent is shown to be smaller than the margin."""

from __future__ import annotations

from gatevalve.contracts.files import Arm
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, measured, points
from gatevalve.gate.samples import counts_exactly, lost, paired_gain, won
from gatevalve.gate.statistics import rate_upper, rounded


def noninferiority(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """Each Guard against the incumbent at guardAlphaBasisPoints."""
    alpha = policy.guard_alpha_basis_points / 10_000
    guards = evidence.with_role(policy, "Guard")
    return tuple(no_worse(Check.NONINFERIORITY, Finding.WORSE_THAN_MARGIN, suite, evidence, "incumbent", alpha) for suite in guards)


def no_worse(check: Check, finding: Finding, suite: Suite, evidence: Evidence, against: Arm, alpha: float) -> CheckResult:
    """Whether the loss on a guard suite is below its margin with error rate alpha; `finding` says otherwise."""
    loss, worst, how = (
        _counted(suite, evidence, against, alpha) if counts_exactly(evidence, suite) else _averaged(suite, evidence, against, alpha)
    )
    margin = (suite.margin_basis_points or 0) / 10_000
    sentence = f"{how}; at an error rate of {alpha:.4f} the true loss is below {points(worst)}. Allowed: {points(margin)}."
    return measured(check, suite, Finding.OK if worst < margin else finding, loss, worst, len(evidence.rows(suite.name)), sentence)


def _counted(suite: Suite, evidence: Evidence, against: Arm, alpha: float) -> tuple[float, float, str]:
    """The rate of lost items and its exact upper bound (Clopper & Pearson 1934): items won elsewhere do not make up for them."""
    items, losses = len(evidence.rows(suite.name)), lost(evidence, suite, against)
    how = f"Of {items} items {losses} that the {against} has right are lost and {won(evidence, suite, against)} are won"
    return losses / items, rate_upper(losses, items, alpha), how


def _averaged(suite: Suite, evidence: Evidence, against: Arm, alpha: float) -> tuple[float, float, str]:
    """The mean loss and its upper bound by the clustered paired t."""
    gain = paired_gain(evidence, suite, against)
    how = f"The candidate loses {points(rounded(-gain.mean))} on the {against} over {gain.clusters} clusters"
    return rounded(-gain.mean), rounded(-gain.cautious_lower_bound(alpha)), how
