"""What passes between the operator and serving pods: the signed channel document and the pod's report."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gatevalve.contracts.kinds import Capture
from gatevalve.contracts.model import Contract, DigestField, EntryName, Message, Name, ShortText, Timestamp, Uid, Uri

SIGNATURE_CONTEXT_DOCUMENT = b"gatevalve.dev/document/v1\n"
SIGNATURE_CONTEXT_ENTRY = b"gatevalve.dev/entry/v1\n"
"""Prefixes of the signed bytes, so that a signature of one thing never fits another."""


class AdapterRole(StrEnum):
    """Why an adapter is on a pod."""

    LIVE = "Live"
    WARM = "Warm"
    PRELOAD = "Preload"


class AdapterOnPod(Contract):
    """An adapter that a pod shall hold."""

    name: ShortText
    digest: DigestField
    uri: Uri = Field(description="Directory in the data area, relative to its root: <channel uid>/adapters/<hex>.")
    role: AdapterRole


class Route(Contract):
    """A share of the alias's traffic; adapter absent = the base."""

    adapter: ShortText | None = None
    entry: EntryName
    weight: int = Field(default=100, ge=0, le=100)


LAST_SEQUENCE, LAST_STEP = 999_999, 1_000_000
"""Bounds of a revision: the log's own, and more steps than an entry ever takes, so that what a pod claims cannot use them up."""


def _in_bounds(revision: tuple[int, ...]) -> tuple[int, ...]:
    if not (0 <= revision[0] <= LAST_SEQUENCE and 0 <= revision[1] <= LAST_STEP):
        raise ValueError(f"must be [sequence from 0 to {LAST_SEQUENCE}, step from 0 to {LAST_STEP}]")
    return revision


def _none_or_in_bounds(revision: tuple[int, ...]) -> tuple[int, ...]:
    if len(revision) == 1:
        raise ValueError("must be empty or [sequence, step]")
    return _in_bounds(revision) if revision else revision


Revision = Annotated[tuple[int, ...], Field(min_length=2, max_length=2), AfterValidator(_in_bounds)]
"""(sequence of the entry, step): ordered lexicographically."""

HeldRevision = Annotated[tuple[int, ...], Field(max_length=2), AfterValidator(_none_or_in_bounds)]
"""A revision, or empty where no document is held."""

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""What a pod counts: no larger than JSON carries exactly."""


class ChannelDocument(Contract):
    """The desired state of one channel on one pool."""

    version: Literal[1] = 1
    namespace: ShortText
    pool: Name
    channel: Name
    uid: Uid
    base_name: Name
    base_digest: DigestField
    key_id: DigestField
    revision: Revision
    alias: Name
    adapters: Annotated[tuple[AdapterOnPod, ...], Field(max_length=16)] = ()
    routes: Annotated[tuple[Route, ...], Field(min_length=1, max_length=4)]
    drain_seconds: int = 30
    capture: Capture = Field(default_factory=Capture)

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> Self:
        names = [adapter.name for adapter in self.adapters]
        if len(set(names)) != len(names):
            raise ValueError("adapters must have distinct names")
        if missing := {route.adapter for route in self.routes if route.adapter is not None} - set(names):
            raise ValueError(f"routes name adapters that the document lacks: {', '.join(sorted(missing))}")
        if sum(route.weight for route in self.routes) != 100:
            raise ValueError("route weights must add up to 100")
        return self


class SignedDocument(Contract):
    """A document and the operator's ed25519 signature (base64) over SIGNATURE_CONTEXT_DOCUMENT + canonical document."""

    document: ChannelDocument
    signature: ShortText


class AdapterState(StrEnum):
    """Where an adapter is on a pod."""

    FETCHING = "Fetching"
    LOADING = "Loading"
    PROBING = "Probing"
    VERIFIED = "Verified"
    FAILED = "Failed"
    DRAINING = "Draining"


class AdapterReport(Contract):
    """What a pod says of one adapter."""

    name: ShortText
    digest: DigestField
    state: AdapterState
    reason: ShortText | None = None
    message: Message | None = None
    in_flight: Count = 0
    load_ms: Count | None = None
    probe_ms: Count | None = None


class EngineLimits(Contract):
    """What the engine can hold."""

    max_loras: Count
    max_lora_rank: Count
    max_cpu_loras: Count
    runtime_lora: bool


class RefusedRequest(Contract):
    """A request that tried to load, unload or name an adapter past the aliases."""

    at: Timestamp
    message: Message = Field(description="Method and path, and what it tried; nothing of its body.")


class PodReport(Contract):
    """`GET /gatevalve/v1/channels/<channel>`: what a pod holds and does for one channel. Also the answer to PUT."""

    pod: ShortText
    pod_uid: Uid
    boot: ShortText = Field(description="Random per process start: another boot means the engine's memory is empty again.")
    channel: Name
    base_name: ShortText
    base_digest: DigestField | None = Field(default=None, description="Absent until the base's files are hashed after boot.")
    key_id: DigestField | None = Field(default=None, description="The key the pod trusts.")
    limits: EngineLimits
    revision: HeldRevision = Field(default=(), description="Empty: no document held.")
    document_digest: DigestField | None = None
    committed: bool = Field(default=False, description="The held document's routes are in force.")
    routes: tuple[Route, ...] = ()
    adapters: tuple[AdapterReport, ...] = ()
    reason: ShortText | None = Field(
        default=None,
        description="Why the document of the ConfigMap, or in the answer to PUT that one, was refused or is not in force (PodReason).",
    )
    message: Message | None = None
    foreign_adapters: Annotated[tuple[ShortText, ...], Field(max_length=16)] = Field(
        default=(), description="Adapters that the engine holds and that no document of this pod put there."
    )
    refused: RefusedRequest | None = Field(default=None, description="The newest request that tried to go round the aliases.")
    progress: Count = Field(default=0, description="Grows with every change; pass it as ?after= to long-poll.")

    @model_validator(mode="after")
    def _what_is_in_force_is_held(self) -> Self:
        if self.committed and not self.revision:
            raise ValueError("committed must be false where no revision is held")
        return self


class Feedback(Contract):
    """`POST /v1/feedback`: a score for a reply that this pool served."""

    id: ShortText = Field(description="The response id.")
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(description="0 = bad, 1 = good.")
    label: ShortText | None = Field(default=None, description="Free text kept with the score.")
