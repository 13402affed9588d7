"""What the engine needs of the world outside: each a protocol, so that tests bring their own world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gatevalve.contracts import names
from gatevalve.contracts.files import EvidenceReport, PairRow, Progress
from gatevalve.contracts.serving import PodReport, SignedDocument

KubeObject = dict[str, Any]
"""A Kubernetes object as decoded JSON."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of namespaced object and where the API serves it."""

    api_version: str
    plural: str
    kind: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, an object or its subresource."""
        root = "/api" if "/" not in self.api_version else "/apis"
        parts = [root, self.api_version, "namespaces", namespace, self.plural, name, subresource]
        return "/".join(part for part in parts if part)


GATE_POLICIES = Resource(names.API_VERSION, names.POLICIES, "GatePolicy")
ADAPTER_CHANNELS = Resource(names.API_VERSION, names.CHANNELS, "AdapterChannel")
ADAPTER_CANDIDATES = Resource(names.API_VERSION, names.CANDIDATES, "AdapterCandidate")
ADAPTER_RELEASES = Resource(names.API_VERSION, names.RELEASES, "AdapterRelease")
JOBS = Resource("batch/v1", "jobs", "Job")
PODS = Resource("v1", "pods", "Pod")
CONFIGMAPS = Resource("v1", "configmaps", "ConfigMap")
EVENTS = Resource("v1", "events", "Event")


@dataclass(frozen=True, slots=True)
class Listing:
    """A live list: the objects, and the resourceVersion at which the list was true."""

    items: tuple[KubeObject, ...]
    resource_version: str


class Cluster(Protocol):
    """The Kubernetes API in one namespace. Every method raises ClusterError when the API refuses or does not answer."""

    async def get(self, resource: Resource, name: str) -> KubeObject | None:
        """The object as the API server holds it now, or None."""
        ...

    async def list(self, resource: Resource, labels: str = "") -> Listing:
        """All objects now, or those that a label selector names."""
        ...

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> KubeObject:
        """Create an object; raises AlreadyExistsError when the name is taken."""
        ...

    async def delete(self, resource: Resource, name: str, uid: str | None = None) -> None:
        """Delete an object and, in the background, what it owns; one that is gone already is fine. Raises ConflictError for another uid."""
        ...

    async def apply(self, resource: Resource, body: Mapping[str, Any], manager: str, subresource: str = "") -> KubeObject:
        """Server-side apply with force; raises ConflictError when `metadata.resourceVersion` is given and differs."""
        ...

    async def merge(self, resource: Resource, name: str, patch: Mapping[str, Any], subresource: str = "") -> KubeObject:
        """JSON merge patch; raises NotFoundError when there is no such object, ConflictError when a given resourceVersion differs."""
        ...


@dataclass(frozen=True, slots=True)
class PodAddress:
    """Where a pod's engine listens."""

    ip: str
    port: int


class ServingPods(Protocol):
    """The middleware of serving pods. Every method raises ServingError when the pod refuses or does not answer."""

    async def put_document(self, pod: PodAddress, signed: SignedDocument) -> PodReport:
        """Hand a pod its desired state of one channel; it answers at once with what it holds."""
        ...

    async def report(self, pod: PodAddress, channel: str, seconds: float) -> PodReport:
        """What a pod holds of one channel, now; `seconds` is the longest wait."""
        ...

    async def next_report(self, pod: PodAddress, channel: str, after: int) -> PodReport:
        """The pod's report once its progress has passed `after`, or the same one when nothing changed for a while."""
        ...

    async def ask_alias(self, pod: PodAddress, alias: str) -> str | None:
        """The entry that answers a request for one token through the alias."""
        ...


class LogStore(Protocol):
    """The external log: one file per entry, written once. Every method raises StoreError when the store does not answer."""

    async def publish(self, channel_uid: str, sequence: int, data: bytes) -> None:
        """Write an entry's bytes exclusively; equal bytes are done already, different ones raise IntegrityError."""
        ...

    async def sequences(self, channel_uid: str) -> frozenset[int]:
        """The sequences that have a file."""
        ...

    async def read(self, channel_uid: str, sequence: int) -> bytes:
        """An entry's bytes; raises IntegrityError when what lies there can be no entry's copy: too long, or no plain file."""
        ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence whose bytes matched their digests."""

    report: EvidenceReport
    rows: tuple[PairRow, ...]


class EvidenceStore(Protocol):
    """The evidence in the sealed area, read-only."""

    async def read(self, channel_uid: str, test_entry: str, report_digest: str, pairs_digest: str) -> Evidence:
        """The evidence of a test.

        Raises StoreError when it cannot be read, IntegrityError when bytes differ from a digest, ContractError when they do not parse.
        """
        ...

    async def recorded(self, channel_uid: str, test_entry: str, report_digest: str) -> Evidence:
        """The evidence that an entry names by its report's digest; raises as `read`, and MissingError when the store lacks it."""
        ...

    async def progress(self, channel_uid: str, test_entry: str) -> Progress | None:
        """How far the evaluation of a test says it is; None when it does not say, or the store does not answer at once."""
        ...
