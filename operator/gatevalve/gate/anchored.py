"""Anchored: the candidate beats the fixed anchor on the primary suite and is no worse on the guards, so small losses cannot add up."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.noninferiority import no_worse
from gatevalve.gate.results import Check, CheckResult, measured, points
from gatevalve.gate.samples import paired_gain


def anchored(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """The Primary with margin 0 and each Guard with its margin, against the anchor, at guardAlphaBasisPoints."""
    alpha = policy.guard_alpha_basis_points / 10_000
    guards = evidence.with_role(policy, "Guard")
    held = (no_worse(Check.ANCHORED, Finding.BELOW_ANCHOR, suite, evidence, "anchor", alpha) for suite in guards)
    return (*(_better(suite, evidence, alpha) for suite in evidence.with_role(policy, "Primary")), *held)


def _better(suite: Suite, evidence: Evidence, alpha: float) -> CheckResult:
    gain = paired_gain(evidence, suite, "anchor")
    bound = gain.lower_bound(alpha)
    finding = Finding.OK if bound > 0 else Finding.BELOW_ANCHOR
    sentence = (
        f"The candidate gains {points(gain.mean)} on the anchor over {gain.clusters} clusters; "
        f"at an error rate of {alpha:.4f} the true gain is above {points(bound)}. Asked for: above 0."
    )
    return measured(Check.ANCHORED, suite, finding, gain.mean, bound, gain.items, sentence)
