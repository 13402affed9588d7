"""Evidence: what was measured is complete, in range, and made for this test; nothing of a suite is looked at when its rows are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gatevalve.contracts.files import EvidenceReport, JudgeFact
from gatevalve.contracts.policy import GatePolicySpec, Judge, Suite
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.evidence_rows import Problem, named, row_problem
from gatevalve.gate.inputs import Evidence, Ledger, measured_suites
from gatevalve.gate.results import Check, CheckResult, found

CANARIES_RIGHT_PERCENT = 95
"""Canary pairs that a judge has to get right."""


def sound_evidence(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """One result each for the report's origin, the set of suites and the judges, and one for the rows of each suite."""
    suites = measured_suites(policy, evidence.stage)
    whole = (_origin(evidence.report, ledger), _coverage(suites, evidence, ledger), _judges(suites, evidence.report))
    return (*(_result(None, 0, problem) for problem in whole), *(_suite(policy, suite, evidence, ledger) for suite in suites))


def _result(suite: Suite | None, n: int, problem: Problem | None) -> CheckResult:
    finding, sentence = problem or (Finding.OK, Finding.OK.sentence)
    outcome = Outcome.INSUFFICIENT if problem else Outcome.PASS
    return found(Check.EVIDENCE, outcome, finding, suite, n, sentence)


def _origin(report: EvidenceReport | None, ledger: Ledger) -> Problem | None:
    if report is None:
        return Finding.EVIDENCE_ROWS, "There is no report."
    expected = {
        "testEntry": (report.test_entry, ledger.test_entry),
        "testDigest": (report.test_digest, ledger.test_digest),
        "channelUid": (report.channel_uid, ledger.channel_uid),
        "candidateUid": (report.candidate_uid, ledger.candidate_uid),
        "round": (report.round, ledger.round),
        "policyDigest": (report.policy_digest, ledger.policy_digest),
        "baseDigest": (report.base_digest, ledger.base_digest),
        "candidateDigest": (report.candidate_digest, ledger.candidate_digest),
        "incumbentDigest": (report.incumbent_digest, ledger.incumbent_digest),
        "anchorDigest": (report.anchor_digest, ledger.anchor_digest),
    }
    foreign = [name for name, (told, known) in expected.items() if told != known]
    return (Finding.EVIDENCE_DIGESTS, f"The report was made for another {', '.join(foreign)}.") if foreign else None


def _coverage(suites: Sequence[Suite], evidence: Evidence, ledger: Ledger) -> Problem | None:
    wanted = {suite.name for suite in suites}
    if not wanted:
        return Finding.EVIDENCE_ROWS, "The report ends with a screen that the policy does not ask for."
    if unknown := sorted(set(evidence.suites) - wanted):
        return Finding.EVIDENCE_ROWS, f"There are rows of suites that this test does not measure: {named(unknown)}."
    facts = evidence.report.suites if evidence.report else ()
    if Counter(fact.name for fact in facts) != Counter(wanted):
        return Finding.EVIDENCE_ROWS, "The report does not list exactly the suites that this test measures."
    digests = {suite.name: suite.items.digest for suite in suites if suite.items.digest}
    foreign = [fact.name for fact in facts if digests.get(fact.name, fact.sha256) != fact.sha256]
    if foreign:
        return Finding.EVIDENCE_DIGESTS, f"Items were drawn from other files than the policy names: {named(foreign)}."
    sizes = [fact.name for fact in facts if fact.items != ledger.expected_items.get(fact.name)]
    return (Finding.EVIDENCE_SIZE, f"The report states another number of items than expected: {named(sizes)}.") if sizes else None


def _judges(suites: Sequence[Suite], report: EvidenceReport | None) -> Problem | None:
    """Canaries have nothing to do with the candidate, so what they say of a judge is no news of sealed items."""
    facts = report.judges if report else ()
    judges = {suite.name: suite.judge for suite in suites if suite.judge}
    if Counter(fact.suite for fact in facts) != Counter(judges.keys()):
        return Finding.EVIDENCE_JUDGE, "The report does not tell of exactly one judge for each judged suite."
    wrong = [fact.suite for fact in facts if not _reliable(judges[fact.suite], fact)]
    return (Finding.EVIDENCE_JUDGE, f"The judge is another than the policy's, or failed its canaries: {named(wrong)}.") if wrong else None


def _reliable(judge: Judge, fact: JudgeFact) -> bool:
    enough = fact.canaries > 0 and fact.canaries * CANARIES_RIGHT_PERCENT <= fact.right * 100 <= fact.canaries * 100
    return fact.model == judge.model and enough


def _suite(policy: GatePolicySpec, suite: Suite, evidence: Evidence, ledger: Ledger) -> CheckResult:
    rows = evidence.rows(suite.name)
    return _result(suite, len(rows), row_problem(suite, rows, ledger.expected_items.get(suite.name), policy.evidence))
