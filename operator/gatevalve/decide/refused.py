"""What may still be told of a plan that stopped at an action: a Job that the API server refuses must not silence its channel."""

from __future__ import annotations

from collections.abc import Sequence

from gatevalve.contracts.errors import GatevalveError, InvalidError
from gatevalve.contracts.kinds import AdapterCandidateStatus, Condition
from gatevalve.contracts.names import LABEL_CANDIDATE_UID
from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EventReason
from gatevalve.decide.conditions import MESSAGE_LIMIT, with_condition
from gatevalve.decide.plan import Action, AppendEntry, CandidateStatusUpdate, CreateJob, DeleteJob, Event, Plan
from gatevalve.decide.view import CandidateView, View


def told_after_failure(plan: Plan, view: View, undone: Sequence[Action], error: GatevalveError) -> Plan:
    """The statuses and events that hold although `undone`, the first of which failed, did not happen.

    What the undone actions are about is not told. The candidate of a refused Job is told why: it waits, or ends when the Job is invalid.
    """
    silent = {uid for action in undone for uid in _subjects(action, view)}
    statuses = tuple(item for item in plan.statuses if not isinstance(item, CandidateStatusUpdate) or item.uid not in silent)
    rest = Plan(statuses=statuses, events=tuple(event for event in plan.events if event.uid not in silent))
    first = undone[0]
    return rest + _refused(plan, view, first, error) if isinstance(first, CreateJob) else rest


def _subjects(action: Action, view: View) -> tuple[str, ...]:
    """Uids of what an action is about; an entry without a candidate is about the channel."""
    match action:
        case AppendEntry(entry=entry) if entry.candidate is not None:
            return (entry.candidate.uid,)
        case AppendEntry() if view.channel is not None:
            return (view.channel.meta.uid,)
        case CreateJob(manifest=manifest):
            return (manifest["metadata"].get("labels", {}).get(LABEL_CANDIDATE_UID, ""),)
        case DeleteJob(name=name):
            return tuple(job.candidate_uid for job in view.jobs if job.name == name)
    return ()


def _refused(plan: Plan, view: View, action: CreateJob, error: GatevalveError) -> Plan:
    (uid,) = _subjects(action, view)
    candidate = next((candidate for candidate in view.candidates if candidate.meta.uid == uid), None)
    if candidate is None:
        return Plan()
    planned = (item.status for item in plan.statuses if isinstance(item, CandidateStatusUpdate) and item.uid == uid)
    status, name = next(planned, candidate.status), action.manifest["metadata"]["name"]
    if isinstance(error, InvalidError) and status.test is None:
        return _ended(view, candidate, status, f"Job {name} is refused: {error}; correct the channel and apply a new candidate")
    told = _marked(status, ConditionReason.IN_PROGRESS, f"Job {name} cannot be created yet, trying again: {error}")
    return Plan(statuses=(CandidateStatusUpdate(candidate.meta.name, uid, told),))


def _ended(view: View, candidate: CandidateView, status: AdapterCandidateStatus, message: str) -> Plan:
    """Errored; only before a test is opened, because an opened test ends with a verdict."""
    meta, marked = candidate.meta, _marked(status, ConditionReason.STEP_FAILED, message)
    conditions = with_condition(
        marked.conditions, CandidateCondition.DECIDED, True, ConditionReason.STEP_FAILED, message, view.now, meta.generation
    )
    told = marked.model_copy(update={"state": CandidateState.ERRORED, "conditions": conditions})
    event = Event("AdapterCandidate", meta.name, meta.uid, EventReason.ERRORED, message, warning=True)
    return Plan(statuses=(CandidateStatusUpdate(meta.name, meta.uid, told),), events=(event,))


def _marked(status: AdapterCandidateStatus, reason: ConditionReason, message: str) -> AdapterCandidateStatus:
    """The status with its conditions in progress saying why nothing is."""
    return status.model_copy(update={"conditions": tuple(_said(condition, reason, message) for condition in status.conditions)})


def _said(condition: Condition, reason: ConditionReason, message: str) -> Condition:
    if condition.reason != ConditionReason.IN_PROGRESS:
        return condition
    return condition.model_copy(update={"reason": str(reason), "message": message[:MESSAGE_LIMIT]})
