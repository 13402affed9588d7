"""The four kinds: specs and statuses of AdapterChannel, AdapterCandidate and AdapterRelease; GatePolicy's spec is in `policy`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from gatevalve.contracts import patterns
from gatevalve.contracts.engine_options import ENGINE_RULE, ENGINE_RULE_MESSAGE, RESERVED_MESSAGE, RESERVED_VARIABLES, checked_options
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.model import (
    Contract,
    DigestField,
    DirectoryUri,
    Duration,
    EntryName,
    Message,
    Name,
    ObjectName,
    ShortText,
    Timestamp,
    Uid,
    Uri,
    api_list_map,
    api_rules,
)
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action, CandidateState, EntryReason, Verdict
from gatevalve.contracts.recipes import Recipe, check_parameters, parameter_rules, recipe_rules

PassedThrough = Annotated[dict[str, Any], Field(max_length=16)]
"""A part of a Pod that Kubernetes itself judges when the Job is created."""

Labels = Annotated[dict[Annotated[str, Field(max_length=317)], Annotated[str, Field(max_length=63)]], Field(max_length=32)]


def _checked(given: dict[str, str], recipe: str | None = None) -> dict[str, str]:
    """Parameters that a recipe has; pydantic takes a ValueError for a finding and shows its text."""
    try:
        check_parameters(recipe, given)
    except ContractError as error:
        raise ValueError(str(error)) from error
    return given


Parameters = Annotated[
    dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=40)]],
    Field(max_length=32, json_schema_extra=api_rules(*parameter_rules())),
    AfterValidator(lambda given: _checked(given)),
]


class Condition(Contract):
    """metav1.Condition."""

    type: ShortText = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: ShortText = Field(description="Why, in one word; see the list of reasons in the documentation.")
    message: Message = Field(default="", description="Why, in a sentence, and what to do.")
    last_transition_time: Timestamp = Field(description="When status last changed.")
    observed_generation: int = Field(default=0, description="The metadata.generation that this was said of.")


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=16, description="What holds and what does not, each with a reason.", json_schema_extra=api_list_map("type")),
]


class Variable(Contract):
    """An environment variable with its value in plain text: whoever edits a channel must not reach a Secret through its Jobs."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            ("!self.name.startsWith('GATEVALVE_')", "names that start with GATEVALVE_ are the operator's own"),
            (f"!self.name.matches('{RESERVED_VARIABLES}')", RESERVED_MESSAGE),
        )
    )

    name: Annotated[str, Field(max_length=128, pattern=patterns.VARIABLE)] = Field(
        description="Name of the variable; not one that starts with GATEVALVE_, loads other code or makes vLLM write requests to its log."
    )
    value: Annotated[str, Field(max_length=1024)] = Field(description="Its value, at most 1024 characters of plain text.")

    @model_validator(mode="after")
    def _is_not_the_operators(self) -> Self:
        if self.name.startswith("GATEVALVE_"):
            raise ValueError("names that start with GATEVALVE_ are the operator's own")
        if re.match(RESERVED_VARIABLES, self.name):
            raise ValueError(RESERVED_MESSAGE)
        return self


class PodTemplate(Contract):
    """What a Job's Pod needs from the cluster; passed through as it is."""

    image: ShortText | None = Field(default=None, description="Image of the container; default from the chart.")
    resources: PassedThrough | None = Field(default=None, description="Requests and limits, such as nvidia.com/gpu.")
    node_selector: Labels | None = Field(default=None, description="Node labels the Pod needs.")
    tolerations: Annotated[tuple[PassedThrough, ...], Field(max_length=16)] | None = Field(
        default=None, description="Taints the Pod tolerates."
    )
    env: Annotated[tuple[Variable, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Extra environment of the container, as names with plain values; Secrets cannot be passed, and the operator's own win.",
    )
    priority_class_name: ObjectName | None = Field(default=None, description="Priority class of the Pod.")
    queue_name: ObjectName | None = Field(default=None, description="Kueue local queue (label kueue.x-k8s.io/queue-name of the Job).")


class Base(Contract):
    """The frozen base model."""

    name: Name = Field(description="The base's served name in the engine.")
    uri: DirectoryUri = Field(description="Directory of the model as every Pod sees it, for example file:///models/tiny-words.")
    digest: DigestField = Field(description="sha256 over the sorted list of the model's files (`gatevalve-trainer digest DIR` prints it).")


class AdapterShape(Contract):
    """The LoRA shape of every adapter of the channel."""

    rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = Field(description="LoRA rank; one that the engine has kernels for.")
    alpha: int = Field(ge=1, le=4096, description="LoRA alpha.")
    target_modules: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(min_length=1, max_length=32)] = Field(
        description="Suffixes of the linear layers that get LoRA weights."
    )


class Serving(Contract):
    """Where and how the channel is served."""

    pool: Name = Field(
        description="Pods labelled gatevalve.dev/pool=<pool> in this namespace serve the channel; fixed for its life.",
        json_schema_extra=api_rules(
            ("self == oldSelf", "pool is immutable, because the old pool would go on answering: create another channel")
        ),
    )
    port: int = Field(default=8000, ge=1, le=65_535, description="Port of the engine on every pod.")
    min_verified_percent: int = Field(
        default=80, ge=1, le=100, description="Share of reachable pods that must have verified a release before it is committed."
    )
    drain_seconds: int = Field(
        default=30, ge=0, le=3600, description="Longest wait for requests in flight before an old adapter is unloaded."
    )
    rollout_seconds: int = Field(default=600, ge=5, le=86_400, description="A promotion that has not settled by then is rolled back.")


class Training(Contract):
    """Defaults of the channel's training Jobs."""

    model_config = ConfigDict(json_schema_extra=api_rules(*recipe_rules()))

    recipe: Recipe = Field(default="LoggedRL", description="Loss used when a candidate names none.")
    parameters: Parameters = Field(default_factory=dict, description="Recipe parameters as strings; a candidate's own win.")
    pod: PodTemplate = Field(default_factory=PodTemplate, description="What the training Pod needs from the cluster.")

    @model_validator(mode="after")
    def _parameters_of_the_recipe(self) -> Self:
        _checked(self.parameters, self.recipe)
        return self


class Evaluation(Contract):
    """Settings of the channel's evaluation Jobs."""

    pod: PodTemplate = Field(default_factory=PodTemplate, description="What the evaluation Pod's engine container needs from the cluster.")
    engine_args: Annotated[tuple[ShortText, ...], Field(max_length=64), AfterValidator(checked_options)] = Field(
        default=(),
        description="Extra arguments of the engine, such as --dtype float32; only options that say how it computes (docs/training.md).",
        json_schema_extra=api_rules((ENGINE_RULE, ENGINE_RULE_MESSAGE)),
    )


class Capture(Contract):
    """What serving pods record."""

    enabled: bool = Field(default=True, description="Record requests and feedback for training.")
    learning_permille: int = Field(
        default=1000,
        ge=0,
        le=1000,
        description="Share of requests without sampling of their own that are served at temperature 1 unfiltered: exact log-probabilities.",
    )
    segment_seconds: int = Field(default=60, ge=1, le=3600, description="A traffic segment is closed at least this often.")


class Pin(Contract):
    """A person's rollback: serve exactly this entry and promote nothing while it stands."""

    entry: EntryName = Field(description="The serving entry to go back to, for example support-000003.")
    reason: Message = Field(min_length=1, description="Why; recorded in the log.")
    by: ShortText = Field(min_length=1, description="Who asks; recorded in the log.")


class Anchor(Contract):
    """The fixed reference that candidates may not fall behind, whatever the number of releases; the base where the channel names none."""

    entry: EntryName = Field(description="The serving entry whose adapter is the anchor, for example support-000014.")
    reason: Message = Field(min_length=1, description="Why; recorded in the log.")
    by: ShortText | None = Field(default=None, min_length=1, description="Who moves it; recorded in the log.")


class GatePolicyApproval(Contract):
    """A person's consent to a policy that is looser somewhere than the one in force."""

    digest: DigestField = Field(description="Digest of the policy that is approved; the channel's condition GateReady names it.")
    by: ShortText = Field(min_length=1, description="Who approves; recorded in the log.")
    reason: Message = Field(min_length=1, description="Why; recorded in the log.")


class AdapterChannelSpec(Contract):
    """One alias served from one base, and how its adapters are made, judged and rolled out."""

    model_config = ConfigDict(json_schema_extra=api_rules(("self.alias != self.base.name", "alias must differ from base.name")))

    alias: Name = Field(
        description="What clients send as model; before the first release it answers from the base. Fixed for the life of the channel.",
        json_schema_extra=api_rules(("self == oldSelf", "alias is immutable, because clients and pods hold it: create another channel")),
    )
    base: Base = Field(
        description="The frozen base model; fixed for the life of the channel.",
        json_schema_extra=api_rules(
            ("self == oldSelf", "base is immutable, because every release descends from it: create another channel")
        ),
    )
    adapter: AdapterShape = Field(
        description="The LoRA shape of every adapter of the channel; fixed for its life.",
        json_schema_extra=api_rules(
            ("self == oldSelf", "adapter is immutable, because candidates train on from the live adapter: create another channel")
        ),
    )
    serving: Serving = Field(description="Where and how the channel is served.")
    gate_policy: ObjectName = Field(description="GatePolicy in this namespace; a change of its digest is a Policy entry.")
    gate_policy_approval: GatePolicyApproval | None = Field(
        default=None, description="Consent to a policy that is looser somewhere than the one in force, or cannot be compared with it."
    )
    training: Training = Field(default=Training(), description="Defaults of the channel's training Jobs.")
    evaluation: Evaluation = Field(default=Evaluation(), description="Settings of the channel's evaluation Jobs.")
    capture: Capture = Field(default=Capture(), description="What serving pods record.")
    approval: Literal["Automatic", "Manual"] = Field(
        default="Automatic", description="Manual: an accepted candidate waits for spec.approval."
    )
    anchor: Anchor | None = Field(
        default=None, description="The fixed reference of the gate; the base where it is absent. Every change is an Anchor entry."
    )
    pin: Pin | None = Field(default=None, description="A person's rollback: serve exactly this entry, promote nothing.")
    paused: bool = Field(default=False, description="Start no new candidates.")

    @model_validator(mode="after")
    def _alias_is_not_the_base(self) -> Self:
        if self.alias == self.base.name:
            raise ValueError("alias must differ from base.name")
        return self


class AnchorInForce(Contract):
    """The fixed reference of the gate: what a serving entry serves, or without an entry the base."""

    entry: EntryName | None = Field(default=None, description="The serving entry whose adapter is the anchor; absent for the base.")
    digest: DigestField | None = Field(default=None, description="The anchor adapter's digest; absent for the base.")


class LiveStatus(Contract):
    """What serves now."""

    entry: EntryName = Field(description="The release log entry whose adapter answers the alias.")
    adapter: ShortText | None = Field(default=None, description="The adapter's name in the engine; absent while the base serves.")
    digest: DigestField | None = Field(default=None, description="The adapter's digest; absent while the base serves.")
    since: Timestamp | None = Field(default=None, description="When the pods began to answer from it.")


class RoundStatus(Contract):
    """The round in force, derived from the log."""

    number: int = Field(description="The round's number, from 1.")
    tests: int = Field(description="Tests paid for in this round.")
    max_tests: int = Field(description="Tests that the round can pay for.")


class PodsStatus(Contract):
    """Pods of the pool by what they report."""

    desired: int = Field(default=0, description="Pods of the pool.")
    loaded: int = Field(default=0, description="Pods that hold the release.")
    verified: int = Field(default=0, description="Pods that hold the release and have verified it.")
    failed: int = Field(default=0, description="Pods that could not take the release and are excluded.")


class KnownTampering(Contract):
    """A finding that was told: it is not told again until an hour after it was seen last."""

    reason: ShortText = Field(description="What was done, in one word.")
    subject: ShortText = Field(description="What it was done to: the first 16 hex digits of the sha256 of its name.")
    at: Timestamp = Field(description="When it was seen last, to ten minutes.")


class Tampering(Contract):
    """What somebody else changed or tried, and when it was seen."""

    reason: ShortText = Field(description="What was done, in one word; see the list of reasons in the documentation.")
    message: Message = Field(default="", description="What was done, in a sentence.")
    at: Timestamp = Field(description="When it was seen.")
    known: tuple[KnownTampering, ...] = Field(default=(), max_length=64, description="What was told and is remembered.")


class AdapterChannelStatus(Contract):
    """Derived from the log and from what pods report."""

    observed_generation: int = Field(default=0, description="The metadata.generation that this status was made for.")
    conditions: Conditions = ()
    live: LiveStatus | None = Field(default=None, description="What serves now.")
    incumbent: DigestField | None = Field(default=None, description="Digest of the adapter that candidates must beat; absent for the base.")
    anchor: AnchorInForce | None = Field(default=None, description="What new tests are measured against; absent for the base.")
    round: RoundStatus | None = Field(default=None, description="The round in force, derived from the log.")
    pods: PodsStatus | None = Field(default=None, description="Pods of the pool by what they report.")
    log_head: EntryName | None = Field(default=None, description="The newest entry of the channel's log.")
    tampering: Tampering | None = Field(default=None, description="The newest that somebody else changed or tried past gatevalve.")


ON_THE_CALENDAR = (
    f"!self.matches(r'{patterns.TIMESTAMP}') || timestamp(self) >= timestamp('0001-01-01T00:00:00Z')",
    "must be an instant of the calendar",
)
"""The API server refuses what it cannot read as an instant, and shows these words."""


class SnapshotWindow(Contract):
    """Which traffic a candidate learns from: exactly one of last, from and to, or digest."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            (
                "[has(self.last), has(self.from) || has(self.to), has(self.digest)].exists_one(form, form)",
                "set exactly one of last, from with to, or digest",
            ),
            ("has(self.from) == has(self.to)", "from goes with to"),
            ("!has(self.from) || !has(self.to) || timestamp(self.from) < timestamp(self.to)", "from must lie before to"),
        )
    )

    last: Duration | None = Field(
        default=None, description="The span before the candidate's creation, for example 24h or 1h30m (hours, minutes, seconds)."
    )
    from_: Timestamp | None = Field(
        default=None,
        alias="from",
        description="Start of the window, inclusive: RFC 3339 in UTC, for example 2026-01-01T09:00:00Z.",
        json_schema_extra=api_rules(ON_THE_CALENDAR),
    )
    to: Timestamp | None = Field(
        default=None,
        description="End of the window, exclusive: RFC 3339 in UTC; a candidate whose window lies in the future ends as Errored.",
        json_schema_extra=api_rules(ON_THE_CALENDAR),
    )
    digest: DigestField | None = Field(default=None, description="An existing snapshot of this channel.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        forms = [self.last is not None, self.from_ is not None or self.to is not None, self.digest is not None]
        if sum(forms) != 1 or (forms[1] and (self.from_ is None or self.to is None)):
            raise ValueError("set exactly one of last, from with to, or digest")
        if self.from_ is not None and self.to is not None and datetime.fromisoformat(self.from_) >= datetime.fromisoformat(self.to):
            raise ValueError("from must lie before to")
        return self


class Train(Contract):
    """A candidate that is trained here."""

    model_config = ConfigDict(json_schema_extra=api_rules(*recipe_rules()))

    recipe: Recipe | None = Field(
        default=None,
        description="SFT: fine-tune on rewarded replies. LoggedRL: PPO-clip against logged log-probabilities. Default from the channel.",
    )
    snapshot: SnapshotWindow = Field(description="Which traffic to learn from: exactly one of last, from with to, or digest.")
    parameters: Parameters = Field(default_factory=dict, description='Recipe parameters as strings, for example learningRate: "3e-3".')
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Seed of data order and initialisation.")

    @model_validator(mode="after")
    def _parameters_of_the_recipe(self) -> Self:
        _checked(self.parameters, self.recipe)
        return self


class Artifact(Contract):
    """A PEFT directory made elsewhere; same gate."""

    uri: DirectoryUri = Field(
        description="Directory with adapter_config.json and adapter_model.safetensors, for example file:///gatevalve/data/inbox/a1."
    )
    digest: DigestField = Field(
        description="sha256 over the sorted list of the directory's files (`gatevalve-trainer digest DIR` prints it)."
    )


class Approval(Contract):
    """A person's decision on an accepted candidate; absent at creation, set once."""

    decision: Literal["Approve", "Deny"] = Field(description="Approve promotes the candidate, Deny ends it.")
    by: ShortText = Field(min_length=1, description="Who decides; recorded in the log.")
    evidence_digest: DigestField = Field(description="The evidence the person decided on (status.evidence.digest).")


class AdapterCandidateSpec(Contract):
    """An adapter to be made or fetched, judged, and perhaps released."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(("has(self.train) != has(self.artifact)", "set exactly one of train or artifact"))
    )

    channel: Name = Field(description="The AdapterChannel in this namespace.")
    train: Train | None = Field(default=None, description="Train an adapter; either this or artifact.")
    artifact: Artifact | None = Field(default=None, description="Take an adapter made elsewhere; either this or train.")
    deadline: Duration = Field(
        default="6h",
        description="The candidate ends as Errored when it has no verdict so long after it left the queue, for example 6h or 90m.",
    )
    approval: Approval | None = Field(
        default=None,
        description="A person's decision; the only field that may be added later, once.",
        json_schema_extra=api_rules(("self == oldSelf", "approval is set once and never changed")),
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.train is None) == (self.artifact is None):
            raise ValueError("set exactly one of train or artifact")
        return self


class Facts(Contract):
    """What was fixed when the candidate left the queue."""

    incumbent_entry: EntryName = Field(description="The serving entry that the candidate must beat and trains on from.")
    incumbent_digest: DigestField | None = Field(default=None, description="The incumbent adapter's digest. Absent: the base serves.")
    policy: ObjectName = Field(description="The gate policy in force.")
    policy_digest: DigestField = Field(description="Digest of the policy's spec.")
    started_at: Timestamp = Field(description="When the candidate left the queue.")
    window_from: Timestamp | None = Field(default=None, description="Start of the traffic window, inclusive.")
    window_to: Timestamp | None = Field(default=None, description="End of the traffic window, exclusive.")


class SnapshotStatus(Contract):
    """The snapshot a candidate trains on."""

    digest: DigestField = Field(description="The snapshot's digest.")
    rows: int = Field(description="Replies in the training side of the snapshot.")
    rewarded: int = Field(description="Replies with a score.")


class AdapterStatus(Contract):
    """The adapter a candidate made."""

    name: ShortText = Field(description="The adapter's name in the engine.")
    digest: DigestField = Field(description="The adapter's digest.")
    attempt: ShortText = Field(description="The attempt that made it.")


class EvidenceStatus(Contract):
    """Where the evidence lies."""

    uri: Uri = Field(description="Directory in the sealed area.")
    digest: DigestField = Field(description="sha256 of report.json, which names every other file by digest.")


class JobStatus(Contract):
    """One attempt."""

    name: ObjectName = Field(description="The Job's name.")
    step: ShortText = Field(description="draw, snapshot, train, fetch or evaluate.")
    attempt: int = Field(description="The attempt's number at this step.")
    exit_code: int | None = Field(default=None, description="How it ended; see the list of exit codes. Absent while it runs.")


class DecisionStatus(Contract):
    """How the candidate ended."""

    verdict: ShortText = Field(description="What the gate said, or how the candidate ended without a verdict.")
    reason: ShortText = Field(description="Why, in one word; see the list of reasons in the documentation.")
    entry: EntryName | None = Field(default=None, description="The release log entry of the decision.")
    effect_basis_points: int | None = Field(default=None, description="Rounded gain on the primary suite; on Accept only.")


class AdapterCandidateStatus(Contract):
    """Where the candidate is; derived, never an input of the gate."""

    observed_generation: int = Field(default=0, description="The metadata.generation that this status was made for.")
    state: CandidateState = Field(default=CandidateState.QUEUED, description="Where the candidate is, in one word.")
    conditions: Conditions = ()
    facts: Facts | None = Field(default=None, description="What was fixed when the candidate left the queue.")
    snapshot: SnapshotStatus | None = Field(default=None, description="The snapshot it trains on.")
    adapter: AdapterStatus | None = Field(default=None, description="The adapter it made.")
    jobs: Annotated[tuple[JobStatus, ...], Field(max_length=32)] = Field(default=(), description="Its Jobs, oldest first.")
    test: EntryName | None = Field(default=None, description="The Test entry that paid for its evaluation.")
    evidence: EvidenceStatus | None = Field(default=None, description="Where the evidence lies.")
    decision: DecisionStatus | None = Field(default=None, description="How it ended.")


class ChannelRef(Contract):
    """The channel an entry belongs to."""

    name: Name = Field(description="The channel's name.")
    uid: Uid = Field(description="The channel's metadata.uid.")


class CandidateRef(Contract):
    """The candidate an entry is about."""

    name: Name = Field(description="The candidate's name.")
    uid: Uid = Field(description="The candidate's metadata.uid.")


class Serves(Contract):
    """What the alias answers from after this entry: an adapter, or the base."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            (
                "[has(self.adapter), has(self.digest), has(self.uri), has(self.rank)].all(part, part != has(self.base))",
                "set base, or adapter with digest, uri and rank",
            )
        )
    )

    base: Literal[True] | None = Field(default=None, description="The base answers.")
    adapter: ShortText | None = Field(default=None, description="The adapter's name in the engine.")
    digest: DigestField | None = Field(default=None, description="The adapter's digest.")
    uri: Uri | None = Field(default=None, description="The adapter's directory in the data area.")
    rank: int | None = Field(default=None, description="The adapter's LoRA rank.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        adapter = (self.adapter, self.digest, self.uri, self.rank)
        if (self.base is None) == any(value is None for value in adapter) or (self.base and any(value is not None for value in adapter)):
            raise ValueError("set base, or adapter with digest, uri and rank")
        return self


class Lineage(Contract):
    """Where an adapter came from."""

    parent_digest: DigestField | None = Field(default=None, description="The adapter it was trained on from; absent for the base.")
    base_digest: DigestField = Field(description="The base model.")
    adapter_digest: DigestField | None = Field(default=None, description="The adapter itself.")
    snapshot_digest: DigestField | None = Field(default=None, description="The snapshot it was trained on.")
    artifact_digest: DigestField | None = Field(default=None, description="The directory it was fetched from.")
    trainer_image: ShortText | None = Field(default=None, description="The image that trained it.")
    recipe: ShortText | None = Field(default=None, description="The loss it was trained with.")


class GateFacts(Contract):
    """What a test was paid for and judged on."""

    policy_digest: DigestField = Field(description="Digest of the policy in force.")
    round: int = Field(description="The round's number.")
    test: int = Field(description="The test's number in its round.")
    incumbent_digest: DigestField | None = Field(default=None, description="The incumbent adapter; absent for the base.")
    anchor_digest: DigestField | None = Field(default=None, description="The anchor adapter; absent for the base.")
    evidence: EvidenceStatus | None = Field(default=None, description="Where the evidence lies.")
    effect_basis_points: int | None = Field(default=None, description="Rounded effect on the primary suite; on Accept only.")


class Opening(Contract):
    """What an Open entry fixes."""

    base: Base = Field(description="The base model of every later entry.")
    policy_digest: DigestField | None = Field(default=None, description="Digest of the first policy in force.")
    adopted_uid: Uid | None = Field(default=None, description="The former channel's uid, where its log was adopted.")


SentinelKind = Literal["Same", "Bad"]
"""Same: the incumbent against itself, which must not be accepted. Bad: an adapter of noise, which must be rejected."""


class SentinelRef(Contract):
    """A candidate of the operator's own whose right verdict is known. Its digest names the recipe that it is made by in its Pod."""

    kind: SentinelKind = Field(description="Same: the incumbent itself, not to be accepted. Bad: an adapter of noise, to be rejected.")
    number: int = Field(ge=1, le=999_999, description="The sentinel's number in its channel: from 1, growing, never used again.")
    traffic_round: int | None = Field(
        default=None, ge=1, le=999_999, description="The ended round whose traffic it is asked again; only where the policy takes traffic."
    )

    @property
    def uid(self) -> str:
        """What stands for a candidate's uid in its Jobs and evidence: nothing that Kubernetes gives to an object."""
        return f"sentinel-{self.number}"


class AdapterReleaseSpec(Contract):
    """One entry of a channel's log: hash-chained, signed, immutable."""

    version: Literal[1] = Field(default=1, description="Version of the entry's format.")
    channel: ChannelRef = Field(description="The channel whose log this is.")
    sequence: int = Field(ge=0, le=999_999, description="The entry's place in the log, from 0; the object is named <channel>-<six digits>.")
    action: Action = Field(description="What the entry does.")
    reason: EntryReason = Field(description="Why, in one word.")
    message: Message = Field(default="", description="Why, in a sentence.")
    verdict: Verdict | None = Field(default=None, description="What the gate said; on Accept, Reject and the end of a Sentinel only.")
    candidate: CandidateRef | None = Field(default=None, description="The candidate the entry is about.")
    serves: Serves | None = Field(default=None, description="What the alias answers from after this entry.")
    restores: EntryName | None = Field(default=None, description="Rollback: the serving entry that is restored.")
    anchor: AnchorInForce | None = Field(default=None, description="Anchor: what the anchor is from here on.")
    lifts: EntryName | None = Field(default=None, description="Unfreeze: the freezing entry that is lifted.")
    opening: Opening | None = Field(default=None, description="What an Open entry fixes.")
    lineage: Lineage | None = Field(default=None, description="Where the adapter came from.")
    gate: GateFacts | None = Field(default=None, description="What a test was paid for and judged on.")
    sentinel: SentinelRef | None = Field(default=None, description="The sentinel that begins or has ended; its round is its number.")
    policy: GatePolicySpec | None = Field(default=None, description="Policy and Open: the whole policy that is in force from here on.")
    actor: ShortText = Field(description="Who decided: the operator, or the person it acted for.")
    decided_at: Timestamp = Field(description="When it was decided.")
    operator_version: ShortText = Field(description="Version of the operator that wrote the entry.")
    previous_digest: DigestField | None = Field(default=None, description="Digest of the entry before; absent on the first.")
    key_id: DigestField = Field(description="sha256 of the certificate whose key signed the entry.")
    digest: DigestField | None = Field(default=None, description="sha256 over the canonical entry without digest and signature.")
    signature: ShortText | None = Field(default=None, description="ed25519 over the entry's signing context and canonical bytes, base64.")

    def sealed_bytes(self) -> bytes:
        """The canonical bytes that `digest` names: the entry without digest and signature."""
        return self.model_copy(update={"digest": None, "signature": None}).canonical()


class PodFailure(Contract):
    """Why a pod does not serve the release."""

    pod: ObjectName = Field(description="The pod's name.")
    reason: ShortText = Field(description="Why, in one word; see the list of reasons in the documentation.")
    message: Message = Field(default="", description="Why, in a sentence.")


class Timings(Contract):
    """How long the rollout took, in milliseconds."""

    preload_ms: int | None = Field(default=None, description="From the entry to enough verified pods.")
    flip_ms: int | None = Field(default=None, description="From the commit to the last pod answering from the entry.")


class AdapterReleaseStatus(Contract):
    """What happened to a serving entry on the pods."""

    conditions: Conditions = ()
    pods: PodsStatus | None = Field(default=None, description="Pods of the pool by what they report of this entry.")
    failures: Annotated[tuple[PodFailure, ...], Field(max_length=10)] = Field(
        default=(), description="Pods that could not take it, at most ten."
    )
    timings: Timings | None = Field(default=None, description="How long the rollout took.")
    live_since: Timestamp | None = Field(default=None, description="When the alias began to answer from it.")
    exported: bool = Field(default=False, description="The entry's exact bytes lie in the external log.")
