"""A candidate's status: what was found, where it is, and conditions that tell its story."""

from __future__ import annotations

import re
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
from gatevalve.contracts.names import adapter_name
from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EntryReason, Step
from gatevalve.decide.attempts import Done, of_step, shortage
from gatevalve.decide.case import Case
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.log import name_of
from gatevalve.decide.plan import CandidateStatusUpdate

STATUS_JOBS = 32

Decided = tuple[bool, ConditionReason | EntryReason, str]
"""Value, reason and message of the Decided condition."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a step adds to the status; absent fields keep what is there, as far as log and Jobs bear it out."""

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
            **_borne_out(case, state),
            **_found_before(case).fields(),
            **(found or Found()).fields(),
        }
    )
    conditions = _conditions(case, status, decided or _going_on(case, state, running), running)
    status = status.model_copy(update={"conditions": conditions})
    return (CandidateStatusUpdate(case.candidate.meta.name, case.uid, status),) if status != case.status else ()


def _going_on(case: Case, state: CandidateState, running: str) -> Decided:
    """What a candidate without a verdict does, or waits for: too few items stay told while the next attempt counts them anew."""
    short = shortage(of_step(case.view.jobs, case.uid, Step.DRAW)) if state is CandidateState.DRAWING else None
    return (False, ConditionReason.ITEM_SUPPLY, short) if short is not None else (False, ConditionReason.IN_PROGRESS, running)


def _borne_out(case: Case, state: CandidateState) -> dict[str, object]:
    """Fields that the log alone may fill, and facts as they are acted on: what else was written there was written by somebody else."""
    kept = case.facts if case.status.facts is not None and state is not CandidateState.QUEUED else None
    return {"facts": kept, "test": None, "evidence": None, "decision": None}


def _found_before(case: Case) -> Found:
    """What Jobs and log say of earlier steps: an operator that was killed before it told of a step is made up for."""
    test, snapshot = case.test, case.attempts(Step.SNAPSHOT)
    result = snapshot.termination.snapshot if isinstance(snapshot, Done) else None
    return Found(
        snapshot=SnapshotStatus(digest=result.snapshot_digest, rows=result.rows, rewarded=result.rewarded) if result else None,
        adapter=_tested_adapter(case, test) if test else None,
        test=name_of(test) if test else None,
    )


def _tested_adapter(case: Case, test: AdapterReleaseSpec) -> AdapterStatus | None:
    made, digest = made_by(case), test.lineage.adapter_digest if test.lineage else None
    if made is None or digest is None:
        return None
    return AdapterStatus(name=adapter_name(case.view.name, digest), digest=digest, attempt=made)


def made_by(case: Case) -> str | None:
    """The attempt that made the adapter, as long as its Job or the status tells; it names a directory, so no other text will do."""
    step = Step.FETCH if case.spec.artifact else Step.TRAIN
    state = case.attempts(step)
    if isinstance(state, Done):
        return f"{step}-{state.job.attempt}"
    told = case.status.adapter.attempt if case.status.adapter else ""
    return told if re.fullmatch(rf"{step}-[0-9]+", told) else None


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
