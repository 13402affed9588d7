"""Files in the store: manifests, traffic segments, snapshot rows, rounds and evidence. Manifests hold no floats."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictInt, model_validator

from gatevalve.contracts.canonical import SAFE_INTEGER, Digest, digest_of_files
from gatevalve.contracts.model import Contract, Decimal, DigestField, EntryName, Name, ShortText, Timestamp, Uid

SCORE_DIGITS = 6
LOGPROB_DIGITS = 6


class FileFact(Contract):
    """A file named by a manifest."""

    path: ShortText
    size: int
    sha256: DigestField


# ---- adapters


class Probe(Contract):
    """One-token log-probabilities recorded by the trainer: a prompt, likely next tokens, and how likely under adapter and base."""

    prompt_token_ids: Annotated[tuple[int, ...], Field(min_length=1, max_length=512)]
    token_ids: Annotated[tuple[int, ...], Field(min_length=1, max_length=20)]
    adapter_logprobs: tuple[Decimal, ...]
    base_logprobs: tuple[Decimal, ...]

    @model_validator(mode="after")
    def _one_value_a_token(self) -> Self:
        if not len(self.token_ids) == len(self.adapter_logprobs) == len(self.base_logprobs):
            raise ValueError("token_ids, adapter_logprobs and base_logprobs must be equally long")
        return self


class AdapterManifest(Contract):
    """MANIFEST.json of a published adapter; `digest` covers adapter_config.json and adapter_model.safetensors."""

    version: Literal[1] = 1
    digest: DigestField
    files: tuple[FileFact, ...]
    base_digest: DigestField
    rank: int
    alpha: int
    target_modules: tuple[ShortText, ...]
    parent_digest: DigestField | None = None
    snapshot_digest: DigestField | None = None
    artifact_digest: DigestField | None = None
    recipe: ShortText | None = None
    probes: Annotated[tuple[Probe, ...], Field(min_length=1, max_length=16)]

    def files_digest(self) -> Digest:
        """The digest that `files` add up to."""
        return digest_of_files([(file.path, file.size, Digest(file.sha256)) for file in self.files])


# ---- traffic


class TrafficRecord(Contract):
    """One line of a traffic segment: a served reply. Floats are allowed: lines are named by their segment's bytes."""

    kind: Literal["reply"] = "reply"
    id: ShortText
    choice: int
    at: Timestamp
    channel: Name
    entry: EntryName
    adapter_digest: DigestField | None = None
    base_digest: DigestField
    route: Literal["chat", "completions"]
    messages: list[dict[str, Any]] | None = None
    prompt: str | None = None
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    text: str
    finish_reason: str | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    exact: bool = Field(description="Temperature 1 and no filter or penalty: logged log-probabilities are the policy's own.")
    max_tokens: int | None = None
    seed: int | None = None


class FeedbackRecord(Contract):
    """One line of a traffic segment: a score for a reply."""

    kind: Literal["feedback"] = "feedback"
    id: ShortText
    at: Timestamp
    score: float
    label: str | None = None


class SnapshotRow(Contract):
    """One row of train/*.parquet: a reply of the incumbent, joined with its score."""

    row_id: str
    created_at: str
    entry: str
    adapter_digest: str = Field(description="'base' when no adapter served.")
    prompt_token_ids: list[int]
    response_token_ids: list[int]
    response_logprobs: list[float] = Field(description="Same length as response_token_ids, finite, never padded.")
    behavior_exact: bool
    finish_reason: str
    score: float | None
    response_text: str
    messages: str = Field(description="JSON text.")


class SnapshotManifest(Contract):
    """MANIFEST.json of a snapshot; the snapshot's digest is sha256 over its canonical bytes."""

    version: Literal[1] = 1
    channel_uid: Uid
    window_from: Timestamp
    window_to: Timestamp
    incumbent_digest: DigestField | None = None
    base_digest: DigestField
    segments: tuple[FileFact, ...]
    files: tuple[FileFact, ...]
    rows: int
    rewarded: int = Field(description="Rows with a score.")
    mean_score: Decimal | None = None
    dropped: dict[str, int] = Field(description="Replies left out, by reason.")
    split: dict[str, int] = Field(description="Replies by side of the keyed split: train, sealed, drift.")


# ---- rounds and evidence


class Item(Contract):
    """One item of a suite."""

    id: ShortText
    cluster: ShortText = Field(description="Items of one cluster are not independent; the item's own id otherwise.")
    messages: tuple[dict[str, str], ...] = Field(description="Chat messages sent to every arm.")
    answer: str | None = Field(default=None, description="The reference the verifier compares with.")
    kind: ShortText | None = None


FEWEST_CANARIES = 20
"""Of fewer pairs, nobody can tell whether 95 of 100 come out right."""


class Canary(Contract):
    """One line of a judge's canaries: a conversation and two replies to it, of which one is better beyond doubt."""

    id: ShortText
    messages: Annotated[tuple[dict[str, str], ...], Field(min_length=1, description="Chat messages that both replies answer.")]
    better: str
    worse: str

    @model_validator(mode="after")
    def _two_replies(self) -> Self:
        if self.better == self.worse:
            raise ValueError("better and worse must differ: equal replies are a tie without asking")
        return self


class SuiteFact(Contract):
    """The item set of one suite of a round."""

    name: Name
    path: ShortText
    items: int
    sha256: DigestField


class RoundManifest(Contract):
    """MANIFEST.json of a round's sealed items."""

    version: Literal[1] = 1
    channel_uid: Uid
    number: int
    policy_digest: DigestField
    suites: tuple[SuiteFact, ...]
    mark: ShortText | None = Field(default=None, description="HMAC of the rest under the sealed seed: drawn by an evaluation, not planted.")


Arm = Literal["candidate", "incumbent", "anchor"]
ARMS: tuple[Arm, ...] = ("candidate", "incumbent", "anchor")


BASELINES: tuple[Arm, ...] = ("incumbent", "anchor")

Failure = Literal["Engine", "Verifier"]
"""Why a decode has no score: the engine gave no usable reply, or its verifier failed on it."""


class Style(Contract):
    """The form of one reply, measured on its text."""

    repetition: StrictInt = Field(description="Share of the reply's four-grams of tokens that occurred before in it, in millionths.")
    markup: bool = Field(description="It holds a heading, list, bold text, code fence, table or box.")
    addresses_judge: bool = Field(description="It speaks to a judge or of scores, or hides characters.")
    avoids: bool = Field(description="It refuses, is empty, or only asks back.")


class Likelihood(Contract):
    """Log-probabilities of one reply of the candidate under every arm's weights, in micronats; sums over its tokens, temperature 1.

    `k3_*` sums r - 1 - ln r with r = p_baseline / p_candidate over the tokens (Schulman, "Approximating KL divergence", 2020).
    """

    candidate: StrictInt
    incumbent: StrictInt
    anchor: StrictInt
    k3_incumbent: StrictInt
    k3_anchor: StrictInt


class PairRow(Contract):
    """One line of pairs.jsonl.gz: the answers of every arm to one item of one suite, one entry a decode.

    Scores are integers in millionths (0..1_000_000); tokens are counts; a missing answer is null in all lists, with its failure.
    Styles and likelihoods are measured on Behaviour suites only; the screen is asked of candidate and incumbent only.
    """

    suite: Name
    item: ShortText
    cluster: ShortText
    scores: dict[Arm, tuple[StrictInt | None, ...]]
    tokens: dict[Arm, tuple[StrictInt | None, ...]]
    finishes: dict[Arm, tuple[ShortText | None, ...]]
    texts: dict[Arm, tuple[DigestField | None, ...]] = Field(description="sha256 of each reply's text.")
    failures: dict[Arm, tuple[Failure | None, ...]] = Field(description="Why an answer is missing; null where it is there.")
    styles: dict[Arm, tuple[Style | None, ...]] | None = None
    likelihoods: tuple[Likelihood | None, ...] | None = Field(default=None, description="Of the candidate's replies.")


SCORE_ONE = 1_000_000
"""The score of a right answer in PairRow."""


class JudgeFact(Contract):
    """How a judge did on pairs whose better reply is known."""

    suite: Name
    model: ShortText
    prompt: int = Field(ge=1, description="Version of the words that the judge was asked with.")
    canaries: int = Field(description="Pairs asked, each in both orders.")
    right: int = Field(description="Pairs that came out right in both orders.")


Stage = Literal["Screen", "Full"]
"""How far a test was measured: a candidate that the screen found hopeless has rows of the screen only."""


class EvidenceReport(Contract):
    """report.json: what the evaluation measured, on what, for whom. It states no verdict."""

    version: Literal[1] = 1
    test_entry: EntryName
    test_digest: DigestField = Field(description="Digest of the Test entry this look was paid with.")
    channel_uid: Uid
    candidate_uid: Uid
    round: int
    policy_digest: DigestField
    base_digest: DigestField
    candidate_digest: DigestField
    incumbent_digest: DigestField | None = None
    anchor_digest: DigestField | None = None
    stage: Stage
    suites: tuple[SuiteFact, ...]
    judges: tuple[JudgeFact, ...] = ()
    pairs: FileFact
    engine: ShortText = Field(description="Engine and version that answered.")
    arms: dict[Arm, ShortText] = Field(description="Model name asked for each arm.")
    mark: ShortText | None = Field(
        default=None, description="HMAC of the rest under the sealed seed: measured by an evaluation, not planted."
    )

    @model_validator(mode="after")
    def _every_arm(self) -> Self:
        if set(self.arms) != set(ARMS):
            raise ValueError(f"arms must name {', '.join(ARMS)}")
        return self


class Progress(Contract):
    """progress.json in a test's evidence directory while it is measured. Counts only; `of` is the same whatever the screen says."""

    answered: Annotated[StrictInt, Field(ge=0, le=SAFE_INTEGER, description="Answers there are: one an item and arm.")]
    of: Annotated[StrictInt, Field(ge=0, le=SAFE_INTEGER, description="Answers of a test that is measured to its end.")]
    per_second: Annotated[str, Field(max_length=16, pattern=r"^[0-9]{1,9}\.[0-9]$", description="Answers a second in this attempt.")]
    seconds_left: Annotated[StrictInt, Field(ge=0, le=SAFE_INTEGER, description="Seconds left at that rate.")]
