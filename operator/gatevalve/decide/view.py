"""The frozen view of one channel that every decision is made from; gathered once per reconcile."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from gatevalve.build.jobs import Place
from gatevalve.contracts.files import EvidenceReport, PairRow, Progress
from gatevalve.contracts.jobs import Termination
from gatevalve.contracts.kinds import (
    AdapterCandidateSpec,
    AdapterCandidateStatus,
    AdapterChannelSpec,
    AdapterChannelStatus,
    AdapterReleaseSpec,
    AdapterReleaseStatus,
    Timings,
)
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.serving import PodReport, SignedDocument


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """Identity of a Kubernetes object."""

    name: str
    uid: str
    generation: int = 1
    created_at: datetime | None = None
    deleting: bool = False
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelView:
    """An AdapterChannel; `spec` is absent when it breaks its contract and `problem` says how."""

    meta: ObjectMeta
    spec: AdapterChannelSpec | None
    status: AdapterChannelStatus
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CandidateView:
    """An AdapterCandidate; `spec` is absent when it breaks its contract and `problem` says how."""

    meta: ObjectMeta
    channel: str
    spec: AdapterCandidateSpec | None
    status: AdapterCandidateStatus
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The GatePolicy that the channel names."""

    name: str
    spec: GatePolicySpec | None
    digest: str | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry as the API server holds it, verified: contract, digest, signature, chain."""

    spec: AdapterReleaseSpec
    status: AdapterReleaseStatus
    exported: bool


@dataclass(frozen=True, slots=True)
class LogView:
    """The channel's log in order; `problem` is set when it is broken or differs from its external copy, so that nothing can follow it.

    With a problem, `entries` is the sound start. `finding` is what an audit found in a log whose chain is sound: a verdict that cannot
    be shown any more, or an entry that no decision could have written. `external_error` says that the external log cannot be read, and
    then `exported` is what was known before, or cannot be written.
    """

    entries: tuple[EntryView, ...] = ()
    problem: str | None = None
    external_error: str | None = None
    finding: str | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """One attempt of one candidate's step, with what its Pod said.

    `exit_code` is of the container that failed, or 0; absent while it runs or when the Pod is gone.
    `parent_digest` is the parent that the attempt was started with ('' = the base).
    `has_started`: its Pod runs or ran; before that and once it is being deleted, what it waits for may be told no more.
    """

    name: str
    candidate_uid: str
    step: str
    attempt: int
    started_at: datetime
    finished: bool
    succeeded: bool
    exit_code: int | None = None
    out_of_memory: bool = False
    disrupted: bool = False
    deadline_exceeded: bool = False
    waiting: str | None = None
    termination: Termination | None = None
    parent_digest: str = ""
    finished_at: datetime | None = None
    deleting: bool = False
    has_started: bool = True


@dataclass(frozen=True, slots=True)
class PodView:
    """A Pod of the pool with its own report; `report` is absent when it does not answer and `error` says why."""

    name: str
    uid: str
    ip: str | None
    running: bool
    ready: bool
    ready_since: datetime | None = None
    terminating: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    report: PodReport | None = None
    error: str | None = None
    answering_entry: str | None = None

    @property
    def reachable(self) -> bool:
        """The Pod runs and its middleware answers."""
        return self.report is not None and self.running and not self.terminating


@dataclass(frozen=True, slots=True)
class PoolView:
    """The pool's ConfigMap key of this channel and its Pods.

    `document` is absent when there is none or it does not verify; `alias_owner` is another channel that serves the same alias on the pool;
    `timings` are what the executor measured of the last commit; `keys_problem` says what is wrong with ConfigMap gatevalve-keys;
    `held_text` is what the key holds, whatever that is, and None where there is no such key.
    """

    document: SignedDocument | None = None
    document_problem: str | None = None
    resource_version: str | None = None
    pods: tuple[PodView, ...] = ()
    alias_owner: str | None = None
    timings: Timings | None = None
    keys_problem: str | None = None
    held_text: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """Evidence of one test as read from the sealed area.

    `problem` says why it cannot be judged; `forged` is set when it is not what the evaluation Job named.
    """

    test_entry: str
    digest: str | None = None
    report: EvidenceReport | None = None
    rows: tuple[PairRow, ...] = ()
    problem: str | None = None
    forged: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator's own deployment fixes. `place` tells the builders about images, claims and users."""

    place: Place
    operator_version: str
    key_id: str
    started_at: datetime
    data_url: str = "file:///gatevalve/data"
    sealed_url: str = "file:///gatevalve/sealed"
    actor: str = "gatevalve"

    @property
    def namespace(self) -> str:
        """The one namespace this operator serves."""
        return self.place.namespace


@dataclass(frozen=True, slots=True)
class View:
    """Everything a reconcile of one channel knows. `channel` is absent when only candidates or entries name it."""

    now: datetime
    settings: Settings
    name: str
    channel: ChannelView | None
    policy: PolicyView | None
    log: LogView
    candidates: tuple[CandidateView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    pool: PoolView = field(default_factory=PoolView)
    evidence: EvidenceView | None = None
    progress: Progress | None = None
