"""Superiority: the candidate beats the incumbent by at least the least worthwhile gain, at this round's error rate per test."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, measured, points
from gatevalve.gate.samples import paired_gain
from gatevalve.gate.statistics import ClusteredMean


def superiority(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """One-sided clustered paired t at alpha/maxTests, and an effect of at least minEffectBasisPoints.

    `p < alpha` is asked as `lower bound > 0`, which is the same where the t test rules and stricter where values hardly vary.
    """
    alpha = policy.round.alpha_per_test()
    return tuple(_better(suite, paired_gain(evidence, suite, "incumbent"), alpha) for suite in evidence.with_role(policy, "Primary"))


def _better(suite: Suite, gain: ClusteredMean, alpha: float) -> CheckResult:
    bound = gain.lower_bound(alpha)
    least = (suite.min_effect_basis_points or 0) / 10_000
    finding = Finding.EFFECT_TOO_SMALL if gain.mean < least else Finding.OK if bound > 0 else Finding.NOT_SIGNIFICANT
    return measured(Check.SUPERIORITY, suite, finding, gain.mean, bound, gain.items, _sentence(gain, alpha, bound, least))


def _sentence(gain: ClusteredMean, alpha: float, bound: float, least: float) -> str:
    return (
        f"The candidate gains {points(gain.mean)} on the incumbent over {gain.clusters} clusters (p = {gain.p_greater(0):.6f}); "
        f"at an error rate of {alpha:.6f} the true gain is above {points(bound)}. Asked for: at least {points(least)}, and above 0."
    )
