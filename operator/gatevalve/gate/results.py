"""What the gate says: one result for each check and suite, and the judgement they add up to."""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve.contracts.policy import Suite
from gatevalve.contracts.reasons import EntryReason, Explained, Finding, Outcome, Verdict
from gatevalve.gate.statistics import decimal


class Check(Explained):
    """The checks of the gate."""

    EVIDENCE = "Evidence", "The evidence is complete, finite, and made for this test."
    FUTILITY = "Futility", "The screen leaves a prospect of a gain."
    SUPERIORITY = "Superiority", "The candidate beats the incumbent on the primary suite."
    NONINFERIORITY = "Noninferiority", "The candidate is no worse than the incumbent on a guard suite, within its margin."
    ANCHORED = "Anchored", "The candidate beats the anchor on the primary suite and is no worse on the guard suites, within their margins."
    FLOORS = "Floors", "The candidate's rate on a guard suite is above its floor, and every reply to a must-pass suite is right."
    BEHAVIOUR = "Behaviour", "Replies keep their form, and the gain is not one of length."
    CHURN = "Churn", "The candidate loses few answers that the incumbent has right, beyond the incumbent's own noise."
    AUTHORITY = "Authority", "The log allows this candidate to be released."


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check says of one suite, or of the whole test when `suite` is absent. Private: it belongs to the evidence area.

    `statistic` is what was measured, `bound` the confidence bound or ratio that was compared, both as decimal strings; `n` counts items.
    """

    check: Check
    outcome: Outcome
    finding: Finding
    suite: str | None
    statistic: str | None
    bound: str | None
    n: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The gate's answer. Verdict, reason, message and effect may be shown to people; the results are for the evidence area.

    `effect_basis_points` is rounded and present on Accepted only.
    """

    verdict: Verdict
    reason: EntryReason
    message: str
    effect_basis_points: int | None
    results: tuple[CheckResult, ...]


def found(check: Check, outcome: Outcome, finding: Finding, suite: Suite | None, n: int, sentence: str) -> CheckResult:
    """A result that rests on no statistic."""
    return CheckResult(check, outcome, finding, suite.name if suite else None, None, None, n, sentence)


def measured(check: Check, suite: Suite, finding: Finding, statistic: float, bound: float, n: int, sentence: str) -> CheckResult:
    """A result that rests on a statistic and its bound: a pass when nothing but `Finding.OK` was found."""
    outcome = Outcome.PASS if finding is Finding.OK else Outcome.FAIL
    return CheckResult(check, outcome, finding, suite.name, decimal(statistic), decimal(bound), n, sentence)


def points(value: float) -> str:
    """A share in percentage points, for sentences."""
    return f"{100 * value:.2f} points"
