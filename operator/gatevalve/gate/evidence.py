"""Evidence: what was measured is complete, in range, and made for this test; nothing else is looked at when it is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from gatevalve.contracts.files import ARMS, SCORE_ONE, Arm, EvidenceReport, PairRow
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, found

NAMED_ROWS = 3
"""Rows that a sentence names before it only counts."""

Problem = tuple[Finding, str]


def sound_evidence(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """One result for the report's origin, one for the set of suites, and one for the rows of each suite."""
    whole = (_origin(evidence.report, ledger), _coverage(policy, evidence, ledger))
    return (*(_result(None, 0, problem) for problem in whole), *(_suite(policy, suite, evidence, ledger) for suite in policy.suites))


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


def _coverage(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> Problem | None:
    wanted = {suite.name for suite in policy.suites}
    if unknown := sorted(set(evidence.suites) - wanted):
        return Finding.EVIDENCE_ROWS, f"There are rows of suites that the policy does not name: {_named(unknown)}."
    facts = evidence.report.suites if evidence.report else ()
    if Counter(fact.name for fact in facts) != Counter(wanted):
        return Finding.EVIDENCE_ROWS, "The report does not list exactly the policy's suites."
    digests = {suite.name: suite.items.digest for suite in policy.suites if suite.items.digest}
    foreign = [fact.name for fact in facts if digests.get(fact.name, fact.sha256) != fact.sha256]
    if foreign:
        return Finding.EVIDENCE_DIGESTS, f"Items were drawn from other files than the policy names: {_named(foreign)}."
    sizes = [fact.name for fact in facts if fact.items != ledger.expected_items.get(fact.name)]
    return (Finding.EVIDENCE_SIZE, f"The report states another number of items than expected: {_named(sizes)}.") if sizes else None


def _suite(policy: GatePolicySpec, suite: Suite, evidence: Evidence, ledger: Ledger) -> CheckResult:
    rows = evidence.rows(suite.name)
    rules: tuple[Callable[[], Problem | None], ...] = (
        lambda: _count(rows, ledger.expected_items.get(suite.name)),
        lambda: _shape(suite, rows),
        lambda: _range(rows),
        lambda: _missing(suite, rows, policy.evidence.max_missing_basis_points),
        lambda: _clusters(suite, rows, policy.evidence.min_clusters),
    )
    problem = next((problem for rule in rules if (problem := rule())), None)
    return _result(suite, len(rows), problem)


def _count(rows: Sequence[PairRow], expected: int | None) -> Problem | None:
    twice = sorted(item for item, times in Counter(row.item for row in rows).items() if times > 1)
    if twice:
        return Finding.EVIDENCE_ROWS, f"Items appear more than once: {_named(twice)}."
    if len(rows) != expected:
        return Finding.EVIDENCE_ROWS, f"There are {len(rows)} items where {expected} are expected."
    return None


def _shape(suite: Suite, rows: Sequence[PairRow]) -> Problem | None:
    short = [row.item for row in rows if not _whole(row, suite.decodes)]
    return (Finding.EVIDENCE_ROWS, f"Rows do not hold {suite.decodes} answers of every arm: {_named(short)}.") if short else None


def _whole(row: PairRow, decodes: int) -> bool:
    answers = (row.scores, row.tokens, row.finishes, row.texts)
    return all(len(answer.get(arm, ())) == decodes for answer in answers for arm in ARMS)


def _range(rows: Sequence[PairRow]) -> Problem | None:
    out = [row.item for row in rows if not _in_range(row)]
    return (Finding.EVIDENCE_NUMBERS, f"A score or a token count is out of range: {_named(out)}.") if out else None


def _in_range(row: PairRow) -> bool:
    scores = (score for arm in ARMS for score in row.scores[arm] if score is not None)
    tokens = (count for arm in ARMS for count in row.tokens[arm] if count is not None)
    return all(0 <= score <= SCORE_ONE for score in scores) and all(count >= 0 for count in tokens)


def _missing(suite: Suite, rows: Sequence[PairRow], most: int) -> Problem | None:
    for arm in ARMS:
        missing = sum(answer is None for row in rows for answer in _answers(suite, row, arm))
        if missing * 10_000 > most * len(rows) * suite.decodes:
            return Finding.EVIDENCE_MISSING, f"{missing} of {len(rows) * suite.decodes} answers of the {arm} are missing."
    return None


def _answers(suite: Suite, row: PairRow, arm: Arm) -> Sequence[int | None]:
    return row.tokens[arm] if suite.role == "Behaviour" else row.scores[arm]


def _clusters(suite: Suite, rows: Sequence[PairRow], fewest: int) -> Problem | None:
    clusters = len({row.cluster for row in rows})
    if suite.role == "Behaviour" or clusters >= fewest:
        return None
    return Finding.EVIDENCE_SIZE, f"There are {clusters} clusters where {fewest} are needed."


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_ROWS} more" if len(names) > NAMED_ROWS else ""
    return ", ".join(names[:NAMED_ROWS]) + more
