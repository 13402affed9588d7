"""One candidate's path: queued, taken from the queue, advanced step by step until it has a verdict or ends."""

from __future__ import annotations

from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EntryReason
from gatevalve.decide.candidate_status import Found, status_update
from gatevalve.decide.case import Case
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.ends import give_up
from gatevalve.decide.plan import CandidateStatusUpdate, Plan
from gatevalve.decide.steps import next_step
from gatevalve.decide.view import CandidateView, View


def dequeue(case: Case) -> Plan:
    """Fix the facts: incumbent, policy, window. Jobs follow once the facts are written."""
    state = CandidateState.FETCHING if case.spec.artifact else CandidateState.SNAPSHOTTING
    return Plan(statuses=status_update(case, state, Found(facts=case.facts)), requeue_seconds=0)


def wait(case: Case, reason: ConditionReason, message: str) -> Plan:
    """Stay in the queue and say why."""
    return Plan(statuses=status_update(case, CandidateState.QUEUED, decided=(False, reason, message)))


def refuse(view: View, candidate: CandidateView, reason: ConditionReason, message: str) -> Plan:
    """Say why a candidate cannot be taken at all; it stays where it is."""
    old, generation = candidate.status, candidate.meta.generation
    conditions = with_condition(old.conditions, CandidateCondition.DECIDED, False, reason, message, view.now, generation)
    status = old.model_copy(update={"conditions": conditions, "observed_generation": generation})
    return Plan(statuses=(CandidateStatusUpdate(candidate.meta.name, candidate.meta.uid, status),) if status != old else ())


def advance(case: Case) -> Plan:
    """The next step of a candidate in flight."""
    if case.stale:
        text = "the incumbent changed; apply a new candidate"
        return give_up(case, CandidateState.ABORTED, ConditionReason.STALE, EntryReason.STALE, text)
    if case.seconds_left <= 0:
        text = f"no verdict within {case.spec.deadline}"
        return give_up(case, CandidateState.ERRORED, ConditionReason.DEADLINE_EXCEEDED, EntryReason.DEADLINE_EXCEEDED, text)
    return next_step(case)
