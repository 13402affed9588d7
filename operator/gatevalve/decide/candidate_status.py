"""A candidate's status: what was found, where it is, and conditions that tell its story."""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve.contracts.kinds import (
    AdapterCandidateStatus,
    AdapterReleaseSpec,
    AdapterStatus,
    Condition,
    DecisionStatus,
    EvidenceStatus,
    Facts,
    JobStatus,
    SnapshotStatus,
)
from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EntryReason
from gatevalve.decide.case import Case
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.log import name_of
from gatevalve.decide.plan import CandidateStatusUpdate

STATUS_JOBS = 32

Decided = tuple[bool, ConditionReason | EntryReason, str]
"""Value, reason and message of the Decided condition."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a step adds to the status; absent fields keep what is there."""

    facts: Facts | None = None
    snapshot: SnapshotStatus | None = None
    adapter: AdapterStatus | None = None
    test: str | None = None
    evidence: EvidenceStatus | None = None
    decision: DecisionStatus | None = None

    def fields(self) -> dict[str, object]:
        """The fields that are present."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


def found_in(verdict: AdapterReleaseSpec, entry: str | None = None) -> Found:
    """What a verdict entry adds; `entry` is the entry to name, the verdict's own by default."""
    gate = verdict.gate
    decision = DecisionStatus(
        verdict=str(verdict.verdict),
        reason=str(verdict.reason),
        entry=entry or name_of(verdict),
        effect_basis_points=gate.effect_basis_points if gate else None,
    )
    return Found(evidence=gate.evidence if gate else None, decision=decision)


def status_update(
    case: Case, state: CandidateState, found: Found | None = None, *, decided: Decided | None = None, running: str = ""
) -> tuple[CandidateStatusUpdate, ...]:
    """The status after a step, when it differs from the one written; `running` tells what is going on."""
    status = case.status.model_copy(
        update={
            "state": state,
            "observed_generation": case.candidate.meta.generation,
            "jobs": _jobs(case),
            **(found or Found()).fields(),
        }
    )
    conditions = _conditions(case, status, decided or (False, ConditionReason.IN_PROGRESS, running), running)
    status = status.model_copy(update={"conditions": conditions})
    return (CandidateStatusUpdate(case.candidate.meta.name, case.uid, status),) if status != case.status else ()


def _jobs(case: Case) -> tuple[JobStatus, ...]:
    mine = [job for job in case.view.jobs if job.candidate_uid == case.uid]
    seen = {job.name: JobStatus(name=job.name, step=job.step, attempt=job.attempt, exit_code=job.exit_code) for job in mine}
    gone = tuple(job for job in case.status.jobs if job.name not in seen)
    return (*gone, *seen.values())[-STATUS_JOBS:]


def _conditions(case: Case, status: AdapterCandidateStatus, decided: Decided, running: str) -> tuple[Condition, ...]:
    now, generation = case.view.now, case.candidate.meta.generation
    conditions = case.status.conditions
    for kind, done, reason, message in _milestones(case, status, running):
        conditions = with_condition(conditions, kind, done, reason, message, now, generation)
    return with_condition(conditions, CandidateCondition.DECIDED, *decided, now, generation)


def _milestones(case: Case, status: AdapterCandidateStatus, running: str) -> list[tuple[CandidateCondition, bool, ConditionReason, str]]:
    is_artifact = case.spec.artifact is not None
    making = CandidateState.FETCHING if is_artifact else CandidateState.TRAINING
    stages = [
        (CandidateCondition.SNAPSHOT_READY, status.snapshot is not None, CandidateState.SNAPSHOTTING),
        (CandidateCondition.TRAINED, status.adapter is not None, making),
        (CandidateCondition.EVALUATED, status.evidence is not None, CandidateState.EVALUATING),
    ]
    rows = []
    for kind, done, active in stages:
        reason, message = ConditionReason.WAITING, ConditionReason.WAITING.sentence
        if done:
            reason = ConditionReason.DONE
        elif is_artifact and kind is CandidateCondition.SNAPSHOT_READY:
            reason, message = ConditionReason.NOT_NEEDED, "the candidate is an artifact"
        elif status.state is active:
            reason, message = ConditionReason.IN_PROGRESS, running
        rows.append((kind, done, reason, message))
    return rows
