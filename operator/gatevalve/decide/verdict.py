"""What follows a verdict: promotion, waiting for a person, or the end."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterReleaseSpec, Approval, Serves
from gatevalve.contracts.names import adapter_dir, adapter_name
from gatevalve.contracts.reasons import Action, CandidateState, ConditionReason, EventReason, Verdict
from gatevalve.decide import entries
from gatevalve.decide.candidate_status import found_in, status_update
from gatevalve.decide.case import Case
from gatevalve.decide.channel_status import Problem
from gatevalve.decide.ends import ended
from gatevalve.decide.log import name_of
from gatevalve.decide.plan import AppendEntry, Plan


def after_verdict(case: Case, held: Problem | None) -> Plan:
    """What a candidate with a verdict asks for now; `held` says what keeps the channel from promoting anything."""
    verdict = case.verdict
    if verdict is None:
        return Plan()
    if verdict.action is Action.REJECT:
        return _rejected(case, verdict)
    promoted = case.log.of_candidate(case.uid, Action.PROMOTE)
    return _promoted(case, verdict, promoted) if promoted is not None else _accepted(case, verdict, held)


def _accepted(case: Case, accept: AdapterReleaseSpec, held: Problem | None) -> Plan:
    if (change := case.overtaken_since(accept)) is not None:
        return ended(case, CandidateState.ABORTED, ConditionReason.STALE, f"{change} after it was accepted", accept)
    if held is not None:
        return _hold(case, accept, held[0], f"accepted; {held[1]}")
    if case.channel.approval == "Automatic":
        return _promote(case, accept, None)
    approval = case.spec.approval
    if approval is None:
        return _hold(case, accept, ConditionReason.AWAITING_APPROVAL, "accepted; set spec.approval {decision, by, evidenceDigest}")
    return _approved(case, accept, approval)


def _approved(case: Case, accept: AdapterReleaseSpec, approval: Approval) -> Plan:
    if approval.decision == "Deny":
        return ended(case, CandidateState.ABORTED, ConditionReason.DENIED, f"denied by {approval.by}", accept)
    evidence = accept.gate.evidence if accept.gate else None
    if evidence is None or approval.evidence_digest != evidence.digest:
        text = "spec.approval.evidenceDigest is not status.evidence.digest; the approval cannot be used"
        return ended(case, CandidateState.ABORTED, ConditionReason.DENIED, text, accept)
    return _promote(case, accept, approval.by)


def _promote(case: Case, accept: AdapterReleaseSpec, actor: str | None) -> Plan:
    digest = accept.lineage.adapter_digest if accept.lineage else None
    if digest is None:
        return Plan()
    serves = Serves(
        adapter=adapter_name(case.view.name, digest),
        digest=digest,
        uri=adapter_dir(case.channel_uid, digest),
        rank=case.channel.adapter.rank,
    )
    entry = entries.promote_entry(case.view, case.log, accept, serves, actor)
    return Plan((AppendEntry(entry),), events=(case.event(EventReason.PROMOTED, f"promoted in {name_of(entry)}"),), requeue_seconds=0)


def _hold(case: Case, accept: AdapterReleaseSpec, reason: ConditionReason, message: str) -> Plan:
    return Plan(statuses=status_update(case, CandidateState.ACCEPTED, found_in(accept), decided=(False, reason, message)))


def _promoted(case: Case, accept: AdapterReleaseSpec, promoted: AdapterReleaseSpec) -> Plan:
    decided = (True, promoted.reason, f"every check passed; promoted in {name_of(promoted)}")
    return Plan(statuses=status_update(case, CandidateState.PROMOTED, found_in(accept, name_of(promoted)), decided=decided))


def _rejected(case: Case, reject: AdapterReleaseSpec) -> Plan:
    state = CandidateState.REJECTED if reject.verdict is Verdict.REJECTED else CandidateState.INCONCLUSIVE
    return Plan(statuses=status_update(case, state, found_in(reject), decided=(True, reject.reason, reject.message)))
