"""The steps before a verdict: draw, snapshot, train or fetch, test, evaluate, judge."""

from __future__ import annotations

from typing import Any

from gatevalve.build.jobs import draw_job, engine_digest, evaluate_job, fetch_job, snapshot_job, train_job
from gatevalve.contracts.jobs import DrawInput, FetchInput, SnapshotInput, TrainInput
from gatevalve.contracts.kinds import (
    AdapterReleaseSpec,
    AdapterStatus,
    Artifact,
    EvidenceStatus,
    GateFacts,
    Lineage,
    SnapshotStatus,
    Train,
)
from gatevalve.contracts.names import adapter_name, evidence_dir
from gatevalve.contracts.reasons import CandidateCondition, CandidateState, ConditionReason, EntryReason, EventReason, Step, Verdict
from gatevalve.contracts.recipes import effective_parameters
from gatevalve.decide import entries
from gatevalve.decide.arms import arm_names
from gatevalve.decide.attempts import Done, Ended, Pause, Running, Start, StepState, of_step
from gatevalve.decide.candidate_status import Found, made_by, status_update
from gatevalve.decide.case import Case
from gatevalve.decide.conditions import condition_of
from gatevalve.decide.ends import ended, last_told
from gatevalve.decide.holds import no_test_because
from gatevalve.decide.job_inputs import Told, evaluate_input, publish_input, told_to_all
from gatevalve.decide.judgement import judge_test
from gatevalve.decide.log import name_of
from gatevalve.decide.plan import AppendEntry, CreateJob, DeleteJob, Plan
from gatevalve.decide.progress import how_far
from gatevalve.decide.supply import USED_UP
from gatevalve.decide.view import JobView

SEGMENT_WAITS = 4
CLOSE_SLACK_SECONDS = 10
EVIDENCE_POLL_SECONDS = 1.0
POD_POLL_SECONDS = 10.0


def next_step(case: Case) -> Plan:
    """The step that a candidate in flight asks for now."""
    if case.test is not None:
        return _evaluate(case, case.test)
    if (waiting := _draw(case)) is not None:
        return waiting
    if case.spec.artifact is not None:
        return _fetch(case, case.spec.artifact)
    if case.spec.train is not None:
        return _snapshot(case, case.spec.train)
    return Plan()


def _draw(case: Case) -> Plan | None:
    """Nothing is trained and no test is paid before items and arms of the test were found; None once they were."""
    due = case.due
    if due is None:
        decided = (False, ConditionReason.ITEM_SUPPLY, USED_UP)
        return Plan(statuses=status_update(case, CandidateState.DRAWING, decided=decided), requeue_seconds=case.seconds_left)
    state = case.attempts(Step.DRAW)
    if isinstance(state, Done) and (drawn := state.termination.round) is not None:
        if drawn.round == due.round:
            return None
        state = Start(state.job.attempt + 1)  # the policy in force has changed since
    if isinstance(state, Start):
        return _drawing(case, due.round, state)
    return _not_done(case, CandidateState.DRAWING, state)


def _drawing(case: Case, number: int, start: Start) -> Plan:
    policy, policy_digest = case.log.policy, case.log.policy_digest
    if policy is None or policy_digest is None:
        return Plan()
    job = DrawInput(
        **_common(case, Step.DRAW, start.attempt),
        sealed=case.view.settings.sealed_url,
        round=number,
        policy=policy,
        policy_digest=policy_digest,
        base=case.channel.base,
        incumbent_digest=case.facts.incumbent_digest,
        anchor_digest=case.log.anchor.digest,
    )
    manifest = draw_job(case.view.settings.place, case.owner, start.attempt, job, int(case.seconds_left))
    plan = _started(case, CandidateState.DRAWING, manifest, start)
    # A candidate may wait for days: of its attempts the newest alone says how long the next one is to wait.
    earlier = of_step(case.view.jobs, case.uid, Step.DRAW)[:-1]
    return Plan(tuple(DeleteJob(job.name) for job in earlier if not job.deleting)) + plan


def _snapshot(case: Case, train: Train) -> Plan:
    if train.snapshot.digest is not None:
        return _train(case, train, SnapshotStatus(digest=train.snapshot.digest, rows=0, rewarded=0))
    state = case.attempts(Step.SNAPSHOT)
    if isinstance(state, Done) and state.termination.snapshot is not None:
        result = state.termination.snapshot
        return _train(case, train, SnapshotStatus(digest=result.snapshot_digest, rows=result.rows, rewarded=result.rewarded))
    if isinstance(state, Start):
        facts = case.facts
        job = SnapshotInput(
            **_common(case, Step.SNAPSHOT, state.attempt),
            window_from=facts.window_from or facts.started_at,
            window_to=facts.window_to or facts.started_at,
            incumbent_digest=facts.incumbent_digest,
            base_digest=case.channel.base.digest,
            close_wait_seconds=case.channel.capture.segment_seconds * SEGMENT_WAITS + CLOSE_SLACK_SECONDS,
        )
        manifest = snapshot_job(case.view.settings.place, case.owner, state.attempt, job, int(case.seconds_left))
        return _started(case, CandidateState.SNAPSHOTTING, manifest, state)
    return _not_done(case, CandidateState.SNAPSHOTTING, state)


def _train(case: Case, train: Train, snapshot: SnapshotStatus) -> Plan:
    state, recipe = case.attempts(Step.TRAIN), case.recipe
    if isinstance(state, Done) and state.termination.adapter is not None:
        lineage = case.lineage(state.termination.adapter.adapter_digest, snapshot.digest)
        return _open_test(case, state, lineage, snapshot)
    if isinstance(state, Start) and recipe is not None:
        job = TrainInput(
            **_common(case, Step.TRAIN, state.attempt),
            base=case.channel.base,
            adapter=case.channel.adapter,
            recipe=recipe,
            parameters=effective_parameters(recipe, case.channel.training.parameters, train.parameters),
            seed=train.seed,
            snapshot_digest=snapshot.digest,
            parent_digest=case.facts.incumbent_digest,
            token_budget_divisor=state.token_budget_divisor,
        )
        manifest = train_job(case.view.settings.place, case.owner, case.channel, state.attempt, job, int(case.seconds_left))
        return _started(case, CandidateState.TRAINING, manifest, state, Found(snapshot=snapshot))
    return _not_done(case, CandidateState.TRAINING, state, Found(snapshot=snapshot))


def _fetch(case: Case, artifact: Artifact) -> Plan:
    state = case.attempts(Step.FETCH)
    if isinstance(state, Done) and state.termination.adapter is not None:
        return _open_test(case, state, case.lineage(state.termination.adapter.adapter_digest, None), None)
    if isinstance(state, Start):
        job = FetchInput(
            **_common(case, Step.FETCH, state.attempt), base=case.channel.base, adapter=case.channel.adapter, artifact=artifact
        )
        manifest = fetch_job(case.view.settings.place, case.owner, case.channel, state.attempt, job, int(case.seconds_left))
        return _started(case, CandidateState.FETCHING, manifest, state)
    return _not_done(case, CandidateState.FETCHING, state)


def _open_test(case: Case, done: Done, lineage: Lineage, snapshot: SnapshotStatus | None) -> Plan:
    """A look is paid before it is taken: the Test entry comes before the evaluation Job."""
    policy, policy_digest, incumbent = case.log.policy, case.log.policy_digest, case.facts.incumbent_digest
    if policy is None or policy_digest is None or lineage.adapter_digest is None:
        return Plan()
    if case.recipe is not None and done.job.parent_digest != (incumbent or ""):
        return ended(case, CandidateState.ABORTED, ConditionReason.STALE, "it was trained from another incumbent; apply a new candidate")
    if lineage.adapter_digest in case.log.quarantine:
        text = (
            f"adapter {lineage.adapter_digest} was rejected or rolled back before and gets no second test; apply a candidate with another"
        )
        return ended(case, CandidateState.ERRORED, ConditionReason.QUARANTINED, text)
    due = case.due
    if due is None:
        return Plan()
    if (held := no_test_because(case.log)) is not None:
        state = CandidateState.TRAINING if done.job.step == Step.TRAIN else CandidateState.FETCHING
        statuses = status_update(case, state, Found(snapshot=snapshot), decided=(False, *held))
        return Plan(statuses=statuses, requeue_seconds=case.seconds_left)
    number, test = due
    anchor = case.log.anchor.digest
    gate = GateFacts(policy_digest=policy_digest, round=number, test=test, incumbent_digest=incumbent, anchor_digest=anchor)
    entry = entries.test_entry(case.view, case.log, case.candidate, gate, lineage)
    adapter = AdapterStatus(
        name=adapter_name(case.view.name, lineage.adapter_digest),
        digest=lineage.adapter_digest,
        attempt=f"{done.job.step}-{done.job.attempt}",
    )
    statuses = status_update(case, CandidateState.EVALUATING, Found(snapshot=snapshot, adapter=adapter, test=name_of(entry)))
    event = case.event(EventReason.TEST_OPENED, f"test {test} of round {number} is opened as {name_of(entry)}")
    return Plan((AppendEntry(entry),), statuses, (event,), 0)


def _evaluate(case: Case, test: AdapterReleaseSpec) -> Plan:
    state, found = case.attempts(Step.EVALUATE), Found(test=name_of(test))
    if isinstance(state, Done) and state.termination.evidence is not None:
        return _judge(case, test, state)
    if isinstance(state, Start):
        manifest = _evaluation(case, test, state.attempt)
        if manifest is None:
            return _no_evidence(case, test, "the attempt that made the adapter is gone; apply a new candidate")
        return _started(case, CandidateState.EVALUATING, manifest, state, found)
    if isinstance(state, Ended):
        return _no_evidence(case, test, _said(case, state))
    if isinstance(state, Done):
        return _no_evidence(case, test, "the evaluation ended without naming its evidence; see its log")
    return _not_done(case, CandidateState.EVALUATING, state, found)


def _evaluation(case: Case, test: AdapterReleaseSpec, attempt: int) -> dict[str, Any] | None:
    gate, adapter = test.gate, test.lineage.adapter_digest if test.lineage else None
    policy = case.log.policy_named(gate.policy_digest) if gate else None
    made_in = made_by(case)
    if gate is None or adapter is None or policy is None or made_in is None or test.digest is None:
        return None
    view, spec, place = case.view, case.channel, case.view.settings.place
    told = _common(case, Step.EVALUATE, attempt)
    publish = publish_input(told, spec, gate, adapter, produced_by=made_in)
    arms = arm_names(spec.base.name, adapter, gate.incumbent_digest, gate.anchor_digest)
    job = evaluate_input(told, view, spec, test, gate, policy, adapter, arms, engine_digest=engine_digest(place, spec))
    return evaluate_job(place, case.owner, spec, attempt, publish, job, int(case.seconds_left))


def _judge(case: Case, test: AdapterReleaseSpec, done: Done) -> Plan:
    result, evidence = done.termination.evidence, case.view.evidence
    if result is None or evidence is None or evidence.test_entry != name_of(test):
        return Plan(requeue_seconds=EVIDENCE_POLL_SECONDS)
    where = EvidenceStatus(uri=evidence_dir(case.channel_uid, name_of(test)), digest=result.evidence_digest)
    judged = judge_test(case.log, test, case.channel.base.digest, evidence, result)
    if judged.verdict is Verdict.ACCEPTED:
        entry = entries.accept_entry(case.view, case.log, test, where, judged.effect_basis_points)
        event = case.event(EventReason.ACCEPTED, f"accepted in {name_of(entry)}")
    else:
        entry = entries.reject_entry(case.view, case.log, test, judged.verdict, judged.reason, judged.message, where)
        kind = EventReason.REJECTED if judged.verdict is Verdict.REJECTED else EventReason.INCONCLUSIVE
        event = case.event(kind, f"{judged.reason}: {judged.message}", warning=judged.verdict is Verdict.INCONCLUSIVE)
    statuses = status_update(case, CandidateState.EVALUATING, Found(test=name_of(test), evidence=where))
    return Plan((AppendEntry(entry),), statuses, (event,), 0)


def _no_evidence(case: Case, test: AdapterReleaseSpec, message: str) -> Plan:
    text = f"no evidence: {message}"
    entry = entries.reject_entry(case.view, case.log, test, Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_FAILED, text, None)
    return Plan((AppendEntry(entry),), events=(case.event(EventReason.INCONCLUSIVE, text, warning=True),), requeue_seconds=0)


def _not_done(case: Case, state: CandidateState, step: StepState, found: Found | None = None) -> Plan:
    if isinstance(step, Running):
        statuses = status_update(case, state, found, running=_seen_of(case, step.job))
        return Plan(statuses=statuses, requeue_seconds=_next_look(case))
    if isinstance(step, Pause):
        return Plan(statuses=status_update(case, state, found), requeue_seconds=step.seconds)
    if isinstance(step, Ended):
        return _ended(case, step)
    return ended(case, CandidateState.ERRORED, ConditionReason.STEP_FAILED, "the attempt ended without a result; see its log")


def _seen_of(case: Case, job: JobView) -> str:
    """What a running attempt waits for; a Pod that is gone with its deadline leaves what it said last."""
    name = f"Job {job.name}"
    if job.waiting:
        return f"{name}: {job.waiting}"
    if job.step == Step.EVALUATE and case.view.progress is not None:
        return f"{name}: {how_far(case.view.progress)}"
    told = condition_of(case.status.conditions, CandidateCondition.DECIDED)
    return told.message if told is not None and not job.has_started and told.message.startswith(f"{name}: ") else name


def _ended(case: Case, step: Ended) -> Plan:
    if not step.diverged:
        return ended(case, step.state, step.reason, _said(case, step))
    entry = entries.diverged_entry(case.view, case.log, case.candidate, step.message)
    event = case.event(EventReason.REJECTED, f"{EntryReason.TRAINING_DIVERGED}: {step.message}")
    return Plan((AppendEntry(entry),), events=(event,), requeue_seconds=0)


def _said(case: Case, step: Ended) -> str:
    return step.message + (last_told(case) if step.reason is ConditionReason.DEADLINE_EXCEEDED else "")


def _started(case: Case, state: CandidateState, manifest: dict[str, Any], start: Start, found: Found | None = None) -> Plan:
    name = manifest["metadata"]["name"]
    statuses = status_update(case, state, found, running=f"Job {name}")
    failed = (case.event(EventReason.STEP_FAILED, f"{start.after}; trying again", warning=True),) if start.after else ()
    return Plan((CreateJob(manifest),), statuses, (*failed, case.event(EventReason.STEP_STARTED, f"Job {name}")), _next_look(case))


def _next_look(case: Case) -> float:
    """No watch tells why the Pod of a Job does not start."""
    return min(case.seconds_left, POD_POLL_SECONDS)


def _common(case: Case, step: Step, attempt: int) -> Told:
    return told_to_all(case.view, case.channel_uid, case.candidate.meta.name, case.uid, step, attempt)
