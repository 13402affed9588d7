"""Every state, verdict, reason and finding with its sentence; the reference pages are generated from here."""

from __future__ import annotations

from enum import StrEnum


class Explained(StrEnum):
    """A string enum whose members carry one sentence for people."""

    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> Explained:
        """Keep the sentence beside the value."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member


class Verdict(Explained):
    """What the gate says of a test."""

    ACCEPTED = "Accepted", "Every check passed; the adapter may serve."
    REJECTED = "Rejected", "At least one check failed on sound evidence."
    INCONCLUSIVE = "Inconclusive", "The evidence does not allow a verdict; no evidence is never a pass."


class Outcome(Explained):
    """What one check says."""

    PASS = "Pass", "The bound is met."
    FAIL = "Fail", "The bound is broken on sound evidence."
    INSUFFICIENT = "Insufficient", "There is too little or unsound evidence for this check."


class Action(Explained):
    """What a log entry does."""

    OPEN = "Open", "The channel's log starts: base, policy, anchor and key are fixed."
    TEST = "Test", "A look at sealed items is paid for, before the evaluation Job exists."
    ACCEPT = "Accept", "The gate accepted the candidate's adapter."
    REJECT = "Reject", "The gate rejected the candidate or could not judge it."
    PROMOTE = "Promote", "An accepted adapter becomes the live release."
    ROLLBACK = "Rollback", "An earlier entry's adapter, or the base, becomes the live release again."
    POLICY = "Policy", "Another policy digest is in force."
    SENTINEL = "Sentinel", "A probe of the gate itself begins or has ended; nothing of it can ever be released."
    ANCHOR = "Anchor", "Another anchor is in force: every later test is measured against it."
    FREEZE = "Freeze", "Nothing is dequeued, put to a test or promoted from here on; what serves goes on, and a way back stays open."
    UNFREEZE = "Unfreeze", "A person lifted the newest freeze."


SERVING_ACTIONS = frozenset({Action.OPEN, Action.PROMOTE, Action.ROLLBACK})
"""Entries that say what the alias answers from."""


class EntryReason(Explained):
    """Why an entry was written."""

    CHANNEL_OPENED = "ChannelOpened", "The channel was created."
    CHANNEL_ADOPTED = "ChannelAdopted", "A recreated channel was adopted by annotation."
    TEST_OPENED = "TestOpened", "A trained candidate is to be evaluated."
    GATE_PASSED = "GatePassed", "All checks passed."
    APPROVED = "Approved", "A person approved the accepted candidate."
    PRIMARY_NOT_PASSED = "PrimaryNotPassed", "The sealed primary suite did not show the required gain; details stay in the evidence area."
    GUARD_REGRESSED = "GuardRegressed", "A guard suite could not be shown to be no worse than the incumbent within its margin."
    ANCHOR_REGRESSED = "AnchorRegressed", "A guard suite could not be shown to be no worse than the anchor within its margin."
    BELOW_FLOOR = "BelowFloor", "A suite is not shown to be above its absolute floor."
    MUST_PASS_FAILED = "MustPassFailed", "A reply to a must-pass suite is not wholly right."
    BEHAVIOUR_CHANGED = "BehaviourChanged", "Replies on a behaviour suite left the allowed range; the message names what changed."
    CHURNED = "Churned", "Too many answers that the incumbent has right went wrong, beyond its own noise."
    EVIDENCE_UNSOUND = "EvidenceUnsound", "Evidence is missing, short, duplicated, foreign or not finite, or its judge failed its canaries."
    EVIDENCE_FAILED = "EvidenceFailed", "The evaluation ended without complete evidence."
    NOT_AUTHORIZED = "NotAuthorized", "The candidate's parent, digests, budget or quarantine forbid a release."
    TRAINING_DIVERGED = "TrainingDiverged", "Training diverged; no adapter exists."
    CANDIDATE_DELETED = "CandidateDeleted", "The candidate was deleted after its test was opened."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "The candidate ran past its deadline after its test was opened."
    STALE = "Stale", "The incumbent or the policy in force changed after the test was opened."
    PINNED = "Pinned", "A person pinned an earlier entry."
    ROLLOUT_FAILED = "RolloutFailed", "The promotion did not settle on enough pods in time."
    POLICY_CHANGED = "PolicyChanged", "The channel names another policy, at least as strict in everything as the one in force."
    POLICY_UNAPPROVED = (
        "PolicyUnapproved",
        "The channel names a policy that is looser somewhere; the one before stays in force until a person approves.",
    )
    POLICY_APPROVED = "PolicyApproved", "A person approved a policy that is looser somewhere than the one before."
    ANCHOR_MOVED = "AnchorMoved", "A person moved the anchor to what an earlier entry serves."
    ANCHOR_RESET = "AnchorReset", "The channel names no anchor any more: the base is the anchor again."
    SENTINEL_OPENED = "SentinelOpened", "A candidate whose right verdict is known is to be evaluated."
    SENTINEL_PASSED = "SentinelPassed", "A candidate whose right verdict is known got it."
    SENTINEL_INCONCLUSIVE = "SentinelInconclusive", "A sentinel ended without evidence that could be judged; it tells nothing of the gate."
    SENTINEL_FAILED = "SentinelFailed", "A candidate whose right verdict is known got the wrong one: the gate cannot be relied on."
    UNFROZEN = "Unfrozen", "The channel's annotation gatevalve.dev/unfreeze names the newest freeze."


FREEZE_REASONS = frozenset({EntryReason.SENTINEL_FAILED})
"""Reasons that a Freeze entry can have."""


class CandidateState(Explained):
    """Where a candidate is; terminal states never change."""

    QUEUED = "Queued", "Waiting for its turn in the channel."
    DRAWING = "Drawing", "The round's items are being drawn."
    SNAPSHOTTING = "Snapshotting", "A snapshot of captured traffic is being frozen."
    FETCHING = "Fetching", "The artifact is being verified and copied."
    TRAINING = "Training", "A training Job runs."
    EVALUATING = "Evaluating", "An evaluation Job measures the candidate against the incumbent and the anchor."
    ACCEPTED = "Accepted", "The gate accepted it; it waits to be promoted."
    PROMOTED = "Promoted", "It was promoted; the release tells whether it is live."
    REJECTED = "Rejected", "The gate rejected it."
    INCONCLUSIVE = "Inconclusive", "The gate could not judge it."
    SKIPPED = "Skipped", "There was nothing to learn from."
    ERRORED = "Errored", "A step failed for good; the message says what to do."
    ABORTED = "Aborted", "It was overtaken, denied or deleted."


TERMINAL_STATES = frozenset(
    {
        CandidateState.PROMOTED,
        CandidateState.REJECTED,
        CandidateState.INCONCLUSIVE,
        CandidateState.SKIPPED,
        CandidateState.ERRORED,
        CandidateState.ABORTED,
    }
)


class Step(Explained):
    """A Job of a candidate."""

    DRAW = "draw", "Draws the round's items and finds everything that a test needs, before anything is trained or paid."
    SNAPSHOT = "snapshot", "Freezes captured traffic into a snapshot."
    TRAIN = "train", "Trains an adapter on a snapshot."
    FETCH = "fetch", "Verifies and copies an artifact made elsewhere."
    EVALUATE = "evaluate", "Publishes the adapter and measures it."
    SENTINEL = "sentinel", "Measures a candidate of the operator's own, whose right verdict is known; nothing of it is published."


class CandidateCondition(Explained):
    """Condition types of an AdapterCandidate."""

    SNAPSHOT_READY = "SnapshotReady", "The snapshot it trains on exists."
    TRAINED = "Trained", "Its adapter exists."
    EVALUATED = "Evaluated", "Its evidence exists and is verified."
    DECIDED = "Decided", "It has reached its end; reason and message tell which."


class ChannelCondition(Explained):
    """Condition types of an AdapterChannel."""

    READY = "Ready", "Spec is valid, log is valid, and the live release serves on every reachable pod."
    SERVING = "Serving", "Pods answer the alias from the live release."
    LOG_VALID = "LogValid", "The log is gapless, signed, and equal to its external copy."
    GATE_READY = "GateReady", "The policy exists, can be read, and is in force."
    ROUND_WAITING = "RoundWaiting", "No test can be opened: the round in force has too few fresh items, and candidates wait."
    FROZEN = "Frozen", "The log freezes the channel: nothing is dequeued, put to a test or promoted until a person lifts it."
    SENTINELS_PASSED = "SentinelsPassed", "The newest sentinel of each kind got the verdict that is right for it."
    UNDERPOWERED = (
        "Underpowered",
        "Tests under the policy in force are too small for the gain they should see, by planning variance alone; it stops nothing.",
    )
    UNTAMPERED = (
        "Untampered",
        "For an hour nobody else has changed documents, keys, adapters, evidence or statuses of the channel, or gone past its alias.",
    )


class ConditionReason(Explained):
    """Reasons of conditions."""

    AS_EXPECTED = "AsExpected", "Nothing to do."
    WAITING = "Waiting", "Waiting for its turn."
    IN_PROGRESS = "InProgress", "A step is running."
    DONE = "Done", "The step is done."
    NOT_NEEDED = "NotNeeded", "This step does not apply to this candidate."
    CHANNEL_MISSING = "ChannelMissing", "The channel does not exist in this namespace."
    POLICY_MISSING = "PolicyMissing", "The gate policy does not exist in this namespace."
    POLICY_UNAPPROVED = "PolicyUnapproved", "The policy is looser somewhere than the one in force; set spec.gatePolicyApproval."
    CHANNEL_NOT_READY = "ChannelNotReady", "The channel cannot take candidates; its conditions tell why."
    SPEC_INVALID = "SpecInvalid", "The spec breaks its contract."
    BEHIND_ANOTHER = "BehindAnother", "Another candidate of the channel is in flight or older."
    SERVING_UNSETTLED = "ServingUnsettled", "The last serving entry is not settled on the pods."
    CHANNEL_PAUSED = "ChannelPaused", "The channel is paused."
    CHANNEL_PINNED = "ChannelPinned", "The channel is pinned; nothing is promoted."
    FROZEN = "Frozen", "The channel is frozen; annotate it with gatevalve.dev/unfreeze: <freezing entry> to go on."
    SENTINEL_RUNNING = "SentinelRunning", "The gate itself is probed; candidates wait until that has ended."
    GATE_UNPROBED = "GateUnprobed", "A sentinel failed, and under the policy in force none can run that could pass."
    SENTINELS_OFF = "SentinelsOff", "The policy in force asks for no sentinels."
    UNDERPOWERED = "Underpowered", "Fewer than 8 of 10 tests see the policy's minDetectableEffectBasisPoints, or nothing tells how many do."
    AWAITING_APPROVAL = "AwaitingApproval", "The channel asks for a person's approval."
    GATE_PASSED = "GatePassed", "All checks passed."
    NO_SIGNAL = "NoSignal", "Too few rows, or no spread in their rewards."
    ITEM_SUPPLY = "ItemSupply", "There are too few fresh items for a round; the message says how many, or that a fixed file is used up."
    STEP_FAILED = "StepFailed", "A step failed for good."
    CONTRACT_BROKEN = "ContractBroken", "An input of a step breaks its contract."
    CAPTURE_BROKEN = "CaptureBroken", "Logged log-probabilities do not replay."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "The deadline passed."
    STALE = "Stale", "The incumbent changed, or after its test the policy in force."
    DENIED = "Denied", "A person denied the candidate."
    NO_PODS = "NoPods", "No pod carries the pool's label."
    NO_REACHABLE_PODS = "NoReachablePods", "No pod of the pool answers."
    ROLLING_OUT = "RollingOut", "The release is being preloaded, verified or flipped."
    PODS_DEGRADED = "PodsDegraded", "The release serves, but some pods failed and are excluded."
    CAPACITY_EXCEEDED = "CapacityExceeded", "The pods have too few LoRA slots."
    ALIAS_CONFLICT = "AliasConflict", "The alias equals another served name."
    RUNTIME_LORA_DISABLED = "RuntimeLoRADisabled", "The pods do not allow loading LoRA adapters at run time."
    LOG_INVALID = "LogInvalid", "The log is broken, differs from its external copy or does not stand its audit; nothing new is promoted."
    EXTERNAL_LOG_UNAVAILABLE = "ExternalLogUnavailable", "The external log cannot be read or written; promotions wait, a rollback does not."
    UID_CHANGED = "UidChanged", "The channel was recreated; annotate it with gatevalve.dev/adopt: <old uid> to go on with its log."
    QUARANTINED = "Quarantined", "The adapter's digest was rejected or rolled back before; it gets no second test."
    DOCUMENT_FORGED = "DocumentForged", "The pool's ConfigMap was edited; pods refused it and the operator has restored it."
    KEYS_FORGED = (
        "KeysForged",
        "ConfigMap gatevalve-keys was edited; pods trust the digest in their own spec, and the operator has restored it.",
    )
    ADAPTER_FORGED = "AdapterForged", "An adapter's files in the store are not what its digest names; pods do not load them."
    EVIDENCE_FORGED = "EvidenceForged", "Evidence is not what the evaluation Job named, or a file beside it is not from an evaluation."
    STATUS_FORGED = "StatusForged", "A candidate's status named a verdict that the log does not hold; it was written anew."
    UNAUTHORIZED_ADAPTER = "UnauthorizedAdapter", "An engine holds an adapter that no entry of the log put there; no alias leads to it."
    UNAUTHORIZED_REQUEST = "UnauthorizedRequest", "A request tried to load, unload or name an adapter past the alias; the pod refused it."


class EventReason(Explained):
    """Reasons of Kubernetes Events."""

    STEP_STARTED = "StepStarted", "A Job was created."
    STEP_FAILED = "StepFailed", "A Job failed; message says what follows."
    TEST_OPENED = "TestOpened", "A Test entry was written."
    ACCEPTED = "Accepted", "The gate accepted a candidate."
    REJECTED = "Rejected", "The gate rejected a candidate."
    INCONCLUSIVE = "Inconclusive", "The gate could not judge a candidate."
    SKIPPED = "Skipped", "A candidate had nothing to learn from."
    ERRORED = "Errored", "A candidate failed for good."
    ABORTED = "Aborted", "A candidate was overtaken, denied or deleted."
    PROMOTED = "Promoted", "A Promote entry was written."
    ROLLED_BACK = "RolledBack", "A Rollback entry was written."
    LIVE = "Live", "A release is live on the pods."
    LOG_INVALID = "LogInvalid", "The log is broken."
    POLICY_CHANGED = "PolicyChanged", "Another policy is in force."
    POLICY_UNAPPROVED = "PolicyUnapproved", "The channel names a looser policy; nothing is promoted until a person approves it."
    ANCHOR_MOVED = "AnchorMoved", "Another anchor is in force."
    FROZEN = "Frozen", "The channel was frozen; nothing is dequeued, put to a test or promoted until a person lifts it."
    UNFROZEN = "Unfrozen", "A person lifted the freeze of the channel."
    SENTINEL_PASSED = "SentinelPassed", "A sentinel got the verdict that is right for it."
    SENTINEL_FAILED = "SentinelFailed", "A sentinel got the wrong verdict: the gate cannot be relied on."
    SENTINEL_INCONCLUSIVE = "SentinelInconclusive", "A sentinel ended without a verdict."
    TAMPERED = "Tampered", "Somebody else changed what only gatevalve may change, or tried to go round an alias."


class PodReason(Explained):
    """Why a serving pod refuses or fails."""

    MALFORMED = "Malformed", "The document breaks its contract."
    UNSIGNED = "Unsigned", "The document's signature does not verify."
    KEY_UNKNOWN = "KeyUnknown", "The signing key is not the one named in the pod's own spec."
    REVISION_OLD = "RevisionOld", "The document is older than the one held."
    REVISION_CONFLICT = "RevisionConflict", "A different document with the same revision is held."
    FOREIGN_DOCUMENT = "ForeignDocument", "The document is for another namespace, pool or channel."
    ALIAS_CONFLICT = "AliasConflict", "The alias equals the base's name, an adapter or another channel's alias."
    BASE_MISMATCH = "BaseMismatch", "The document is for another base."
    ADAPTER_MISSING = "AdapterMissing", "The store lacks the adapter or its MANIFEST."
    DIGEST_MISMATCH = "DigestMismatch", "The adapter's bytes do not match the digest."
    ADAPTER_UNSUPPORTED = "AdapterUnsupported", "The adapter's shape, rank or kind does not fit the base or the engine."
    CAPACITY_EXCEEDED = "CapacityExceeded", "There is no free LoRA slot."
    RUNTIME_LORA_DISABLED = "RuntimeLoRADisabled", "The engine does not load adapters at run time."
    LOAD_FAILED = "LoadFailed", "The engine refused to load the adapter."
    PROBE_FAILED = "ProbeFailed", "The loaded adapter does not answer as its trainer recorded."


class Finding(Explained):
    """What a check found; public findings become an entry's reason in the gate's disclosure."""

    OK = "Ok", "The check passed."
    EVIDENCE_ROWS = "EvidenceRows", "Rows are missing, short, duplicated or foreign."
    EVIDENCE_NUMBERS = "EvidenceNumbers", "A number is missing, not finite or out of range."
    EVIDENCE_DIGESTS = "EvidenceDigests", "The evidence was made for other digests."
    EVIDENCE_SIZE = "EvidenceSize", "There are too few items or clusters."
    EVIDENCE_MISSING = "EvidenceMissing", "Too large a share of the answers is missing."
    EVIDENCE_JUDGE = "EvidenceJudge", "The judge is another than the policy's, or does not tell better replies from worse ones."
    HOPELESS = "Hopeless", "The screen shows too little prospect of a gain to measure any further."
    SCREEN_ONLY = "ScreenOnly", "Only the screen was measured, although it does not end the test."
    EFFECT_TOO_SMALL = "EffectTooSmall", "The gain is below the least worthwhile one."
    NOT_SIGNIFICANT = "NotSignificant", "The gain could be chance."
    WORSE_THAN_MARGIN = "WorseThanMargin", "The loss is not shown to be within the margin."
    BELOW_ANCHOR = "BelowAnchor", "The loss against the anchor is not shown to be within the margin."
    BELOW_FLOOR = "BelowFloor", "The rate is not shown to be above the floor."
    MUST_PASS_FAILED = "MustPassFailed", "A reply that must be wholly right is not."
    NO_REPLIES = "NoReplies", "There are no replies to measure."
    GAIN_BY_LENGTH = "GainByLength", "Longer or shorter replies may explain too much of the gain."
    LENGTH_RATIO = "LengthRatio", "Replies became much longer or much shorter than the incumbent's."
    REPETITION = "Repetition", "Replies repeat themselves more than the anchor's."
    TRUNCATION = "Truncation", "More replies than the anchor's run into the limit of their length."
    DIVERSITY = "Diversity", "Replies are less diverse than the anchor's."
    KL_INCUMBENT = "KlIncumbent", "Replies are too unlikely under the incumbent."
    KL_ANCHOR = "KlAnchor", "Replies are too unlikely under the anchor."
    FORMAT_SHIFT = "FormatShift", "Replies with markup became much more or much less frequent than the anchor's."
    JUDGE_TEXT = "JudgeText", "More replies than the anchor's address a judge or hide characters."
    AVOIDANCE = "Avoidance", "More replies than the anchor's refuse, are empty or only ask back."
    CHURNED = "Churned", "Too many answers that the incumbent has right went wrong, beyond its own noise."
    POLICY_FOREIGN = "PolicyForeign", "The policy is not the one the test was paid under."
    BASE_FOREIGN = "BaseForeign", "The adapter was made for another base."
    PARENT_FOREIGN = "ParentForeign", "The parent is not the incumbent."
    UNCHANGED = "Unchanged", "The adapter is the one that serves already."
    BUDGET_EXHAUSTED = "BudgetExhausted", "The round's tests are used up."
    QUARANTINED = "Quarantined", "The adapter's digest was rejected or rolled back before."
