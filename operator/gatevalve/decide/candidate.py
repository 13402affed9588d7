"""One candidate's path: queued, taken from the queue, advanced step by step until it has a verdict or ends."""

from __future__ import annotations

from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EntryReason
from gatevalve.decide.candidate_status import Found, status_update
from gatevalve.decide.case import Case, is_witnessed
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.ends import ended, give_up, last_told
from gatevalve.decide.log import fold
from gatevalve.decide.plan import CandidateStatusUpdate, Plan
from gatevalve.decide.steps import next_step
from gatevalve.decide.unusable import unusable
from gatevalve.decide.view import CandidateView, View


def dequeue(case: Case) -> Plan:
    """Fix the facts: incumbent, policy, window. Jobs follow once the facts are written; none follows for a candidate of no use."""
    if (problem := unusable(case)) is not None:
        return ended(case, CandidateState.ERRORED, ConditionReason.CONTRACT_BROKEN, problem)
    return Plan(statuses=status_update(case, CandidateState.DRAWING, Found(facts=case.facts)), requeue_seconds=0)


def wait(case: Case, reason: ConditionReason, message: str) -> Plan:
    """Stay in the queue and say why."""
    return Plan(statuses=status_update(case, CandidateState.QUEUED, decided=(False, reason, message)))


def refuse(view: View, candidate: CandidateView, reason: ConditionReason, message: str) -> Plan:
    """Say why a candidate cannot be taken at all; it stays where it is, but for a verdict that a sound log does not hold."""
    old, generation = candidate.status, candidate.meta.generation
    conditions = with_condition(old.conditions, CandidateCondition.DECIDED, False, reason, message, view.now, generation)
    forged = view.log.problem is None and not is_witnessed(fold(view.log), candidate)
    state = {"state": CandidateState.QUEUED, "decision": None} if forged else {}
    status = old.model_copy(update={"conditions": conditions, "observed_generation": generation, **state})
    return Plan(statuses=(CandidateStatusUpdate(candidate.meta.name, candidate.meta.uid, status),) if status != old else ())


def advance(case: Case) -> Plan:
    """The next step of a candidate in flight."""
    if (change := case.overtaken) is not None:
        text = f"{change}; apply a new candidate"
        return give_up(case, CandidateState.ABORTED, ConditionReason.STALE, EntryReason.STALE, text)
    if case.seconds_left <= 0:
        text = f"no verdict within {case.spec.deadline}{last_told(case)}"
        return give_up(case, CandidateState.ERRORED, ConditionReason.DEADLINE_EXCEEDED, EntryReason.DEADLINE_EXCEEDED, text)
    return next_step(case)
