"""Ends of a candidate that are no verdict: Skipped, Errored, Aborted; and giving up on one in flight."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EntryReason, EventReason, Verdict
from gatevalve.decide import entries
from gatevalve.decide.candidate_status import found_in, status_update
from gatevalve.decide.case import Case
from gatevalve.decide.conditions import condition_of
from gatevalve.decide.plan import AppendEntry, DeleteJob, Plan

_EVENTS = {
    CandidateState.SKIPPED: EventReason.SKIPPED,
    CandidateState.ERRORED: EventReason.ERRORED,
    CandidateState.ABORTED: EventReason.ABORTED,
}

_WAITS = frozenset({ConditionReason.IN_PROGRESS, ConditionReason.ITEM_SUPPLY})


def ended(case: Case, state: CandidateState, reason: ConditionReason, message: str, accept: AdapterReleaseSpec | None = None) -> Plan:
    """The candidate ends without a promotion; told by one Event."""
    statuses = status_update(case, state, found_in(accept) if accept else None, decided=(True, reason, message))
    if case.status.state is state:
        return Plan(statuses=statuses)
    event = case.event(_EVENTS[state], message, warning=state is CandidateState.ERRORED)
    # No watch tells us of our own writing, and the next in the queue has its turn.
    return Plan(statuses=statuses, events=(event,), requeue_seconds=0)


def last_told(case: Case) -> str:
    """What a candidate was seen to wait for when its time ran out: a Pod that cannot start says why, and is gone with its Job."""
    told = condition_of(case.status.conditions, CandidateCondition.DECIDED)
    if told is None or told.reason not in _WAITS or not told.message:
        return ""
    return f"; last seen: {told.message}"


def give_up(case: Case, state: CandidateState, reason: ConditionReason, entry_reason: EntryReason, message: str) -> Plan:
    """Stop what runs; an opened test gets its Reject(Inconclusive), otherwise the candidate ends in `state`."""
    running = tuple(
        DeleteJob(job.name) for job in case.view.jobs if job.candidate_uid == case.uid and not job.finished and not job.deleting
    )
    if case.test is None:
        return Plan(running) + ended(case, state, reason, message)
    entry = entries.reject_entry(case.view, case.log, case.test, Verdict.INCONCLUSIVE, entry_reason, message, None)
    event = case.event(EventReason.INCONCLUSIVE, message, warning=True)
    return Plan((*running, AppendEntry(entry)), events=(event,), requeue_seconds=0)
