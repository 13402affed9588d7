"""Rollout: make every pod of the pool answer the alias from the live entry; preload, verify, commit, flip, settle."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gatevalve.contracts.kinds import AdapterChannelSpec, AdapterReleaseStatus, PodFailure, PodsStatus
from gatevalve.contracts.reasons import Action, ChannelCondition, ConditionReason, EventReason, PodReason
from gatevalve.contracts.serving import AdapterState, ChannelDocument
from gatevalve.decide.conditions import condition_of, instant, timestamp, with_condition
from gatevalve.decide.documents import committed_document, preload_document, with_revision
from gatevalve.decide.log import LogState, name_of, served_digest
from gatevalve.decide.plan import AnnotatePod, CommitDocument, Event, Plan, PushDocument, ReleaseStatusUpdate
from gatevalve.decide.restore import commit_of, commit_where_it_leads_elsewhere, has_served
from gatevalve.decide.view import EntryView, PodView, View

POLL_SECONDS = 2.0
MIN_LORAS = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the rollout of the live entry stands; `reason` and `message` explain when it does not serve everywhere."""

    live: EntryView
    serving: bool
    settled: bool
    pods: PodsStatus
    failures: tuple[PodFailure, ...]
    reason: ConditionReason
    message: str
    blocked: bool = False


def standing(view: View, spec: AdapterChannelSpec, log: LogState) -> Standing:
    """Where the live entry stands, from what the pods report."""
    live = _live(log)
    reachable = _reachable(view)
    failures = _failures(view, spec, live)
    answering = [pod for pod in reachable if _answers(pod, live)]
    failed = {failure.pod for failure in failures}
    counted = [pod for pod in reachable if pod.name not in failed]
    enough = bool(answering) and len(answering) * 100 >= spec.serving.min_verified_percent * len(reachable)
    serving = enough and len(answering) == len(counted)
    pods = PodsStatus(
        desired=len([pod for pod in view.pool.pods if not pod.terminating]),
        loaded=len(answering),
        verified=sum(_verified(pod, spec, live) for pod in reachable),
        failed=len(failed),
    )
    block = _blocked(view, spec, reachable)
    reason, message = block or _explain(view, spec, live, reachable, failures, serving)
    return Standing(live, serving, serving or live.status.live_since is not None, pods, failures, reason, message, block is not None)


def decide_rollout(view: View, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan:
    """The next step of the rollout: nothing when every reachable pod serves the live entry from the committed document."""
    document = with_revision(committed_document(view, spec, log), view.pool)
    committed = _is_committed(view, document)
    if not committed and not has_served(now.live):
        return _preload(view, spec, log, now, document)
    if not _has_the_base(view, spec, now):
        return Plan(statuses=_release_status(view, now), requeue_seconds=POLL_SECONDS)
    actions: list[CommitDocument | PushDocument | AnnotatePod] = []
    if not committed:
        actions.append(commit_of(view, spec, document))
    digest = document.digest_of()
    behind = [pod for pod in _reachable(view) if pod.report and pod.report.document_digest != digest]
    actions += [PushDocument(pod.name, document) for pod in behind]
    actions += _annotations(view, now.live)
    return Plan(tuple(actions), _release_status(view, now), _live_event(view, now), POLL_SECONDS if behind or not now.serving else None)


def rollout_failed(view: View, spec: AdapterChannelSpec, now: Standing) -> bool:
    """A promotion has not settled in time although it was being rolled out and a pod was reachable all the while."""
    since = [pod.ready_since for pod in _reachable(view) if pod.ready_since is not None]
    begun = condition_of(now.live.status.conditions, ChannelCondition.SERVING)
    if now.live.spec.action is not Action.PROMOTE or now.settled or not since or not now.live.exported or begun is None:
        return False
    start = max(instant(begun.last_transition_time), min(since), view.settings.started_at)
    return view.now - start > timedelta(seconds=spec.serving.rollout_seconds)


def _preload(view: View, spec: AdapterChannelSpec, log: LogState, now: Standing, committed: ChannelDocument) -> Plan:
    """Only a promotion that has not gone live waits for verification, before `committed` is written; a way back goes at once.

    Until then the ConfigMap leads to what served before: where it no longer does, a pod that starts would serve nothing.
    """
    reachable = _reachable(view)
    verified = [pod for pod in reachable if _verified(pod, spec, now.live)]
    if verified and len(verified) * 100 >= spec.serving.min_verified_percent * len(reachable):
        pushed = (PushDocument(pod.name, committed) for pod in reachable)
        return Plan((commit_of(view, spec, committed), *pushed), requeue_seconds=0)
    document = with_revision(preload_document(view, spec, log), view.pool)
    failed = {failure.pod for failure in now.failures}
    waiting = [pod for pod in reachable if not _verified(pod, spec, now.live) and pod.name not in failed]
    chosen = waiting if verified else _first(waiting, document)
    pushes = tuple(PushDocument(pod.name, document) for pod in chosen if pod.report and pod.report.document_digest != document.digest_of())
    restored = commit_where_it_leads_elsewhere(view, spec, document)
    return Plan((*restored, *pushes), _release_status(view, now), (), POLL_SECONDS)


def _first(waiting: list[PodView], document: ChannelDocument) -> list[PodView]:
    """One pod goes first: the one that already has the document, otherwise the first by name."""
    digest = document.digest_of()
    started = [pod for pod in waiting if pod.report and pod.report.document_digest == digest]
    return started[:1] or waiting[:1]


def _has_the_base(view: View, spec: AdapterChannelSpec, now: Standing) -> bool:
    """A channel's first document waits for a pod that serves its base: a mistyped digest must not keep restarted pods from being ready."""
    opening = now.live.spec.action is Action.OPEN and now.live.status.live_since is None and view.pool.document is None
    return not opening or any(_verified(pod, spec, now.live) for pod in _reachable(view))


def _is_committed(view: View, document: ChannelDocument) -> bool:
    """The ConfigMap holds this document, and not an older revision of it that somebody put back."""
    return view.pool.document is not None and view.pool.document.document == document


def _live(log: LogState) -> EntryView:
    if log.live is None:
        raise ValueError("a channel without an Open entry has no rollout")
    return log.live


def _reachable(view: View) -> list[PodView]:
    return sorted((pod for pod in view.pool.pods if pod.reachable), key=lambda pod: pod.name)


def _answers(pod: PodView, live: EntryView) -> bool:
    return pod.report is not None and pod.report.committed and pod.answering_entry == name_of(live.spec)


def _verified(pod: PodView, spec: AdapterChannelSpec, live: EntryView) -> bool:
    if pod.report is None or pod.report.base_digest != spec.base.digest:
        return False
    digest = served_digest(live)
    return digest is None or any(a.digest == digest and a.state is AdapterState.VERIFIED for a in pod.report.adapters)


def _failures(view: View, spec: AdapterChannelSpec, live: EntryView) -> tuple[PodFailure, ...]:
    found = [failure for pod in _reachable(view) if (failure := _failure(pod, spec, live)) is not None]
    return tuple(found[:10])


def _failure(pod: PodView, spec: AdapterChannelSpec, live: EntryView) -> PodFailure | None:
    report = pod.report
    if report is None:
        return None
    if report.base_digest is not None and report.base_digest != spec.base.digest:
        return PodFailure(pod=pod.name, reason=PodReason.BASE_MISMATCH, message=f"the pod serves {report.base_name} {report.base_digest}")
    for adapter in report.adapters:
        if adapter.digest == served_digest(live) and adapter.state is AdapterState.FAILED:
            return PodFailure(pod=pod.name, reason=adapter.reason or PodReason.LOAD_FAILED, message=adapter.message or "")
    if report.reason is not None and not _answers(pod, live) and tuple(report.revision)[:1] == (live.spec.sequence,):
        return PodFailure(pod=pod.name, reason=report.reason, message=report.message or "")
    return None


def _blocked(view: View, spec: AdapterChannelSpec, reachable: list[PodView]) -> tuple[ConditionReason, str] | None:
    """What no rollout can mend, told before anything is tried."""
    if view.pool.alias_owner is not None:
        return (
            ConditionReason.ALIAS_CONFLICT,
            f"channel {view.pool.alias_owner} holds alias {spec.alias} on pool {spec.serving.pool}; see docs/operations.md",
        )
    for pod in reachable:
        limits = pod.report.limits if pod.report else None
        if limits is None:
            continue
        if not limits.runtime_lora:
            return ConditionReason.RUNTIME_LORA_DISABLED, f"{pod.name}: set VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
        if limits.max_lora_rank < spec.adapter.rank:
            return (
                ConditionReason.CAPACITY_EXCEEDED,
                f"{pod.name}: --max-lora-rank {limits.max_lora_rank} is below spec.adapter.rank {spec.adapter.rank}",
            )
        if min(limits.max_loras, limits.max_cpu_loras) < MIN_LORAS:
            return (
                ConditionReason.CAPACITY_EXCEEDED,
                f"{pod.name}: --max-loras and --max-cpu-loras must be at least {MIN_LORAS} (live, warm, preload)",
            )
    return None


def _explain(
    view: View, spec: AdapterChannelSpec, live: EntryView, reachable: list[PodView], failures: tuple[PodFailure, ...], serving: bool
) -> tuple[ConditionReason, str]:
    entry = name_of(live.spec)
    if not view.pool.pods:
        return ConditionReason.NO_PODS, f"no pod carries the label gatevalve.dev/pool={spec.serving.pool}; waiting for one"
    if not reachable:
        errors = sorted({pod.error for pod in view.pool.pods if pod.error})
        return ConditionReason.NO_REACHABLE_PODS, "no pod of the pool answers; waiting" + (f": {errors[0]}" if errors else "")
    if failures:
        first = failures[0]
        return (
            ConditionReason.PODS_DEGRADED,
            f"{len(failures)} of {len(reachable)} pods failed {entry}; {first.pod}: {first.reason}: {first.message}",
        )
    if serving:
        return ConditionReason.AS_EXPECTED, f"{len(reachable)} pods answer from {entry}"
    return ConditionReason.ROLLING_OUT, f"{entry} is being rolled out to {len(reachable)} pods"


def _annotations(view: View, live: EntryView) -> list[AnnotatePod]:
    key, entry = f"gatevalve.dev/{view.name}", name_of(live.spec)
    return [
        AnnotatePod(pod.name, view.name, entry) for pod in _reachable(view) if _answers(pod, live) and pod.annotations.get(key) != entry
    ]


def _release_status(view: View, now: Standing) -> tuple[ReleaseStatusUpdate, ...]:
    old = now.live.status
    conditions = with_condition(old.conditions, ChannelCondition.SERVING, now.serving, now.reason, now.message, view.now, 1)
    since = old.live_since or (timestamp(view.now) if now.serving else None)
    new = AdapterReleaseStatus(
        conditions=conditions,
        pods=now.pods,
        failures=now.failures,
        timings=old.timings or (view.pool.timings if now.serving else None),
        live_since=since,
        exported=now.live.exported,
    )
    return (ReleaseStatusUpdate(name_of(now.live.spec), new),) if new != old else ()


def _live_event(view: View, now: Standing) -> tuple[Event, ...]:
    if view.channel is None or not now.serving or now.live.status.live_since is not None:
        return ()
    meta = view.channel.meta
    return (Event("AdapterChannel", meta.name, meta.uid, EventReason.LIVE, f"{name_of(now.live.spec)} is live on {now.pods.loaded} pods"),)
