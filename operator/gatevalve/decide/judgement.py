"""From evidence and log to the gate's answer: what the ledger says is read from the log, never from the evidence."""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve.contracts.jobs import EvidenceResult
from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.reasons import EntryReason, Verdict
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.view import EvidenceView
from gatevalve.gate.inputs import Evidence, Ledger, expected_items
from gatevalve.gate.judge import judge
from gatevalve.gate.results import CheckResult


@dataclass(frozen=True, slots=True)
class Judged:
    """What may be told of a judgement, and the results it rests on, which may not: they belong to the evidence area."""

    verdict: Verdict
    reason: EntryReason
    message: str
    effect_basis_points: int | None = None
    results: tuple[CheckResult, ...] = ()


def judge_test(log: LogState, test: AdapterReleaseSpec, base_digest: str, evidence: EvidenceView, result: EvidenceResult) -> Judged:
    """The verdict on one test; evidence that cannot be read or is not what the Job named is Inconclusive."""
    policy = log.policy_named(test.gate.policy_digest) if test.gate else None
    if evidence.problem is not None:
        return _unsound(evidence.problem)
    if evidence.report is None or evidence.digest != result.evidence_digest:
        return _unsound("the evidence is not the one that the evaluation Job named")
    if policy is None:
        return _unsound("the policy of the test is not in the log")
    judgement = judge(policy, Evidence.of(evidence.report, evidence.rows), ledger_of(log, test, base_digest, evidence))
    return Judged(judgement.verdict, judgement.reason, judgement.message, judgement.effect_basis_points, judgement.results)


def _unsound(message: str) -> Judged:
    return Judged(Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND, message)


def ledger_of(log: LogState, test: AdapterReleaseSpec, base_digest: str, evidence: EvidenceView) -> Ledger:
    """What the log says about a test, be it judged now or anew. Raises ValueError when the entry is no test or there is no report."""
    gate, lineage, candidate = test.gate, test.lineage, test.candidate
    if gate is None or lineage is None or candidate is None or evidence.report is None:
        raise ValueError(f"{name_of(test)} is no Test entry")
    policy = log.policy_named(gate.policy_digest)
    trained = lineage.artifact_digest is None
    return Ledger(
        channel_uid=log.store_uid,
        candidate_uid=candidate.uid,
        test_entry=name_of(test),
        test_digest=test.digest or "",
        round=gate.round,
        tests_spent=gate.test,
        policy_digest=gate.policy_digest,
        base_digest=base_digest,
        adapter_base_digest=lineage.base_digest,
        candidate_digest=lineage.adapter_digest or "",
        parent_digest=lineage.parent_digest if trained else gate.incumbent_digest,
        incumbent_digest=log.incumbent_digest,
        anchor_digest=gate.anchor_digest,
        expected_items=expected_items(policy, evidence.report.suites) if policy else {},
        quarantined=log.quarantine,
    )
