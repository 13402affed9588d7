"""The engine put together: watch events and resyncs feed the queue, and each key is gathered, decided and executed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from gatevalve.contracts import metrics as contracts
from gatevalve.contracts.errors import ClusterError
from gatevalve.decide.plan import Plan
from gatevalve.decide.view import Settings, View
from gatevalve.engine.answers import AliasAnswers
from gatevalve.engine.append import Appender
from gatevalve.engine.audit import Auditor, Findings, LogAudit
from gatevalve.engine.cache import WATCHED, ObjectCache
from gatevalve.engine.events import EventRecorder
from gatevalve.engine.execute import Executor
from gatevalve.engine.gather import Gatherer
from gatevalve.engine.metrics import Metrics
from gatevalve.engine.pool import PoolReader, PoolReaderPorts
from gatevalve.engine.queue import KeyQueue
from gatevalve.engine.release_log import ExternalLog, ReleaseLogs
from gatevalve.engine.statuses import StatusWriter
from gatevalve.engine.timings import RolloutTimes
from gatevalve.engine.watch_pods import PodWatchers
from gatevalve.io.clock import Clock
from gatevalve.io.ports import ADAPTER_CHANNELS, Cluster, EvidenceStore, KubeObject, LogStore, Resource, ServingPods
from gatevalve.io.signing import Signer

log = logging.getLogger(__name__)

RESYNC_SECONDS = 300.0
RESYNC_RETRY_SECONDS = 10.0
START_TRIES, START_PAUSE_SECONDS = 30, 2.0
STALLED_SECONDS = 120.0
"""A key that has been due or worked on for so long means that reconciling stalls."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The world outside."""

    cluster: Cluster
    serving: ServingPods
    log_store: LogStore
    evidence: EvidenceStore
    signer: Signer
    clock: Clock


class Engine:
    """Reconciles every channel of a namespace with a given decision."""

    def __init__(self, ports: Ports, settings: Settings, decide: Callable[[View], Plan], registry: CollectorRegistry) -> None:
        """Put the parts together; nothing is read or started yet."""
        clock, key = ports.clock, ports.signer.verify_key
        self._ports, self._decide = ports, decide
        self.cache, self._times = ObjectCache(), RolloutTimes()
        self.metrics = Metrics(registry, self.cache)
        self.queue = KeyQueue(self.reconcile, clock, on_error=self._failed)
        self._external = ExternalLog(ports.log_store)
        self._answers = AliasAnswers(ports.serving, clock, self._answered)
        self._watchers = PodWatchers(ports.serving, clock, self.queue.add)
        self._logs = logs = ReleaseLogs(ports.cluster, self.cache, self._external, key)
        audit = LogAudit(ports.cluster, ports.log_store, ports.evidence, key, settings.operator_version)
        self._auditor = Auditor(audit, clock, self._to_audit, self._audited)
        pools = PoolReader(PoolReaderPorts(ports.cluster, ports.serving, self.cache, self._answers, self._times, key, clock))
        self._gatherer = Gatherer(settings, clock, ports.cluster, self.cache, logs, pools, ports.evidence)
        self._executor = Executor(
            cluster=ports.cluster,
            serving=ports.serving,
            cache=self.cache,
            clock=clock,
            signer=ports.signer,
            appender=Appender(ports.cluster, self.cache, logs, ports.signer, self._external),
            statuses=StatusWriter(ports.cluster, self.cache, self.metrics.written),
            events=EventRecorder(ports.cluster, clock, settings.namespace),
            times=self._times,
            appended=self.metrics.appended,
        )
        self._synced_at: float | None = None

    def saw(self, resource: Resource, kind: str | None, thing: KubeObject) -> None:
        """A watch told of an object: added, modified, deleted, or listed (no kind). Channels it concerns, or concerned before, are due."""
        before = self.cache.get(resource, thing["metadata"]["name"])
        if kind == "DELETED":
            self.cache.drop(resource, thing)
        elif not self.cache.put(resource, thing):
            return
        for known in (thing, before):
            for channel in self.cache.channels_of(resource, known) if known else ():
                self.queue.add(channel)

    async def resync(self) -> None:
        """Read everything anew from the API server, the external log included, and look at every channel. Raises ClusterError."""
        listings = await asyncio.gather(*(self._ports.cluster.list(resource, labels) for resource, labels in WATCHED.items()))
        for resource, listing in zip(WATCHED, listings, strict=True):
            self.cache.replace(resource, listing)
        self._external.forget()
        self._synced_at = self._ports.clock.monotonic()
        for channel in self.cache.channel_names():
            self.queue.add(channel)

    async def start(self) -> None:
        """The first resync, tried for a minute: definitions may just have been installed. Raises ClusterError."""
        for _ in range(START_TRIES - 1):
            try:
                return await self.resync()
            except ClusterError as error:
                log.warning("cannot read everything yet, trying again in %.0f s: %s", START_PAUSE_SECONDS, error)
                await self._ports.clock.sleep(START_PAUSE_SECONDS)
        return await self.resync()

    async def run(self) -> None:
        """Work until cancelled. `start` or `resync` must have succeeded once before."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run())
                group.create_task(self._resync_now_and_then())
                group.create_task(self._auditor.run())
        finally:
            await self._watchers.close()
            await self._answers.close()

    async def reconcile(self, channel: str) -> float | None:
        """One reconcile; answers when to look again."""
        started = self._ports.clock.monotonic()
        view = await self._gatherer.gather(channel)
        spec = view.channel.spec if view.channel else None
        self._watchers.follow(channel, spec.serving.port if spec else 0, view.pool.pods)
        plan = self._decide(view)
        await self._executor.execute(plan, view)
        self.metrics.observed(view, plan)
        self.metrics.histogram(contracts.RECONCILE_SECONDS).observe(self._ports.clock.monotonic() - started)
        self.metrics.gauge(contracts.LAST_RECONCILE).set(self._ports.clock.now().timestamp())
        return plan.requeue_seconds

    def is_ready(self) -> bool:
        """Everything was read once."""
        return self._synced_at is not None

    def stalled(self) -> str | None:
        """Why reconciling stalls, or None."""
        waited = self.queue.longest_wait()
        if waited > STALLED_SECONDS:
            return f"a channel has waited or been worked on for {waited:.0f} s"
        if self._synced_at is not None and self._ports.clock.monotonic() - self._synced_at > 3 * RESYNC_SECONDS:
            return "the API server could not be read for three resyncs"
        return None

    async def _resync_now_and_then(self) -> None:
        pause = RESYNC_SECONDS
        while True:
            await self._ports.clock.sleep(pause)
            try:
                await self.resync()
                pause = RESYNC_SECONDS
            except ClusterError as error:
                log.error("resync failed, trying again in %.0f s: %s", RESYNC_RETRY_SECONDS, error)
                pause = RESYNC_RETRY_SECONDS

    def _to_audit(self) -> dict[str, str]:
        return {thing["metadata"]["name"]: thing["metadata"]["uid"] for thing in self.cache.all(ADAPTER_CHANNELS)}

    def _audited(self, channel: str, found: Findings) -> None:
        """What could not be read leaves the last verdict on the log as it is, unless something else is wrong."""
        if found.clean:
            self.metrics.verified(channel, self._ports.clock.now())
        if (found.clean or found.problems) and self._logs.audited(channel, found.told):
            self.queue.add(channel)

    def _answered(self, channel: str, entry: str, pod_uid: str) -> None:
        self._times.answered(channel, entry, pod_uid, self._ports.clock.monotonic())
        self.queue.add(channel)

    def _failed(self, channel: str) -> None:
        self.metrics.counter(contracts.RECONCILE_ERRORS_TOTAL, channel).inc()
