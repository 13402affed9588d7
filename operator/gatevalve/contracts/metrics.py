"""Metrics of operator and serving pods: name, labels and one sentence; the reference page and the dashboard are checked against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gatevalve.contracts.reasons import CandidateState, ConditionReason, EntryReason, Verdict

PREFIX = "gatevalve_"


@dataclass(frozen=True, slots=True)
class Metric:
    """A Prometheus metric: name without prefix, type, label names, what it says, and bounds in seconds for histograms."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    sentence: str
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name that Prometheus stores samples under (histograms add _bucket, _sum and _count)."""
        return PREFIX + self.name


FLIP_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
PRELOAD_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

CANDIDATES_TOTAL = Metric(
    "candidates_total", "counter", ("channel", "verdict", "reason"), "Candidates that reached their end, by verdict and reason."
)
RELEASES_TOTAL = Metric("releases_total", "counter", ("channel", "action"), "Log entries written, by action.")
REJECTION_RATIO = Metric(
    "rejection_ratio",
    "gauge",
    ("channel",),
    "Share of the last 20 verdicts in the log that were not Accept; absent before the first verdict.",
)
TESTS_REMAINING = Metric("tests_remaining", "gauge", ("channel",), "Tests that the round in force still pays for.")
FLIP_SECONDS = Metric(
    "flip_seconds", "histogram", ("channel",), "From a promotion's commit write to the last pod answering from it.", FLIP_BUCKETS
)
PRELOAD_SECONDS = Metric(
    "preload_seconds", "histogram", ("channel",), "From the first preload of a promotion to its commit.", PRELOAD_BUCKETS
)
ROLLBACK_SECONDS = Metric(
    "rollback_seconds", "histogram", ("channel",), "From a rollback's commit write to the last pod answering from it.", FLIP_BUCKETS
)
LIVE_RELEASE_INFO = Metric("live_release_info", "gauge", ("channel", "entry"), "1 for the entry that the alias shall answer from.")
PODS_DIVERGED = Metric("pods_diverged", "gauge", ("channel",), "Pods of the pool that do not answer from the live entry.")
LOG_VALID = Metric("log_valid", "gauge", ("channel",), "1 while the log is gapless, signed and equal to its external copy.")
LOG_HEAD_SEQUENCE = Metric("log_head_sequence", "gauge", ("channel",), "Sequence of the newest entry; -1 while there is none.")
LOG_UNEXPORTED = Metric("log_unexported", "gauge", ("channel",), "Entries that have no copy in the external log yet.")
LOG_VERIFIED = Metric(
    "log_verified_timestamp_seconds",
    "gauge",
    ("channel",),
    "Unix time of the last whole verification: every hash, signature, external copy and verdict anew.",
)
TAMPERING_TOTAL = Metric(
    "tampering_total",
    "counter",
    ("channel", "reason"),
    "Times that somebody else changed what only gatevalve may change, or tried to go round an alias, by reason.",
)
UNAUTHORIZED_ADAPTERS = Metric(
    "unauthorized_adapters", "gauge", ("channel",), "Adapters that engines of the pool hold and no entry of a log put there."
)
POLICY_UNAPPROVED = Metric(
    "policy_unapproved", "gauge", ("channel",), "1 while the channel names a looser policy that no person has approved."
)
FROZEN = Metric("frozen", "gauge", ("channel",), "1 while the log freezes the channel: nothing is dequeued, put to a test or promoted.")
ROUND_WAITING = Metric("round_waiting", "gauge", ("channel",), "1 while a candidate waits for fresh items of a round.")
SENTINELS_TOTAL = Metric(
    "sentinels_total",
    "counter",
    ("channel", "kind", "outcome"),
    "Sentinels that ended, by kind (Same: the incumbent against itself; Bad: noise) and outcome (Passed, Failed, Inconclusive).",
)
SENTINEL_FAILED = Metric(
    "sentinel_failed", "gauge", ("channel",), "1 while the newest sentinel of a kind that has ended is one that failed."
)
GATE_POWER_RATIO = Metric(
    "gate_power_ratio",
    "gauge",
    ("channel",),
    "Share of tests that see the policy's minDetectableEffectBasisPoints, by planning variance; absent while nothing tells it.",
)
RECONCILE_SECONDS = Metric("reconcile_seconds", "histogram", (), "Time of one reconcile: gather, decide, execute.", RECONCILE_BUCKETS)
RECONCILE_ERRORS_TOTAL = Metric("reconcile_errors_total", "counter", ("channel",), "Reconciles that failed and are tried again.")
QUEUE_DEPTH = Metric("queue_depth", "gauge", (), "Channels that wait for a reconcile or are in one.")
LAST_RECONCILE = Metric("last_reconcile_timestamp_seconds", "gauge", (), "Unix time of the last reconcile that succeeded.")

METRICS: tuple[Metric, ...] = (
    CANDIDATES_TOTAL,
    RELEASES_TOTAL,
    REJECTION_RATIO,
    TESTS_REMAINING,
    FLIP_SECONDS,
    PRELOAD_SECONDS,
    ROLLBACK_SECONDS,
    LIVE_RELEASE_INFO,
    PODS_DIVERGED,
    LOG_VALID,
    LOG_HEAD_SEQUENCE,
    LOG_UNEXPORTED,
    LOG_VERIFIED,
    TAMPERING_TOTAL,
    UNAUTHORIZED_ADAPTERS,
    POLICY_UNAPPROVED,
    FROZEN,
    SENTINELS_TOTAL,
    SENTINEL_FAILED,
    ROUND_WAITING,
    GATE_POWER_RATIO,
    RECONCILE_SECONDS,
    RECONCILE_ERRORS_TOTAL,
    QUEUE_DEPTH,
    LAST_RECONCILE,
)

RATIO_WINDOW = 20
"""Verdicts that `rejection_ratio` looks back on."""

REFUSALS: tuple[EntryReason, ...] = tuple(
    reason
    for reason in EntryReason
    if reason
    not in {
        EntryReason.CHANNEL_OPENED,
        EntryReason.CHANNEL_ADOPTED,
        EntryReason.TEST_OPENED,
        EntryReason.GATE_PASSED,
        EntryReason.APPROVED,
        EntryReason.PINNED,
        EntryReason.ROLLOUT_FAILED,
        EntryReason.POLICY_CHANGED,
        EntryReason.POLICY_UNAPPROVED,
        EntryReason.POLICY_APPROVED,
        EntryReason.ANCHOR_MOVED,
        EntryReason.ANCHOR_RESET,
        EntryReason.SENTINEL_OPENED,
        EntryReason.SENTINEL_PASSED,
        EntryReason.SENTINEL_FAILED,
        EntryReason.SENTINEL_INCONCLUSIVE,
        EntryReason.UNFROZEN,
    }
)
"""Reasons that a Reject entry can have."""

OTHER_ENDS: dict[CandidateState, tuple[ConditionReason, ...]] = {
    CandidateState.SKIPPED: (ConditionReason.NO_SIGNAL,),
    CandidateState.ERRORED: (
        ConditionReason.STEP_FAILED,
        ConditionReason.CONTRACT_BROKEN,
        ConditionReason.CAPTURE_BROKEN,
        ConditionReason.DEADLINE_EXCEEDED,
        ConditionReason.QUARANTINED,
    ),
    CandidateState.ABORTED: (ConditionReason.STALE, ConditionReason.DENIED),
}
"""Reasons of a candidate's end without a verdict."""

FIRST_ENDS: tuple[tuple[str, str], ...] = (
    (Verdict.ACCEPTED, EntryReason.GATE_PASSED),
    *((verdict, reason) for verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE) for reason in REFUSALS),
    *((state, reason) for state, reasons in OTHER_ENDS.items() for reason in reasons),
)
"""Ends that `candidates_total` shows as 0 from the start, so that increase() sees the first of each."""

TAMPERING_REASONS: tuple[ConditionReason, ...] = (
    ConditionReason.DOCUMENT_FORGED,
    ConditionReason.KEYS_FORGED,
    ConditionReason.ADAPTER_FORGED,
    ConditionReason.EVIDENCE_FORGED,
    ConditionReason.STATUS_FORGED,
    ConditionReason.UNAUTHORIZED_ADAPTER,
    ConditionReason.UNAUTHORIZED_REQUEST,
)
"""Reasons that `tampering_total` shows as 0 from the start."""

SENTINEL_OUTCOMES: dict[EntryReason, str] = {
    EntryReason.SENTINEL_PASSED: "Passed",
    EntryReason.SENTINEL_FAILED: "Failed",
    EntryReason.SENTINEL_INCONCLUSIVE: "Inconclusive",
}
"""Outcomes that `sentinels_total` counts, by the reason of the entry that ends a sentinel."""

SERVING_REQUESTS_TOTAL = Metric(
    "serving_requests_total", "counter", ("channel", "outcome"), "Requests that a pod routed through an alias, by how the engine answered."
)
SERVING_IN_FLIGHT = Metric("serving_in_flight", "gauge", ("channel",), "Requests through an alias that are in a pod's engine.")
SERVING_FLIPS_TOTAL = Metric("serving_flips_total", "counter", ("channel",), "Times a pod replaced the routes of a channel.")
SERVING_REFUSED_TOTAL = Metric(
    "serving_refused_total", "counter", ("reason",), "Requests outside the allow-list, without a served alias, or without the API key."
)
SERVING_DOCUMENTS_REFUSED_TOTAL = Metric(
    "serving_documents_refused_total", "counter", ("reason",), "Channel documents that a pod refused, by reason."
)
SERVING_CAPTURED_TOTAL = Metric("serving_captured_total", "counter", ("channel",), "Replies written to traffic segments.")
SERVING_CAPTURE_DROPPED_TOTAL = Metric(
    "serving_capture_dropped_total", "counter", ("channel", "reason"), "Replies and feedback not written to traffic segments, by reason."
)
SERVING_FEEDBACK_TOTAL = Metric("serving_feedback_total", "counter", ("channel",), "Feedback written to traffic segments.")

SERVING_METRICS: tuple[Metric, ...] = (
    SERVING_REQUESTS_TOTAL,
    SERVING_IN_FLIGHT,
    SERVING_FLIPS_TOTAL,
    SERVING_REFUSED_TOTAL,
    SERVING_DOCUMENTS_REFUSED_TOTAL,
    SERVING_CAPTURED_TOTAL,
    SERVING_CAPTURE_DROPPED_TOTAL,
    SERVING_FEEDBACK_TOTAL,
)
"""What serving pods show on /metrics, beside vLLM's own."""
