"""Gathers all that a reconcile of one channel knows into one frozen view: every read happens here, and nothing is decided."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.files import Progress
from gatevalve.contracts.kinds import AdapterCandidateSpec, AdapterCandidateStatus, AdapterChannelSpec, AdapterChannelStatus
from gatevalve.contracts.model import Contract
from gatevalve.contracts.names import LABEL_CHANNEL, entry_name
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action, EntryReason, Step
from gatevalve.decide.view import (
    CandidateView,
    ChannelView,
    EvidenceView,
    JobView,
    LogView,
    ObjectMeta,
    PolicyView,
    PoolView,
    Settings,
    View,
)
from gatevalve.engine.cache import ObjectCache, in_spec
from gatevalve.engine.jobs import instant, is_told, job_view
from gatevalve.engine.pool import PoolReader
from gatevalve.engine.release_log import ReleaseLogs
from gatevalve.io.clock import Clock
from gatevalve.io.ports import (
    ADAPTER_CANDIDATES,
    ADAPTER_CHANNELS,
    GATE_POLICIES,
    JOBS,
    PODS,
    Cluster,
    EvidenceStore,
    KubeObject,
)

log = logging.getLogger(__name__)

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
NAMED_JOBS = 20
"""Up to so many Jobs are named in the selector of their Pods; beyond that every Job's Pods are listed."""

C = TypeVar("C", bound=Contract)


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Makes views. Everything it reads from is a parameter."""

    settings: Settings
    clock: Clock
    cluster: Cluster
    cache: ObjectCache
    logs: ReleaseLogs
    pools: PoolReader
    evidence: EvidenceStore
    _told: dict[str, JobView] = field(default_factory=dict)
    _judged: dict[tuple[str, str, str], EvidenceView] = field(default_factory=dict)

    async def gather(self, name: str) -> View:
        """The view of one channel now. Raises ClusterError when the API server does not answer."""
        channel = channel_view(self.cache.get(ADAPTER_CHANNELS, name))
        entries, pool, jobs = await asyncio.gather(
            self.logs.read(name, channel.meta.uid if channel else None), self._pool(name, channel), self._jobs(name)
        )
        return View(
            now=self.clock.now(),
            settings=self.settings,
            name=name,
            channel=channel,
            policy=self._policy(channel),
            log=entries,
            candidates=self._candidates(name),
            jobs=jobs,
            pool=pool,
            evidence=await self._evidence(entries, jobs),
            progress=await self._progress(entries, jobs),
        )

    async def _pool(self, name: str, channel: ChannelView | None) -> PoolView:
        if channel is None or channel.spec is None:
            return PoolView()
        return await self.pools.read(name, channel.spec)

    def _policy(self, channel: ChannelView | None) -> PolicyView | None:
        if channel is None or channel.spec is None:
            return None
        name = channel.spec.gate_policy
        thing = self.cache.get(GATE_POLICIES, name)
        if thing is None:
            return None
        spec, problem = _parsed(GatePolicySpec, thing)
        return PolicyView(name, spec, spec.digest_of() if spec else None, problem)

    def _candidates(self, name: str) -> tuple[CandidateView, ...]:
        things = [thing for thing in self.cache.all(ADAPTER_CANDIDATES) if in_spec(thing, "channel") == name]
        return tuple(candidate_view(thing) for thing in things)

    async def _jobs(self, name: str) -> tuple[JobView, ...]:
        """Pods are read from the API server: a watch may tell of a Job's end before it tells what the Pod said."""
        jobs = [job for job in self.cache.all(JOBS) if (job["metadata"].get("labels") or {}).get(LABEL_CHANNEL) == name]
        pods = await self._pods_of([job["metadata"]["name"] for job in jobs if job["metadata"]["uid"] not in self._told])
        views = [view for job in jobs if (view := self._job(job, pods)) is not None]
        self._forget_jobs()
        return tuple(sorted(views, key=lambda view: (view.started_at, view.name)))

    def _job(self, job: KubeObject, pods: tuple[KubeObject, ...]) -> JobView | None:
        uid = job["metadata"]["uid"]
        known = self._told.get(uid)
        if known is not None:
            return replace(known, deleting="deletionTimestamp" in job["metadata"])
        view = job_view(job, pods)
        if view is not None and is_told(view):
            self._told[uid] = view
        return view

    def _forget_jobs(self) -> None:
        present = {job["metadata"]["uid"] for job in self.cache.all(JOBS)}
        for uid in self._told.keys() - present:
            del self._told[uid]

    async def _pods_of(self, jobs: list[str]) -> tuple[KubeObject, ...]:
        if not jobs:
            return ()
        selector = f"{JOB_NAME_LABEL} in ({','.join(sorted(jobs))})" if len(jobs) <= NAMED_JOBS else JOB_NAME_LABEL
        return (await self.cluster.list(PODS, selector)).items

    async def _evidence(self, log: LogView, jobs: tuple[JobView, ...]) -> EvidenceView | None:
        """Of the newest test that has no verdict yet, or sentinel that has no end, once its evaluation is done."""
        test = _open_test(log)
        if test is None:
            return None
        entry, uid, candidate = test
        measured = (job for job in jobs if job.candidate_uid == candidate and job.step in (Step.EVALUATE, Step.SENTINEL))
        done = [job for job in measured if job.finished and job.succeeded]
        return await self._read_evidence(entry, uid, done) if done else None

    async def _progress(self, log: LogView, jobs: tuple[JobView, ...]) -> Progress | None:
        """Of the evaluation that runs for the newest test without a verdict."""
        test = _open_test(log)
        if test is None:
            return None
        entry, uid, candidate = test
        running = (job for job in jobs if job.candidate_uid == candidate and job.step == Step.EVALUATE and not job.finished)
        return await self.evidence.progress(uid, entry) if any(running) else None

    async def _read_evidence(self, entry: str, uid: str, jobs: list[JobView]) -> EvidenceView | None:
        named = {(told.evidence_digest, told.pairs_digest) for job in jobs if job.termination and (told := job.termination.evidence)}
        if len(named) > 1:
            return EvidenceView(entry, problem=f"the evaluation Jobs named {len(named)} different results", forged=True)
        return await self._verified_evidence(entry, uid, *named.pop()) if named else None

    async def _verified_evidence(self, entry: str, uid: str, report: str, pairs: str) -> EvidenceView | None:
        """None while the store does not answer: that is no fault of the evidence."""
        known = self._judged.get((entry, report, pairs))
        if known is not None:
            return known
        try:
            found = await self.evidence.read(uid, entry, report, pairs)
        except (IntegrityError, ContractError) as error:
            return EvidenceView(entry, report, problem=str(error), forged=isinstance(error, IntegrityError))
        except StoreError as error:
            log.warning("%s: its evidence cannot be read yet: %s", entry, error)
            return None
        self._judged.clear()
        view = self._judged[entry, report, pairs] = EvidenceView(entry, report, found.report, found.rows)
        return view


def channel_view(thing: KubeObject | None) -> ChannelView | None:
    """An AdapterChannel as the API server holds it."""
    if thing is None:
        return None
    spec, problem = _parsed(AdapterChannelSpec, thing)
    return ChannelView(object_meta(thing), spec, parsed_status(AdapterChannelStatus, thing), problem)


def candidate_view(thing: KubeObject) -> CandidateView:
    """An AdapterCandidate as the API server holds it."""
    spec, problem = _parsed(AdapterCandidateSpec, thing)
    return CandidateView(object_meta(thing), str(thing["spec"]["channel"]), spec, parsed_status(AdapterCandidateStatus, thing), problem)


def object_meta(thing: KubeObject) -> ObjectMeta:
    """An object's identity."""
    metadata: Mapping[str, Any] = thing["metadata"]
    return ObjectMeta(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        created_at=instant(metadata["creationTimestamp"]) if metadata.get("creationTimestamp") else None,
        deleting="deletionTimestamp" in metadata,
        annotations=metadata.get("annotations") or {},
    )


def parsed_status(contract: type[C], thing: KubeObject) -> C:
    """A status; one that breaks its contract counts as empty, because a status is derived and written anew."""
    try:
        return contract.parse(thing.get("status") or {})
    except ContractError:
        return contract()


def _parsed(contract: type[C], thing: KubeObject) -> tuple[C | None, str | None]:
    try:
        return contract.parse(thing.get("spec")), None
    except ContractError as error:
        return None, str(error)


def _open_test(log: LogView) -> tuple[str, str, str] | None:
    """(entry, uid of the store's paths, uid in its Jobs) of the newest test without a verdict, or sentinel without an end."""
    specs = [view.spec for view in log.entries]
    sentinel = next((spec for spec in reversed(specs) if spec.action is Action.SENTINEL), None)
    if sentinel is not None and sentinel.sentinel is not None and sentinel.reason is EntryReason.SENTINEL_OPENED:
        return entry_name(sentinel.channel.name, sentinel.sequence), specs[0].channel.uid, sentinel.sentinel.uid
    decided = {spec.candidate.uid for spec in specs if spec.candidate and spec.action in (Action.ACCEPT, Action.REJECT)}
    for spec in reversed(specs):
        if spec.action is Action.TEST and spec.candidate and spec.candidate.uid not in decided:
            return entry_name(spec.channel.name, spec.sequence), specs[0].channel.uid, spec.candidate.uid
    return None
