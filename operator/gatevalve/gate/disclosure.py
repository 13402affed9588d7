"""Disclosure: what leaves the gate towards people, so that nothing but one bit is told of sealed items."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Finding
from gatevalve.gate.results import CheckResult

EFFECT_STEP = 50
"""Basis points that the effect of an accepted candidate is rounded to."""

PUBLIC_REASON = {
    Finding.EVIDENCE_ROWS: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_NUMBERS: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_DIGESTS: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_SIZE: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_MISSING: EntryReason.EVIDENCE_UNSOUND,
    Finding.EFFECT_TOO_SMALL: EntryReason.PRIMARY_NOT_PASSED,
    Finding.NOT_SIGNIFICANT: EntryReason.PRIMARY_NOT_PASSED,
    Finding.WORSE_THAN_MARGIN: EntryReason.GUARD_REGRESSED,
    Finding.BELOW_ANCHOR: EntryReason.ANCHOR_REGRESSED,
    Finding.BELOW_FLOOR: EntryReason.BELOW_FLOOR,
    Finding.LENGTH_RATIO: EntryReason.BEHAVIOUR_CHANGED,
    Finding.POLICY_FOREIGN: EntryReason.NOT_AUTHORIZED,
    Finding.BASE_FOREIGN: EntryReason.NOT_AUTHORIZED,
    Finding.PARENT_FOREIGN: EntryReason.NOT_AUTHORIZED,
    Finding.UNCHANGED: EntryReason.NOT_AUTHORIZED,
    Finding.QUARANTINED: EntryReason.NOT_AUTHORIZED,
    Finding.BUDGET_EXHAUSTED: EntryReason.NOT_AUTHORIZED,
}
"""The reason that may be shown for each finding, unless it was made on the primary suite."""


def public_reason(policy: GatePolicySpec, result: CheckResult) -> EntryReason:
    """The reason of a result that is no pass; whatever was computed on the primary suite shows as PrimaryNotPassed."""
    return EntryReason.PRIMARY_NOT_PASSED if result.suite == policy.primary.name else PUBLIC_REASON[result.finding]


def public_message(policy: GatePolicySpec, result: CheckResult) -> str:
    """A sentence without numbers; what was found on the primary suite is not told."""
    if result.suite == policy.primary.name:
        return EntryReason.PRIMARY_NOT_PASSED.sentence
    return f"{result.suite}: {result.finding.sentence}" if result.suite else result.finding.sentence


def public_effect(mean: float) -> int:
    """The effect in basis points, rounded half up to EFFECT_STEP."""
    return (round(mean * 10_000) + EFFECT_STEP // 2) // EFFECT_STEP * EFFECT_STEP
