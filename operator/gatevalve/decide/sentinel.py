"""Sentinels: candidates of the operator's own whose right verdict is known, so that a gate which cannot be relied on is seen.

A sentinel is two entries of the log, one before its Job and one with its end. It has items and a number of its own, names no candidate and
no adapter, and its Job cannot publish: there is nothing that a Promote entry could follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve.build.jobs import Owner, sentinel_job
from gatevalve.contracts.kinds import AdapterChannelSpec, AdapterReleaseSpec, EvidenceStatus, GateFacts, SentinelRef
from gatevalve.contracts.names import evidence_dir
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, EventReason, Step
from gatevalve.decide import entries
from gatevalve.decide.arms import arm_names
from gatevalve.decide.attempts import Done, Ended, Pause, Running, Start, StepState, of_step, shortage, step_state
from gatevalve.decide.conditions import instant
from gatevalve.decide.freeze import freeze
from gatevalve.decide.job_inputs import evaluate_input, publish_input, told_to_all
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.plan import AppendEntry, CreateJob, DeleteJob, Event, Plan
from gatevalve.decide.sentinel_schedule import due_sentinel
from gatevalve.decide.sentinel_verdict import Probed, judge_sentinel
from gatevalve.decide.view import ChannelView, JobView, View

DEADLINE_SECONDS = 6 * 3600
POD_POLL_SECONDS = 10.0
EVIDENCE_POLL_SECONDS = 1.0

EVENTS = {
    EntryReason.SENTINEL_PASSED: EventReason.SENTINEL_PASSED,
    EntryReason.SENTINEL_FAILED: EventReason.SENTINEL_FAILED,
    EntryReason.SENTINEL_INCONCLUSIVE: EventReason.SENTINEL_INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A sentinel that has begun and not ended, with what it was begun under."""

    view: View
    channel: ChannelView
    spec: AdapterChannelSpec
    log: LogState
    opened: AdapterReleaseSpec
    sentinel: SentinelRef
    gate: GateFacts
    policy: GatePolicySpec

    @property
    def entry(self) -> str:
        """The entry that began it, under which its evidence lies."""
        return name_of(self.opened)

    @property
    def seconds_left(self) -> float:
        """Until it ends without a verdict."""
        return DEADLINE_SECONDS - (self.view.now - instant(self.opened.decided_at)).total_seconds()


def open_probe(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState) -> Probe | None:
    """The sentinel that has begun and not ended."""
    opened = log.open_sentinel
    if opened is None or opened.sentinel is None or opened.gate is None:
        return None
    policy = log.policy_named(opened.gate.policy_digest)
    return Probe(view, channel, spec, log, opened, opened.sentinel, opened.gate, policy) if policy is not None else None


def begin_sentinel(view: View, log: LogState) -> Plan:
    """The entry of the sentinel that is due, if one is: a look is paid before it is taken."""
    sentinel, policy_digest = due_sentinel(log), log.policy_digest
    if sentinel is None or policy_digest is None:
        return Plan()
    gate = GateFacts(
        policy_digest=policy_digest,
        round=sentinel.number,
        test=1,
        incumbent_digest=log.incumbent_digest,
        anchor_digest=log.anchor.digest,
    )
    return Plan((AppendEntry(entries.sentinel_opened_entry(view, log, sentinel, gate)),), requeue_seconds=0)


def advance_sentinel(probe: Probe) -> Plan:
    """The next step of a sentinel; whatever keeps it from its evidence for good ends it, and says nothing of the gate."""
    if (problem := _given_up(probe)) is not None:
        return Plan(_running(probe)) + _ended(probe, _inconclusive(problem), None)
    state = attempts(probe)
    if isinstance(state, Start):
        return Plan((CreateJob(_job(probe, state.attempt)),), requeue_seconds=_next_look(probe))
    if isinstance(state, Running):
        return Plan(requeue_seconds=_next_look(probe))
    if isinstance(state, Pause):
        return Plan(requeue_seconds=state.seconds)
    if isinstance(state, Done) and state.termination.evidence is not None:
        return _judged(probe, state)
    return _ended(probe, _inconclusive(_said(state)), None)


def attempts(probe: Probe) -> StepState:
    """What the attempts of a sentinel ask for."""
    return step_state(_jobs(probe), probe.view.now)


def freeze_after_failure(view: View, channel: ChannelView, log: LogState) -> Plan:
    """The Freeze entry that a failed sentinel asks for: one for each failure, so that lifting it is good for one failure too."""
    failed = next((entry for entry in reversed(log.sentinels) if entry.reason is EntryReason.SENTINEL_FAILED), None)
    answered = max((entry.sequence for entry in log.freezes(EntryReason.SENTINEL_FAILED)), default=-1)
    if failed is None or failed.sequence < answered:
        return Plan()
    return freeze(view, channel, log, EntryReason.SENTINEL_FAILED, f"{name_of(failed)}: {failed.message}")


# ---- its Job


def _job(probe: Probe, attempt: int) -> dict[str, object]:
    view, spec, gate, sentinel = probe.view, probe.spec, probe.gate, probe.sentinel
    told = told_to_all(view, probe.log.store_uid, sentinel.uid, sentinel.uid, Step.SENTINEL, attempt)
    digest = sentinel.digest_of()
    publish = publish_input(told, spec, gate, digest, sentinel=sentinel)
    evaluate = evaluate_input(told, view, spec, probe.opened, gate, probe.policy, digest, _arms(probe), sentinel=sentinel)
    owner = Owner(view.name, probe.channel.meta.uid, view.name, sentinel)
    return sentinel_job(view.settings.place, owner, spec, attempt, publish, evaluate, int(probe.seconds_left))


def _arms(probe: Probe) -> dict[str, str]:
    """Of the incumbent against itself, the candidate is the incumbent's own model; it is asked with other seeds."""
    gate, base = probe.gate, probe.spec.base.name
    arms = arm_names(base, probe.sentinel.digest_of(), gate.incumbent_digest, gate.anchor_digest)
    return {**arms, "candidate": arms["incumbent"]} if probe.sentinel.kind == "Same" else arms


def _next_look(probe: Probe) -> float:
    """No watch tells why the Pod of a Job does not start."""
    return min(probe.seconds_left, POD_POLL_SECONDS)


def _running(probe: Probe) -> tuple[DeleteJob, ...]:
    return tuple(DeleteJob(job.name) for job in _jobs(probe) if not job.finished and not job.deleting)


def _jobs(probe: Probe) -> tuple[JobView, ...]:
    return of_step(probe.view.jobs, probe.sentinel.uid, Step.SENTINEL)


# ---- its end


def _given_up(probe: Probe) -> str | None:
    if probe.log.served_after(probe.opened):
        return "the incumbent changed"
    if probe.log.policy_changed_after(probe.opened):
        return "another policy came into force"
    if probe.seconds_left <= 0:
        return f"no verdict within {DEADLINE_SECONDS // 3600} h"
    return shortage(_jobs(probe))


def _said(state: StepState) -> str:
    return state.message if isinstance(state, Ended) else "its evaluation ended without naming its evidence; see its log"


def _judged(probe: Probe, done: Done) -> Plan:
    result, evidence = done.termination.evidence, probe.view.evidence
    if result is None or evidence is None or evidence.test_entry != probe.entry:
        return Plan(requeue_seconds=EVIDENCE_POLL_SECONDS)
    readable = evidence.problem is None and evidence.report is not None
    where = EvidenceStatus(uri=evidence_dir(probe.log.store_uid, probe.entry), digest=result.evidence_digest) if readable else None
    return _ended(probe, judge_sentinel(probe.log, probe.opened, probe.spec.base.digest, evidence, result), where)


def _inconclusive(message: str) -> Probed:
    return Probed(EntryReason.SENTINEL_INCONCLUSIVE, message)


def _ended(probe: Probe, probed: Probed, evidence: EvidenceStatus | None) -> Plan:
    entry = entries.sentinel_ended_entry(probe.view, probe.log, probe.opened, probed.verdict, probed.reason, probed.message, evidence)
    meta, text = probe.channel.meta, f"{name_of(entry)}: sentinel {probe.sentinel.number} ({probe.sentinel.kind}): {probed.message}"
    event = Event(
        "AdapterChannel", meta.name, meta.uid, EVENTS[probed.reason], text, warning=probed.reason is not EntryReason.SENTINEL_PASSED
    )
    return Plan((AppendEntry(entry),), events=(event,), requeue_seconds=0)
