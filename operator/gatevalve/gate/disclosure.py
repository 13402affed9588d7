"""Disclosure: what leaves the gate towards people, so that nothing but one bit is told of sealed items.

What public suites, the report and the log say is told first: a Fail, then an Insufficient, with its own reason, and it is the same
whatever the sealed suites show. Only when all of that passes is a bit told of the Primary and its screen: that all of it passes as well,
or that some of it does not. The latter is one verdict, one reason and one message, whether a check failed or could not be judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatevalve.contracts.policy import SCREEN, GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.results import CheckResult

EFFECT_STEP = 50
"""Basis points that the effect of an accepted candidate is rounded to."""

PUBLIC_REASON = {
    Finding.EVIDENCE_ROWS: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_NUMBERS: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_DIGESTS: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_SIZE: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_MISSING: EntryReason.EVIDENCE_UNSOUND,
    Finding.EVIDENCE_JUDGE: EntryReason.EVIDENCE_UNSOUND,
    Finding.HOPELESS: EntryReason.PRIMARY_NOT_PASSED,
    Finding.SCREEN_ONLY: EntryReason.PRIMARY_NOT_PASSED,
    Finding.EFFECT_TOO_SMALL: EntryReason.PRIMARY_NOT_PASSED,
    Finding.NOT_SIGNIFICANT: EntryReason.PRIMARY_NOT_PASSED,
    Finding.WORSE_THAN_MARGIN: EntryReason.GUARD_REGRESSED,
    Finding.BELOW_ANCHOR: EntryReason.ANCHOR_REGRESSED,
    Finding.BELOW_FLOOR: EntryReason.BELOW_FLOOR,
    Finding.MUST_PASS_FAILED: EntryReason.MUST_PASS_FAILED,
    Finding.NO_REPLIES: EntryReason.EVIDENCE_UNSOUND,
    Finding.GAIN_BY_LENGTH: EntryReason.PRIMARY_NOT_PASSED,
    Finding.LENGTH_RATIO: EntryReason.BEHAVIOUR_CHANGED,
    Finding.REPETITION: EntryReason.BEHAVIOUR_CHANGED,
    Finding.TRUNCATION: EntryReason.BEHAVIOUR_CHANGED,
    Finding.DIVERSITY: EntryReason.BEHAVIOUR_CHANGED,
    Finding.KL_INCUMBENT: EntryReason.BEHAVIOUR_CHANGED,
    Finding.KL_ANCHOR: EntryReason.BEHAVIOUR_CHANGED,
    Finding.FORMAT_SHIFT: EntryReason.BEHAVIOUR_CHANGED,
    Finding.JUDGE_TEXT: EntryReason.BEHAVIOUR_CHANGED,
    Finding.AVOIDANCE: EntryReason.BEHAVIOUR_CHANGED,
    Finding.CHURNED: EntryReason.CHURNED,
    Finding.POLICY_FOREIGN: EntryReason.NOT_AUTHORIZED,
    Finding.BASE_FOREIGN: EntryReason.NOT_AUTHORIZED,
    Finding.PARENT_FOREIGN: EntryReason.NOT_AUTHORIZED,
    Finding.UNCHANGED: EntryReason.NOT_AUTHORIZED,
    Finding.QUARANTINED: EntryReason.NOT_AUTHORIZED,
    Finding.BUDGET_EXHAUSTED: EntryReason.NOT_AUTHORIZED,
}
"""The reason that may be shown for each finding, unless it was made on the Primary suite or its screen."""

WORST_FIRST = ((Outcome.FAIL, Verdict.REJECTED), (Outcome.INSUFFICIENT, Verdict.INCONCLUSIVE))


def disclosed(policy: GatePolicySpec, results: Sequence[CheckResult]) -> tuple[Verdict, EntryReason, str]:
    """The verdict, one reason and a sentence without numbers, of results in the order of the chain."""
    sealed = {policy.primary.name, SCREEN}
    public = [result for result in results if result.suite not in sealed]
    for outcome, verdict in WORST_FIRST:
        for result in public:
            if result.outcome is outcome:
                return verdict, PUBLIC_REASON[result.finding], _message(result)
    passed = all(result.outcome is Outcome.PASS for result in results)
    verdict, reason = (Verdict.ACCEPTED, EntryReason.GATE_PASSED) if passed else (Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED)
    return verdict, reason, reason.sentence


def _message(result: CheckResult) -> str:
    return f"{result.suite}: {result.finding.sentence}" if result.suite else result.finding.sentence


def public_effect(mean: float) -> int:
    """The effect in basis points, rounded half up to EFFECT_STEP."""
    return (round(mean * 10_000) + EFFECT_STEP // 2) // EFFECT_STEP * EFFECT_STEP
