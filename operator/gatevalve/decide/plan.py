"""A plan: the actions of one reconcile, in order, and what to write and when to look again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus, AdapterReleaseSpec, AdapterReleaseStatus
from gatevalve.contracts.reasons import EventReason
from gatevalve.contracts.serving import ChannelDocument


@dataclass(frozen=True, slots=True)
class AppendEntry:
    """Append an entry: the executor adds previousDigest, digest and signature; the plan holds nothing after it but events and status.

    `entry` comes with digest, signature and previous_digest set by the executor from the proven-fresh log.
    """

    entry: AdapterReleaseSpec
    copy_first: bool = True


@dataclass(frozen=True, slots=True)
class CopyEntry:
    """Copy an entry of the API server to the external log by exclusive publish."""

    sequence: int


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create a Job by its deterministic name; one that exists already is the same attempt."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Stop a Job and its Pods (background propagation)."""

    name: str


@dataclass(frozen=True, slots=True)
class PushDocument:
    """Sign a document and PUT it to a Pod; a Pod that refuses says why in its next report."""

    pod: str
    document: ChannelDocument


@dataclass(frozen=True, slots=True)
class CommitDocument:
    """Sign a document and write it to the pool's ConfigMap: the commit point. Refused when the ConfigMap has changed since it was read."""

    pool: str
    channel: str
    document: ChannelDocument
    resource_version: str | None


@dataclass(frozen=True, slots=True)
class RestoreKeys:
    """Write the operator's own certificate to ConfigMap gatevalve-keys again."""


@dataclass(frozen=True, slots=True)
class AnnotatePod:
    """Tell on the Pod which entry it serves for a channel."""

    pod: str
    channel: str
    entry: str


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on one of our objects; emitted after the actions and status stuck."""

    kind: Literal["AdapterChannel", "AdapterCandidate"]
    name: str
    uid: str
    reason: EventReason
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class CandidateStatusUpdate:
    """The candidate's whole status."""

    name: str
    uid: str
    status: AdapterCandidateStatus


@dataclass(frozen=True, slots=True)
class ReleaseStatusUpdate:
    """The entry's whole status."""

    name: str
    status: AdapterReleaseStatus


@dataclass(frozen=True, slots=True)
class ChannelStatusUpdate:
    """The channel's whole status."""

    name: str
    uid: str
    status: AdapterChannelStatus


Action = AppendEntry | CopyEntry | CreateJob | DeleteJob | PushDocument | CommitDocument | RestoreKeys | AnnotatePod
StatusUpdate = CandidateStatusUpdate | ReleaseStatusUpdate | ChannelStatusUpdate


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order; then statuses (only what changed), then events.

    `requeue_seconds`: look again after that time; 0 = at once; None = when something happens.
    """

    actions: tuple[Action, ...] = ()
    statuses: tuple[StatusUpdate, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_seconds: float | None = None

    def __add__(self, other: Plan) -> Plan:
        """Both plans, this one first; the sooner requeue counts."""
        waits = [wait for wait in (self.requeue_seconds, other.requeue_seconds) if wait is not None]
        return Plan(self.actions + other.actions, self.statuses + other.statuses, self.events + other.events, min(waits) if waits else None)
