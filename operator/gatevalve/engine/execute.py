"""Executes a plan: its actions in order, each safe to repeat, then the statuses, then the events. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gatevalve.contracts.errors import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    GatevalveError,
    InvalidError,
    NotFoundError,
    ServingError,
    StoreError,
)
from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.names import CERTIFICATE_FILE, FIELD_MANAGER, GROUP, KEYS_CONFIGMAP, LABEL_POOL, entry_name, pool_configmap
from gatevalve.contracts.serving import AdapterRole, ChannelDocument
from gatevalve.decide.plan import (
    Action,
    AnnotatePod,
    AppendEntry,
    CommitDocument,
    CopyEntry,
    CreateJob,
    DeleteJob,
    Plan,
    PushDocument,
    RestoreKeys,
)
from gatevalve.decide.refused import told_after_failure
from gatevalve.decide.view import View
from gatevalve.engine.append import Appender
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.events import EventRecorder
from gatevalve.engine.pool import held_text
from gatevalve.engine.statuses import StatusWriter
from gatevalve.engine.timings import RolloutTimes
from gatevalve.io.clock import Clock
from gatevalve.io.ports import CONFIGMAPS, JOBS, PODS, Cluster, PodAddress, ServingPods
from gatevalve.io.signing import Signer

log = logging.getLogger(__name__)

COMMIT_TRIES, COMMIT_PAUSE_SECONDS = 20, 0.02
"""Others may write other keys, labels and annotations of a pool's ConfigMap as often as they like: that must not keep a commit off."""

Appended = Callable[[AdapterReleaseSpec], None]
"""Told of an entry that stuck."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Carries plans out. Everything it writes to is a parameter."""

    cluster: Cluster
    serving: ServingPods
    cache: ObjectCache
    clock: Clock
    signer: Signer
    appender: Appender
    statuses: StatusWriter
    events: EventRecorder
    times: RolloutTimes
    appended: Appended

    async def execute(self, plan: Plan, view: View) -> None:
        """Carry a plan out.

        Raises ConflictError when something changed since the view: then nothing follows. Raises ClusterError or StoreError when a write
        failed: the actions after it do not happen, but what holds without them is told. A pod that does not take a document is no error:
        its next report tells.
        """
        failure = await self._act_in_order(plan, view)
        if failure is not None:
            plan = told_after_failure(plan, view, *failure)
        outdated = await self._write_statuses(plan)
        for event in plan.events:
            await self.events.emit(event)
        await self._copy_late(plan, view)
        if error := failure[1] if failure is not None else outdated:
            raise error

    async def _act_in_order(self, plan: Plan, view: View) -> tuple[Sequence[Action], GatevalveError] | None:
        """What was not done from the first failure on, and the failure. Raises ConflictError: the plan is outdated as a whole."""
        done = 0
        for batch in batches(plan.actions):
            try:
                await asyncio.gather(*(self._act(action, view) for action in batch))
            except ConflictError:
                raise
            except GatevalveError as error:
                return plan.actions[done:], error
            done += len(batch)
        return None

    async def _write_statuses(self, plan: Plan) -> ConflictError | None:
        """One that conflicts is written by the next reconcile; the others and the events, which are told only now, go out."""
        outdated: ConflictError | None = None
        for update in plan.statuses:
            try:
                await self.statuses.write(update)
            except ConflictError as error:
                outdated = error
        return outdated

    async def _act(self, action: Action, view: View) -> None:
        match action:
            case AppendEntry():
                await self._append(action, view)
            case CopyEntry():
                await self.appender.copy(view.name, action.sequence)
            case CreateJob():
                await self._create_job(action)
            case DeleteJob():
                await self._delete_job(action)
            case PushDocument():
                await self._push(action, view)
            case CommitDocument():
                await self._commit(action, view)
            case RestoreKeys():
                await self._restore_keys()
            case AnnotatePod():
                await self._annotate(action)
        log.info("%s: %s", view.name, told(action))

    async def _append(self, action: AppendEntry, view: View) -> None:
        entry = await self.appender.append(view, action.entry)
        self.appended(entry)
        if action.copy_first:
            await self.appender.copy(view.name, entry.sequence)

    async def _copy_late(self, plan: Plan, view: View) -> None:
        """Copies of entries that act at once; one that fails is copied by a later reconcile, which sees it missing."""
        for action in plan.actions:
            if isinstance(action, AppendEntry) and not action.copy_first:
                try:
                    await self.appender.copy(view.name, action.entry.sequence)
                except StoreError as error:
                    log.error("%s has no external copy yet: %s", entry_name(view.name, action.entry.sequence), error)

    async def _create_job(self, action: CreateJob) -> None:
        try:
            created = await self.cluster.create(JOBS, action.manifest)
        except AlreadyExistsError:
            found = await self.cluster.get(JOBS, action.manifest["metadata"]["name"])
            if found is None:
                raise ConflictError(f"Job {action.manifest['metadata']['name']} existed and is gone") from None
            created = found
        self.cache.put(JOBS, created)

    async def _delete_job(self, action: DeleteJob) -> None:
        known = self.cache.get(JOBS, action.name)
        await self.cluster.delete(JOBS, action.name, known["metadata"]["uid"] if known else None)

    async def _push(self, action: PushDocument, view: View) -> None:
        pod = next((pod for pod in view.pool.pods if pod.name == action.pod), None)
        if pod is None or pod.ip is None or view.channel is None or view.channel.spec is None:
            return
        if any(adapter.role is AdapterRole.PRELOAD for adapter in action.document.adapters):
            self.times.preloading(view.name, _entry(action.document), self.clock.monotonic())
        address = PodAddress(pod.ip, view.channel.spec.serving.port)
        try:
            report = await self.serving.put_document(address, self.signer.sign_document(action.document))
        except ServingError as error:
            log.warning("%s did not take the document: %s", pod.name, error)
            return
        if report.reason is not None:
            log.warning("%s holds revision %s of %s: %s: %s", pod.name, report.revision, view.name, report.reason, report.message)

    async def _commit(self, action: CommitDocument, view: View) -> None:
        """The write that decides what a pool serves. The ConfigMap may change meanwhile, the channel's own key in it may not."""
        text = self.signer.sign_document(action.document).canonical().decode()
        if action.document.routes[0].entry == _entry(action.document):
            self.times.committed(action.channel, _entry(action.document), self.clock.monotonic())
        version = action.resource_version
        for tries in range(1, COMMIT_TRIES):
            try:
                return await self._write_document(action, text, version)
            except ConflictError as error:
                if tries > 1:
                    await self.clock.sleep(COMMIT_PAUSE_SECONDS)
                version = await self._version_to_go_on_from(action, view, error)
        return await self._write_document(action, text, version)

    async def _write_document(self, action: CommitDocument, text: str, version: str | None) -> None:
        """Without a version the ConfigMap must not exist, with one it must still have it. Raises ConflictError."""
        metadata: dict[str, Any] = {"name": pool_configmap(action.pool), "labels": {LABEL_POOL: action.pool}}
        data = {action.channel: text}
        if version is None:
            await self.cluster.create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
            return
        body = {"metadata": {**metadata, "resourceVersion": version}, "data": data}
        try:
            await self.cluster.apply(CONFIGMAPS, body, f"gatevalve-{action.channel}")
        except InvalidError:
            body["metadata"]["resourceVersion"] = await self._without_binary(action, version)
            await self.cluster.apply(CONFIGMAPS, body, f"gatevalve-{action.channel}")

    async def _without_binary(self, action: CommitDocument, version: str) -> str:
        """A key that somebody put under binaryData as well makes the whole ConfigMap invalid. Answers the version that is free of it."""
        patch = {"metadata": {"resourceVersion": version}, "binaryData": {action.channel: None}}
        freed: str = (await self.cluster.merge(CONFIGMAPS, pool_configmap(action.pool), patch))["metadata"]["resourceVersion"]
        return freed

    async def _version_to_go_on_from(self, action: CommitDocument, view: View, met: ConflictError) -> str | None:
        """The ConfigMap's version now. Raises the conflict that was met when the channel's key is no longer what the view saw in it."""
        now = await self.cluster.get(CONFIGMAPS, pool_configmap(action.pool))
        if held_text(now, action.channel) != view.pool.held_text:
            raise met
        version: str | None = now["metadata"]["resourceVersion"] if now is not None else None
        return version

    async def _restore_keys(self) -> None:
        """Pods that run hold their key in memory, so a failure is no reason to stop what else there is to do; the next look tries again."""
        data = {CERTIFICATE_FILE: self.signer.verify_key.certificate.decode()}
        try:
            await self.cluster.apply(CONFIGMAPS, {"metadata": {"name": KEYS_CONFIGMAP}, "data": data}, FIELD_MANAGER)
        except ClusterError as error:
            log.error("ConfigMap %s cannot be restored: %s", KEYS_CONFIGMAP, error)

    async def _annotate(self, action: AnnotatePod) -> None:
        patch = {"metadata": {"annotations": {f"{GROUP}/{action.channel}": action.entry}}}
        try:
            self.cache.put(PODS, await self.cluster.merge(PODS, action.pod, patch))
        except NotFoundError:
            return


def batches(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """The actions in order; neighbouring pushes and annotations go out together, so that a slow pod delays no other."""
    for side_by_side, group in groupby(actions, key=lambda action: isinstance(action, PushDocument | AnnotatePod)):
        if side_by_side:
            yield list(group)
        else:
            yield from ([action] for action in group)


def told(action: Action) -> str:
    """What an action did, for the log."""
    match action:
        case AppendEntry(entry=entry):
            return f"entry {entry.sequence}: {entry.action} {entry.reason}"
        case CopyEntry(sequence=sequence):
            return f"entry {sequence} copied to the external log"
        case CreateJob(manifest=manifest):
            return f"Job {manifest['metadata']['name']} created"
        case DeleteJob(name=name):
            return f"Job {name} deleted"
        case PushDocument(pod=pod, document=document):
            return f"revision {document.revision} offered to {pod}"
        case CommitDocument(pool=pool, document=document):
            return f"revision {document.revision} committed on pool {pool}"
        case RestoreKeys():
            return f"ConfigMap {KEYS_CONFIGMAP} shall hold our certificate"
        case AnnotatePod(pod=pod, entry=name):
            return f"{pod} serves {name}"


def _entry(document: ChannelDocument) -> str:
    """The entry that a document carries out."""
    return entry_name(document.channel, document.revision[0])
