"""Statuses: written whole by server-side apply, once, and only when they differ from what is known; nothing of others stays in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gatevalve.contracts.errors import NotFoundError
from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus, AdapterReleaseStatus
from gatevalve.contracts.names import FIELD_MANAGER
from gatevalve.decide.plan import CandidateStatusUpdate, ChannelStatusUpdate, StatusUpdate
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.gather import parsed_status
from gatevalve.io.ports import ADAPTER_CANDIDATES, ADAPTER_CHANNELS, ADAPTER_RELEASES, Cluster, KubeObject, Resource

AnyStatus = AdapterCandidateStatus | AdapterChannelStatus | AdapterReleaseStatus
Written = Callable[[StatusUpdate, AnyStatus], None]
"""Told of an update that stuck, and of the status before it."""


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Writes statuses."""

    cluster: Cluster
    cache: ObjectCache
    written: Written

    async def write(self, update: StatusUpdate) -> None:
        """Write one status; an object that is gone needs none. Raises ConflictError when it has changed."""
        resource = _resource(update)
        known = self.cache.get(resource, update.name)
        if known is None or _is_another(update, known):
            return
        before = _status_of(update, known)
        if before == update.status:
            return
        try:
            new = await self.cluster.apply(resource, _body(update, known), FIELD_MANAGER, "status")
            if strange := _strange(new.get("status") or {}, update.status.wire()):
                version = {"resourceVersion": new["metadata"]["resourceVersion"]}
                new = await self.cluster.merge(resource, update.name, {"metadata": version, "status": strange}, "status")
        except NotFoundError:
            return
        self.cache.put(resource, new)
        self.written(update, before)


def _body(update: StatusUpdate, known: KubeObject) -> dict[str, object]:
    """The version is the precondition: apply to a status heeds no uid, and an object made anew would take the old one's."""
    return {"metadata": {"name": update.name, "resourceVersion": known["metadata"]["resourceVersion"]}, "status": update.status.wire()}


def _strange(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that removes what another field manager wrote: apply takes away only what it once put there."""
    gone: dict[str, Any] = dict.fromkeys(held.keys() - wanted.keys())
    other = [key for key in held.keys() & wanted.keys() if held[key] != wanted[key]]
    return gone | {key: _strange(held[key], wanted[key]) if isinstance(held[key], Mapping) else wanted[key] for key in other}


def _is_another(update: StatusUpdate, known: KubeObject) -> bool:
    """The object was deleted and made anew under the same name since the view was gathered."""
    return isinstance(update, CandidateStatusUpdate | ChannelStatusUpdate) and known["metadata"]["uid"] != update.uid


def _resource(update: StatusUpdate) -> Resource:
    if isinstance(update, CandidateStatusUpdate):
        return ADAPTER_CANDIDATES
    return ADAPTER_CHANNELS if isinstance(update, ChannelStatusUpdate) else ADAPTER_RELEASES


def _status_of(update: StatusUpdate, known: KubeObject) -> AnyStatus:
    if isinstance(update, CandidateStatusUpdate):
        return parsed_status(AdapterCandidateStatus, known)
    contract: type[AdapterChannelStatus | AdapterReleaseStatus] = (
        AdapterChannelStatus if isinstance(update, ChannelStatusUpdate) else AdapterReleaseStatus
    )
    return parsed_status(contract, known)
