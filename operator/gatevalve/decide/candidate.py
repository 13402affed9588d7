"""One candidate's path: queued, snapshot, train or fetch, test, evaluate, verdict, approval, promotion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gatevalve.build.jobs import Owner, evaluate_job, fetch_job, snapshot_job, train_job
from gatevalve.contracts.jobs import EvaluateInput, FetchInput, PublishInput, SnapshotInput, TrainInput
from gatevalve.contracts.kinds import (
    AdapterCandidateSpec,
    AdapterCandidateStatus,
    AdapterChannelSpec,
    AdapterReleaseSpec,
    AdapterStatus,
    Approval,
    Condition,
    DecisionStatus,
    EvidenceStatus,
    Facts,
    GateFacts,
    JobStatus,
    Lineage,
    Serves,
    SnapshotStatus,
)
from gatevalve.contracts.names import adapter_name, evidence_dir
from gatevalve.contracts.reasons import (
    TERMINAL_STATES,
    Action,
    CandidateCondition,
    CandidateState,
    ConditionReason,
    EntryReason,
    EventReason,
    Step,
    Verdict,
)
from gatevalve.decide import entries
from gatevalve.decide.attempts import Done, Ended, Pause, Running, Start, StepState, of_step, step_state
from gatevalve.decide.conditions import instant, timestamp, with_condition
from gatevalve.decide.documents import adapter_uri
from gatevalve.decide.durations import duration
from gatevalve.decide.judgement import judge_test
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.plan import AppendEntry, CandidateStatusUpdate, CreateJob, DeleteJob, Event, Plan
from gatevalve.decide.view import CandidateView, View
from gatevalve.gate.rounds import next_test

STATUS_JOBS = 32


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate in its channel: everything a step of its path is decided from."""

    view: View
    channel: AdapterChannelSpec
    channel_uid: str
    log: LogState
    candidate: CandidateView
    spec: AdapterCandidateSpec

    @property
    def uid(self) -> str:
        """The candidate's uid."""
        return self.candidate.meta.uid

    @property
    def status(self) -> AdapterCandidateStatus:
        """The candidate's status as last written."""
        return self.candidate.status

    @property
    def test(self) -> AdapterReleaseSpec | None:
        """The candidate's Test entry."""
        return self.log.of_candidate(self.uid, Action.TEST)

    @property
    def verdict(self) -> AdapterReleaseSpec | None:
        """The candidate's Accept or Reject entry."""
        return self.log.of_candidate(self.uid, Action.ACCEPT, Action.REJECT)

    @property
    def owner(self) -> Owner:
        """The owner of the candidate's Jobs."""
        return Owner(self.candidate.meta.name, self.uid, self.view.name)

    def attempts(self, step: Step) -> StepState:
        """What the attempts of a step ask for."""
        return step_state(of_step(self.view.jobs, self.uid, step), self.view.now)


def is_over(log: LogState, candidate: CandidateView) -> bool:
    """The candidate has reached an end and takes no more place in the queue; an accepted one is over for the queue once promoted or overtaken."""
    if log.of_candidate(candidate.meta.uid, Action.PROMOTE) or log.of_candidate(candidate.meta.uid, Action.REJECT):
        return True
    return candidate.status.state in TERMINAL_STATES


def is_in_flight(log: LogState, candidate: CandidateView) -> bool:
    """The candidate has left the queue and has no verdict yet."""
    if log.of_candidate(candidate.meta.uid, Action.ACCEPT, Action.REJECT):
        return False
    return not is_over(log, candidate) and (candidate.status.facts is not None or log.of_candidate(candidate.meta.uid, Action.TEST) is not None)


def dequeue(case: Case) -> Plan:
    """Fix the facts: incumbent, policy, window. Jobs follow once they are written."""
    live = case.log.live
    policy_digest = case.log.policy_digest
    if live is None or policy_digest is None:
        return Plan()
    window = _window(case)
    facts = Facts(
        incumbent_entry=name_of(live.spec),
        incumbent_digest=case.log.incumbent_digest,
        policy=case.channel.gate_policy,
        policy_digest=policy_digest,
        started_at=timestamp(case.view.now),
        window_from=timestamp(window[0]) if window else None,
        window_to=timestamp(window[1]) if window else None,
    )
    state = CandidateState.FETCHING if case.spec.artifact else CandidateState.SNAPSHOTTING
    status = _status(case, state, facts=facts)
    return Plan(statuses=_update(case, status), requeue_seconds=0)


def wait(case: Case, reason: ConditionReason, message: str) -> Plan:
    """Stay in the queue and say why."""
    status = _status(case, CandidateState.QUEUED, decided=(False, reason, message))
    return Plan(statuses=_update(case, status))


def unreadable(view: View, candidate: CandidateView, reason: ConditionReason, message: str) -> Plan:
    """Say why a candidate cannot be taken at all."""
    old = candidate.status
    conditions = with_condition(
        old.conditions, CandidateCondition.DECIDED, False, reason, message, view.now, candidate.meta.generation
    )
    status = old.model_copy(update={"conditions": conditions, "observed_generation": candidate.meta.generation})
    if status == old:
        return Plan()
    return Plan(statuses=(CandidateStatusUpdate(candidate.meta.name, candidate.meta.uid, status),))


def advance(case: Case) -> Plan:
    """The next step of a candidate in flight."""
    if case.candidate.meta.deleting:
        return Plan()
    if _stale(case):
        return _give_up(case, CandidateState.ABORTED, ConditionReason.STALE, EntryReason.STALE, "the incumbent changed; apply a new candidate")
    if (left := _time_left(case)) <= 0:
        text = f"no verdict within {case.spec.deadline}"
        return _give_up(case, CandidateState.ERRORED, ConditionReason.DEADLINE_EXCEEDED, EntryReason.DEADLINE_EXCEEDED, text)
    if case.test is not None:
        return _evaluate(case, case.test, left)
    if case.spec.artifact is not None:
        return _fetch(case, left)
    return _snapshot(case, left)


def settle_verdict(case: Case, pinned: bool) -> Plan:
    """What follows a verdict: promotion, waiting for a person, or the end."""
    verdict = case.verdict
    if verdict is None:
        return Plan()
    if verdict.action is Action.REJECT:
        return _rejected(case, verdict)
    promoted = case.log.of_candidate(case.uid, Action.PROMOTE)
    if promoted is not None:
        return _promoted(case, verdict, promoted)
    return _accepted(case, verdict, pinned)


# ---- steps


def _snapshot(case: Case, left: float) -> Plan:
    train, facts = case.spec.train, _facts(case)
    if train is None:
        return Plan()
    if train.snapshot.digest is not None:
        return _train(case, left, SnapshotStatus(digest=train.snapshot.digest, rows=0, rewarded=0))
    state = case.attempts(Step.SNAPSHOT)
    if isinstance(state, Done) and state.termination.snapshot is not None:
        result = state.termination.snapshot
        return _train(case, left, SnapshotStatus(digest=result.snapshot_digest, rows=result.rows, rewarded=result.rewarded))
    if isinstance(state, Start):
        job = SnapshotInput(
            **_common(case, Step.SNAPSHOT, state.attempt),
            window_from=facts.window_from or facts.started_at,
            window_to=facts.window_to or facts.started_at,
            incumbent_digest=facts.incumbent_digest,
            base_digest=case.channel.base.digest,
            close_wait_seconds=case.channel.capture.segment_seconds * 4 + 10,
        )
        manifest = snapshot_job(case.view.settings.place, case.owner, case.channel, state.attempt, job, int(left))
        return _started(case, CandidateState.SNAPSHOTTING, manifest, Step.SNAPSHOT)
    return _not_done(case, CandidateState.SNAPSHOTTING, state)


def _train(case: Case, left: float, snapshot: SnapshotStatus) -> Plan:
    train, facts = case.spec.train, _facts(case)
    if train is None:
        return Plan()
    state = case.attempts(Step.TRAIN)
    if isinstance(state, Done) and state.termination.adapter is not None:
        lineage = _lineage(case, state.termination.adapter.adapter_digest, snapshot.digest)
        return _open_test(case, state, lineage, snapshot)
    if isinstance(state, Start):
        job = TrainInput(
            **_common(case, Step.TRAIN, state.attempt),
            base=case.channel.base,
            adapter=case.channel.adapter,
            recipe=train.recipe or case.channel.training.recipe,
            parameters={**case.channel.training.parameters, **train.parameters},
            seed=train.seed,
            snapshot_digest=snapshot.digest,
            parent_digest=facts.incumbent_digest,
            token_budget_divisor=state.token_budget_divisor,
        )
        manifest = train_job(case.view.settings.place, case.owner, case.channel, state.attempt, job, int(left))
        return _started(case, CandidateState.TRAINING, manifest, Step.TRAIN, snapshot=snapshot)
    return _not_done(case, CandidateState.TRAINING, state, snapshot=snapshot)


def _fetch(case: Case, left: float) -> Plan:
    artifact = case.spec.artifact
    if artifact is None:
        return Plan()
    state = case.attempts(Step.FETCH)
    if isinstance(state, Done) and state.termination.adapter is not None:
        lineage = _lineage(case, state.termination.adapter.adapter_digest, None)
        return _open_test(case, state, lineage, None)
    if isinstance(state, Start):
        job = FetchInput(
            **_common(case, Step.FETCH, state.attempt), base=case.channel.base, adapter=case.channel.adapter, artifact=artifact
        )
        manifest = fetch_job(case.view.settings.place, case.owner, case.channel, state.attempt, job, int(left))
        return _started(case, CandidateState.FETCHING, manifest, Step.FETCH)
    return _not_done(case, CandidateState.FETCHING, state)


def _open_test(case: Case, done: Done, lineage: Lineage, snapshot: SnapshotStatus | None) -> Plan:
    policy, facts = case.log.policy, _facts(case)
    if policy is None:
        return Plan()
    if done.job.parent_digest != (facts.incumbent_digest or ""):
        return _give_up(case, CandidateState.ABORTED, ConditionReason.STALE, EntryReason.STALE, "it was trained from another incumbent")
    policy_digest = policy.digest_of()
    number, test = next_test(case.log.specs, policy, policy_digest, facts.incumbent_digest)
    gate = GateFacts(
        policy_digest=policy_digest, round=number, test=test, incumbent_digest=facts.incumbent_digest, anchor_digest=None
    )
    entry = entries.test_entry(case.view, case.log, case.candidate, gate, lineage)
    adapter = AdapterStatus(
        name=adapter_name(case.view.name, lineage.adapter_digest or ""),
        digest=lineage.adapter_digest or "",
        attempt=f"{done.job.step}-{done.job.attempt}",
    )
    status = _status(case, CandidateState.EVALUATING, snapshot=snapshot, adapter=adapter, test=name_of(entry))
    event = _event(case, EventReason.TEST_OPENED, f"test {test} of round {number} is opened as {name_of(entry)}")
    return Plan((AppendEntry(entry),), _update(case, status), (event,), 0)


def _evaluate(case: Case, test: AdapterReleaseSpec, left: float) -> Plan:
    state = case.attempts(Step.EVALUATE)
    if isinstance(state, Done) and state.termination.evidence is not None:
        return _judge(case, test, state)
    if isinstance(state, Start):
        manifest = _evaluation(case, test, state.attempt, int(left))
        if manifest is None:
            return _no_evidence(case, test, "the attempt that made the adapter is gone; apply a new candidate")
        return _started(case, CandidateState.EVALUATING, manifest, Step.EVALUATE, test=name_of(test))
    if isinstance(state, Ended):
        return _no_evidence(case, test, state.message)
    return _not_done(case, CandidateState.EVALUATING, state, test=name_of(test))


def _evaluation(case: Case, test: AdapterReleaseSpec, attempt: int, seconds: int) -> dict[str, object] | None:
    gate, lineage = test.gate, test.lineage
    policy = case.log.policy_named(gate.policy_digest) if gate else None
    made_by = _made_by(case)
    if gate is None or lineage is None or lineage.adapter_digest is None or policy is None or made_by is None or test.digest is None:
        return None
    common = _common(case, Step.EVALUATE, attempt)
    publish = PublishInput(
        **common, base=case.channel.base, adapter=case.channel.adapter, adapter_digest=lineage.adapter_digest, produced_by=made_by
    )
    base = case.channel.base.name
    job = EvaluateInput(
        **common,
        sealed=case.view.settings.sealed_url,
        test_entry=name_of(test),
        test_digest=test.digest,
        round=gate.round,
        test=gate.test,
        policy=policy,
        policy_digest=gate.policy_digest,
        base=case.channel.base,
        candidate_digest=lineage.adapter_digest,
        incumbent_digest=gate.incumbent_digest,
        anchor_digest=gate.anchor_digest,
        arms={
            "candidate": "candidate",
            "incumbent": "incumbent" if gate.incumbent_digest else base,
            "anchor": "anchor" if gate.anchor_digest else base,
        },
    )
    return evaluate_job(case.view.settings.place, case.owner, case.channel, attempt, publish, job, seconds)


def _made_by(case: Case) -> str | None:
    step = Step.FETCH if case.spec.artifact else Step.TRAIN
    state = case.attempts(step)
    if isinstance(state, Done):
        return f"{step}-{state.job.attempt}"
    return case.status.adapter.attempt if case.status.adapter else None


def _judge(case: Case, test: AdapterReleaseSpec, done: Done) -> Plan:
    result, evidence = done.termination.evidence, case.view.evidence
    if result is None or evidence is None or evidence.test_entry != name_of(test):
        return Plan(requeue_seconds=1)
    where = EvidenceStatus(uri=evidence_dir(test.channel.uid, name_of(test)), digest=result.evidence_digest)
    judged = judge_test(case.log, test, case.channel.base.digest, evidence, result)
    if judged.verdict is Verdict.ACCEPTED:
        entry = entries.accept_entry(case.view, case.log, test, where, judged.effect_basis_points)
        event = _event(case, EventReason.ACCEPTED, f"accepted in {name_of(entry)}")
    else:
        entry = entries.reject_entry(case.view, case.log, test, judged.verdict, judged.reason, judged.message, where)
        kind = EventReason.REJECTED if judged.verdict is Verdict.REJECTED else EventReason.INCONCLUSIVE
        event = _event(case, kind, f"{judged.reason}: {judged.message}", warning=judged.verdict is Verdict.INCONCLUSIVE)
    status = _status(case, CandidateState.EVALUATING, test=name_of(test), evidence=where)
    return Plan((AppendEntry(entry),), _update(case, status), (event,), 0)


def _no_evidence(case: Case, test: AdapterReleaseSpec, message: str) -> Plan:
    text = f"no evidence: {message}"
    entry = entries.reject_entry(case.view, case.log, test, Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_FAILED, text, None)
    return Plan((AppendEntry(entry),), events=(_event(case, EventReason.INCONCLUSIVE, text, warning=True),), requeue_seconds=0)


# ---- after the verdict


def _accepted(case: Case, accept: AdapterReleaseSpec, pinned: bool) -> Plan:
    if case.log.served_after(accept):
        return _end(case, CandidateState.ABORTED, ConditionReason.STALE, "the incumbent changed after it was accepted", accept)
    if pinned:
        return _hold(case, accept, ConditionReason.CHANNEL_PINNED, "accepted; the channel is pinned and promotes nothing")
    if case.channel.approval == "Automatic":
        return _promote(case, accept, None)
    approval = case.spec.approval
    if approval is None:
        return _hold(case, accept, ConditionReason.AWAITING_APPROVAL, "accepted; set spec.approval {decision, by, evidenceDigest}")
    return _approved(case, accept, approval)


def _approved(case: Case, accept: AdapterReleaseSpec, approval: Approval) -> Plan:
    if approval.decision == "Deny":
        return _end(case, CandidateState.ABORTED, ConditionReason.DENIED, f"denied by {approval.by}", accept)
    evidence = accept.gate.evidence if accept.gate else None
    if evidence is None or approval.evidence_digest != evidence.digest:
        text = "spec.approval.evidenceDigest is not status.evidence.digest; the approval cannot be used"
        return _end(case, CandidateState.ABORTED, ConditionReason.DENIED, text, accept)
    return _promote(case, accept, approval.by)


def _promote(case: Case, accept: AdapterReleaseSpec, actor: str | None) -> Plan:
    digest = accept.lineage.adapter_digest if accept.lineage else None
    if digest is None:
        return Plan()
    serves = Serves(
        adapter=adapter_name(case.view.name, digest),
        digest=digest,
        uri=adapter_uri(case.channel_uid, digest),
        rank=case.channel.adapter.rank,
    )
    entry = entries.promote_entry(case.view, case.log, accept, serves, actor)
    event = _event(case, EventReason.PROMOTED, f"promoted in {name_of(entry)}")
    return Plan((AppendEntry(entry),), events=(event,), requeue_seconds=0)


def _hold(case: Case, accept: AdapterReleaseSpec, reason: ConditionReason, message: str) -> Plan:
    status = _status(case, CandidateState.ACCEPTED, decided=(None, reason, message), **_verdict_fields(accept))
    return Plan(statuses=_update(case, status))


def _promoted(case: Case, accept: AdapterReleaseSpec, promoted: AdapterReleaseSpec) -> Plan:
    fields = _verdict_fields(accept)
    fields["decision"] = _decision(accept).model_copy(update={"entry": name_of(promoted)})
    message = f"every check passed; promoted in {name_of(promoted)}"
    status = _status(case, CandidateState.PROMOTED, decided=(True, ConditionReason.GATE_PASSED, message), **fields)
    return Plan(statuses=_update(case, status))


def _rejected(case: Case, reject: AdapterReleaseSpec) -> Plan:
    rejected = reject.verdict is Verdict.REJECTED
    state = CandidateState.REJECTED if rejected else CandidateState.INCONCLUSIVE
    reason = ConditionReason.GATE_REJECTED if rejected else ConditionReason.GATE_INCONCLUSIVE
    decided = (True, reason, f"{reject.reason}: {reject.message}")
    status = _status(case, state, decided=decided, **_verdict_fields(reject))
    return Plan(statuses=_update(case, status))


def _end(
    case: Case, state: CandidateState, reason: ConditionReason, message: str, accept: AdapterReleaseSpec | None = None
) -> Plan:
    fields = _verdict_fields(accept) if accept else {}
    status = _status(case, state, decided=(True, reason, message), **fields)
    if case.status.state is state:
        return Plan(statuses=_update(case, status))
    kind = {
        CandidateState.SKIPPED: EventReason.SKIPPED,
        CandidateState.ERRORED: EventReason.ERRORED,
        CandidateState.ABORTED: EventReason.ABORTED,
    }[state]
    return Plan(statuses=_update(case, status), events=(_event(case, kind, message, warning=state is CandidateState.ERRORED),))


def _give_up(case: Case, state: CandidateState, reason: ConditionReason, entry_reason: EntryReason, message: str) -> Plan:
    """End the candidate: running Jobs stop, an opened test gets its Reject(Inconclusive)."""
    running = tuple(
        DeleteJob(job.name) for job in case.view.jobs if job.candidate_uid == case.uid and not job.finished and not job.deleting
    )
    if case.test is None:
        return Plan(running) + _end(case, state, reason, message)
    entry = entries.reject_entry(case.view, case.log, case.test, Verdict.INCONCLUSIVE, entry_reason, message, None)
    return Plan((*running, AppendEntry(entry)), events=(_event(case, EventReason.INCONCLUSIVE, message, warning=True),), requeue_seconds=0)


# ---- parts


def _not_done(case: Case, state: CandidateState, step: StepState, **fields: object) -> Plan:
    if isinstance(step, Running):
        status = _status(case, state, progress=(step.job.name, step.job.waiting), **fields)
        return Plan(statuses=_update(case, status), requeue_seconds=_time_left(case))
    if isinstance(step, Pause):
        return Plan(statuses=_update(case, _status(case, state, **fields)), requeue_seconds=step.seconds)
    if isinstance(step, Ended):
        return _ended(case, step)
    text = "the attempt ended without a result; see its log"
    return _end(case, CandidateState.ERRORED, ConditionReason.STEP_FAILED, text)


def _ended(case: Case, step: Ended) -> Plan:
    if step.diverged:
        entry = entries.diverged_entry(case.view, case.log, case.candidate, step.message)
        event = _event(case, EventReason.REJECTED, f"{EntryReason.TRAINING_DIVERGED}: {step.message}")
        return Plan((AppendEntry(entry),), events=(event,), requeue_seconds=0)
    return _end(case, step.state, step.reason, step.message)


def _started(case: Case, state: CandidateState, manifest: dict[str, object], step: Step, **fields: object) -> Plan:
    metadata = manifest["metadata"]
    name = metadata["name"] if isinstance(metadata, dict) else ""
    status = _status(case, state, progress=(str(name), None), **fields)
    event = _event(case, EventReason.STEP_STARTED, f"{step}: Job {name}")
    return Plan((CreateJob(manifest),), _update(case, status), (event,), _time_left(case))


def _common(case: Case, step: Step, attempt: int) -> dict[str, str]:
    return {
        "channel": case.view.name,
        "channel_uid": case.channel_uid,
        "candidate": case.candidate.meta.name,
        "candidate_uid": case.uid,
        "attempt": f"{step}-{attempt}",
        "data": case.view.settings.data_url,
    }


def _facts(case: Case) -> Facts:
    """The facts fixed at dequeue; an opened test holds them too, so a wiped status changes nothing."""
    if case.status.facts is not None:
        return case.status.facts
    test, live = case.test, case.log.live
    incumbent = test.gate.incumbent_digest if test and test.gate else case.log.incumbent_digest
    return Facts(
        incumbent_entry=name_of(live.spec) if live else f"{case.view.name}-000000",
        incumbent_digest=incumbent,
        policy=case.channel.gate_policy,
        policy_digest=(test.gate.policy_digest if test and test.gate else case.log.policy_digest) or "",
        started_at=test.decided_at if test else timestamp(case.view.now),
    )


def _stale(case: Case) -> bool:
    if case.test is not None:
        return case.log.served_after(case.test)
    live, facts = case.log.live, case.status.facts
    return facts is not None and live is not None and facts.incumbent_entry != name_of(live.spec)


def _time_left(case: Case) -> float:
    end = instant(_facts(case).started_at) + duration(case.spec.deadline)
    return (end - case.view.now).total_seconds()


def _window(case: Case) -> tuple[datetime, datetime] | None:
    train = case.spec.train
    if train is None or train.snapshot.digest is not None:
        return None
    if train.snapshot.last is not None:
        created = case.candidate.meta.created_at or case.view.now
        return created - duration(train.snapshot.last), created
    return instant(train.snapshot.from_ or ""), instant(train.snapshot.to or "")


def _lineage(case: Case, adapter_digest: str, snapshot_digest: str | None) -> Lineage:
    train, artifact = case.spec.train, case.spec.artifact
    return Lineage(
        parent_digest=_facts(case).incumbent_digest if train else None,
        base_digest=case.channel.base.digest,
        adapter_digest=adapter_digest,
        snapshot_digest=snapshot_digest,
        artifact_digest=artifact.digest if artifact else None,
        trainer_image=case.channel.training.pod.image or case.view.settings.place.trainer_image,
        recipe=(train.recipe or case.channel.training.recipe) if train else None,
    )


def _decision(verdict: AdapterReleaseSpec) -> DecisionStatus:
    effect = verdict.gate.effect_basis_points if verdict.gate else None
    return DecisionStatus(
        verdict=str(verdict.verdict), reason=str(verdict.reason), entry=name_of(verdict), effect_basis_points=effect
    )


def _verdict_fields(verdict: AdapterReleaseSpec) -> dict[str, object]:
    evidence = verdict.gate.evidence if verdict.gate else None
    fields: dict[str, object] = {"decision": _decision(verdict)}
    return fields | ({"evidence": evidence} if evidence else {})


def _event(case: Case, reason: EventReason, message: str, warning: bool = False) -> Event:
    return Event("AdapterCandidate", case.candidate.meta.name, case.uid, reason, message, warning)


def _update(case: Case, status: AdapterCandidateStatus) -> tuple[CandidateStatusUpdate, ...]:
    if status == case.status:
        return ()
    return (CandidateStatusUpdate(case.candidate.meta.name, case.uid, status),)


def _jobs(case: Case) -> tuple[JobStatus, ...]:
    mine = [job for job in case.view.jobs if job.candidate_uid == case.uid]
    seen = {job.name: JobStatus(name=job.name, step=job.step, attempt=job.attempt, exit_code=job.exit_code) for job in mine}
    gone = tuple(job for job in case.status.jobs if job.name not in seen)
    return (*gone, *seen.values())[-STATUS_JOBS:]


def _status(
    case: Case,
    state: CandidateState,
    *,
    decided: tuple[bool | None, ConditionReason, str] | None = None,
    progress: tuple[str, str | None] | None = None,
    **fields: object,
) -> AdapterCandidateStatus:
    kept = {name: value for name, value in fields.items() if value is not None}
    status = case.status.model_copy(
        update={"state": state, "observed_generation": case.candidate.meta.generation, "jobs": _jobs(case), **kept}
    )
    return status.model_copy(update={"conditions": _conditions(case, status, decided, progress)})


def _conditions(
    case: Case,
    status: AdapterCandidateStatus,
    decided: tuple[bool | None, ConditionReason, str] | None,
    progress: tuple[str, str | None] | None,
) -> tuple[Condition, ...]:
    now, generation = case.view.now, case.candidate.meta.generation
    conditions = case.status.conditions
    running = _running_text(progress)
    facts = {
        CandidateCondition.SNAPSHOT_READY: (status.snapshot is not None, case.spec.artifact is not None, CandidateState.SNAPSHOTTING),
        CandidateCondition.TRAINED: (status.adapter is not None, False, CandidateState.TRAINING),
        CandidateCondition.EVALUATED: (status.evidence is not None, False, CandidateState.EVALUATING),
    }
    for kind, (done, unneeded, active) in facts.items():
        reason, text = ConditionReason.WAITING, ""
        if done:
            reason = ConditionReason.DONE
        elif unneeded:
            reason, text = ConditionReason.NOT_NEEDED, "the candidate is an artifact"
        elif status.state is active or (active is CandidateState.TRAINING and status.state is CandidateState.FETCHING):
            reason, text = ConditionReason.IN_PROGRESS, running
        conditions = with_condition(conditions, kind, done, reason, text, now, generation)
    value, reason, text = decided or (False, ConditionReason.IN_PROGRESS, running)
    return with_condition(conditions, CandidateCondition.DECIDED, value is True, reason, text, now, generation)


def _running_text(progress: tuple[str, str | None] | None) -> str:
    if progress is None:
        return ""
    name, waiting = progress
    return f"Job {name}" + (f": {waiting}" if waiting else "")


def has_verdict(log: LogState, candidate: CandidateView) -> bool:
    """The log holds the candidate's Accept or Reject."""
    return log.of_candidate(candidate.meta.uid, Action.ACCEPT, Action.REJECT) is not None
