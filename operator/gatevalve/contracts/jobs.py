"""What the operator hands to a Job (environment GATEVALVE_JOB) and what the Job says when it ends (termination message)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gatevalve.contracts.canonical import SAFE_INTEGER
from gatevalve.contracts.kinds import AdapterShape, Artifact, Base, SentinelRef
from gatevalve.contracts.model import Contract, DigestField, EntryName, Message, Name, ShortText, Timestamp, Uid, Uri
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.recipes import Recipe

MOST = SAFE_INTEGER
"""What a Job counts goes into a status, which holds no larger numbers."""


class JobInput(Contract):
    """What every Job is told."""

    channel: Name
    channel_uid: Uid
    candidate: Name
    candidate_uid: Uid
    attempt: ShortText = Field(description="Name of this attempt: <step>-<n>.")
    data: Uri = Field(description="fsspec URL of the data area, without the channel's prefix.")


class SnapshotInput(JobInput):
    """`gatevalve-trainer snapshot`."""

    window_from: Timestamp
    window_to: Timestamp
    incumbent_digest: DigestField | None = None
    base_digest: DigestField
    close_wait_seconds: int = Field(default=120, description="Longest wait for segments of the window to be closed.")


class TrainInput(JobInput):
    """`gatevalve-trainer train`: snapshot and parent are mounted read-only, work/<candidate uid>/ is writable."""

    base: Base
    adapter: AdapterShape
    recipe: Recipe
    parameters: dict[str, str] = Field(default_factory=dict)
    seed: int = 0
    snapshot_digest: DigestField
    parent_digest: DigestField | None = Field(default=None, description="The incumbent; absent = a fresh adapter on the base.")
    token_budget_divisor: int = Field(default=1, description="2 after running out of memory.")


class FetchInput(JobInput):
    """`gatevalve-trainer fetch`."""

    base: Base
    adapter: AdapterShape
    artifact: Artifact
    max_rank: int = 512


class PublishInput(JobInput):
    """`gatevalve-trainer publish`: copies work/<candidate uid>/<attempt>/ to adapters/<digest>/ and never overwrites."""

    arms: Uri = Field(description="fsspec URL of the Pod's own directory from which the engine loads candidate, incumbent and anchor.")
    base: Base
    adapter: AdapterShape
    adapter_digest: DigestField
    produced_by: ShortText | None = Field(default=None, description="The attempt that made the adapter; either this or sentinel.")
    sentinel: SentinelRef | None = Field(
        default=None, description="Instead of an attempt: the candidate is the operator's own, made here, and nothing is published."
    )
    incumbent_digest: DigestField | None = Field(
        default=None, description="Verified and handed to the engine, because the candidate is measured against it."
    )
    anchor_digest: DigestField | None = Field(
        default=None, description="Verified and handed to the engine, because the candidate is measured against it."
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.produced_by is None) == (self.sentinel is None):
            raise ValueError("set exactly one of producedBy or sentinel")
        return self


class DrawInput(JobInput):
    """`gatevalve-trainer draw`: draws a round's items and finds every task and arm, before anything is trained or a test is paid."""

    sealed: Uri = Field(description="fsspec URL of the sealed area, without the channel's prefix.")
    round: int
    policy: GatePolicySpec
    policy_digest: DigestField
    base: Base
    incumbent_digest: DigestField | None = Field(default=None, description="Verified, because the candidate will be measured against it.")
    anchor_digest: DigestField | None = Field(default=None, description="Verified, because the candidate will be measured against it.")


class EvaluateInput(JobInput):
    """`gatevalve-trainer evaluate`: asks the engine sidecar on 127.0.0.1."""

    sealed: Uri = Field(description="fsspec URL of the sealed area, without the channel's prefix.")
    engine_url: Uri
    test_entry: EntryName
    test_digest: DigestField
    round: int
    test: int
    policy: GatePolicySpec
    policy_digest: DigestField
    base: Base
    candidate_digest: DigestField
    incumbent_digest: DigestField | None = None
    anchor_digest: DigestField | None = None
    arms: dict[str, str] = Field(description="Engine model name of each arm: candidate, incumbent, anchor.")
    engine_digest: DigestField | None = Field(
        default=None, description="Digest of the engine's image and arguments: answers of the anchor serve other tests of a round on it."
    )
    sentinel: SentinelRef | None = Field(
        default=None, description="The candidate is the operator's own: it has items of its own, under its number instead of the round's."
    )


UNMARKED = "was not written by an evaluation that holds this namespace's seal"
"""An evaluation says this of a file in the sealed area without its mark: somebody planted it."""


class SnapshotResult(Contract):
    """Result of a snapshot."""

    snapshot_digest: DigestField
    rows: Annotated[int, Field(ge=0, le=MOST)]
    rewarded: Annotated[int, Field(ge=0, le=MOST)]


class AdapterResult(Contract):
    """Result of train and fetch."""

    adapter_digest: DigestField
    steps: Annotated[int, Field(ge=0, le=MOST)] = 0


class RoundResult(Contract):
    """Result of draw. Counts only: what was drawn is sealed."""

    round: Annotated[int, Field(ge=1, le=MOST)]
    items: Annotated[int, Field(ge=0, le=MOST)]


class EvidenceResult(Contract):
    """Result of evaluate."""

    evidence_digest: DigestField = Field(description="sha256 of report.json's bytes.")
    pairs_digest: DigestField


class Termination(Contract):
    """The termination message of a Job's container, at most 4 KiB of JSON."""

    version: Literal[1] = 1
    step: ShortText
    exit_code: Annotated[int, Field(ge=0, le=255)]
    reason: ShortText = ""
    message: Message = ""
    snapshot: SnapshotResult | None = None
    adapter: AdapterResult | None = None
    round: RoundResult | None = None
    evidence: EvidenceResult | None = None
