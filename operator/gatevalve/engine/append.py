"""Append an entry: sign it, create its object (the name is the compare-and-swap), copy its exact bytes to the external log."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import AlreadyExistsError, ClusterError, ConflictError, IntegrityError
from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.names import API_VERSION, LABEL_CHANNEL, entry_name
from gatevalve.contracts.reasons import Action
from gatevalve.decide.view import LogView, View
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.chain import copy_of
from gatevalve.engine.release_log import ExternalLog, ReleaseLogs
from gatevalve.io.ports import ADAPTER_RELEASES, Cluster, KubeObject
from gatevalve.io.signing import Signer

log = logging.getLogger(__name__)

OWN_FACTS = frozenset({"message", "decided_at", "operator_version", "previous_digest", "key_id", "digest", "signature"})
"""Fields in which two writes of one decision may differ."""


@dataclass(frozen=True, slots=True)
class Appender:
    """Writes logs."""

    cluster: Cluster
    cache: ObjectCache
    logs: ReleaseLogs
    signer: Signer
    external: ExternalLog

    async def append(self, view: View, draft: AdapterReleaseSpec) -> AdapterReleaseSpec:
        """Create the entry behind the view's log, which was proven fresh.

        Raises ConflictError when the log has moved on, ClusterError when the API server refuses.
        """
        _must_follow(view.log, draft)
        previous = view.log.entries[-1].spec.digest if view.log.entries else None
        entry = self.signer.seal(draft, previous)
        created = await self._create(view, entry)
        self.cache.put(ADAPTER_RELEASES, created)
        if created["spec"].get("digest") != sha256(_sealed(created)):
            raise IntegrityError(
                f"{created['metadata']['name']}: the API server changed the entry while it was created; check admission webhooks"
            )
        return AdapterReleaseSpec.parse(created["spec"])

    async def copy(self, channel: str, sequence: int) -> None:
        """Copy an entry to the external log; done already is fine. Raises StoreError, and IntegrityError when it holds another."""
        name = entry_name(channel, sequence)
        thing = self.cache.get(ADAPTER_RELEASES, name)
        if thing is None:
            raise ConflictError(f"{name} is gone")
        await self.external.publish(thing["spec"]["channel"]["uid"], sequence, copy_of(thing["spec"]))

    async def _create(self, view: View, entry: AdapterReleaseSpec) -> KubeObject:
        name = entry_name(view.name, entry.sequence)
        metadata = {"name": name, "labels": {LABEL_CHANNEL: view.name}}
        body = {"apiVersion": API_VERSION, "kind": ADAPTER_RELEASES.kind, "metadata": metadata, "spec": entry.wire()}
        try:
            return await self.cluster.create(ADAPTER_RELEASES, body)
        except AlreadyExistsError:
            return await self._ours(view, entry, name)

    async def _ours(self, view: View, entry: AdapterReleaseSpec, name: str) -> KubeObject:
        """The object under that name, when it is this very decision written before: signed, chained, same content."""
        held = await self.cluster.get(ADAPTER_RELEASES, name)
        if held is None:
            raise ConflictError(f"{name} existed and is gone")
        if not self.logs.continues(view.log, view.name, held) or not _same_decision(AdapterReleaseSpec.parse(held["spec"]), entry):
            raise ConflictError(f"{name} exists and is another decision")
        log.info("%s was written before; going on with it", name)
        return held


def _must_follow(view: LogView, draft: AdapterReleaseSpec) -> None:
    if view.problem is not None:
        raise ClusterError(f"nothing is appended to a broken log: {view.problem}")
    if view.finding is not None and draft.action is not Action.ROLLBACK:
        raise ClusterError(f"nothing but a way back is appended to a log that does not stand its audit: {view.finding}")
    if draft.sequence != len(view.entries):
        raise ConflictError(f"the entry was drafted as number {draft.sequence} of a log with {len(view.entries)} entries")


def _same_decision(one: AdapterReleaseSpec, other: AdapterReleaseSpec) -> bool:
    return one.model_dump(exclude=set(OWN_FACTS)) == other.model_dump(exclude=set(OWN_FACTS))


def _sealed(thing: KubeObject) -> bytes:
    return copy_of({key: value for key, value in thing["spec"].items() if key not in ("digest", "signature")})
