"""What a sentinel's evidence says of the gate: the gate's own judgement, compared with the verdict that is right for every sentinel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gatevalve.contracts.jobs import EvidenceResult
from gatevalve.contracts.kinds import AdapterReleaseSpec, CandidateRef, Lineage, SentinelKind
from gatevalve.contracts.reasons import EntryReason, Outcome, Verdict
from gatevalve.decide.judgement import judge_test
from gatevalve.decide.log import LogState
from gatevalve.decide.view import EvidenceView
from gatevalve.gate.results import Check, CheckResult

VERDICTS: dict[EntryReason, Verdict] = {
    EntryReason.SENTINEL_PASSED: Verdict.REJECTED,
    EntryReason.SENTINEL_FAILED: Verdict.ACCEPTED,
    EntryReason.SENTINEL_INCONCLUSIVE: Verdict.INCONCLUSIVE,
}
"""The gate's verdict by the reason of the entry that ends a sentinel: neither kind may be accepted."""

_SAID: dict[tuple[SentinelKind, EntryReason], str] = {
    ("Same", EntryReason.SENTINEL_PASSED): "the incumbent against itself was not accepted",
    ("Same", EntryReason.SENTINEL_FAILED): "the incumbent against itself passed every check",
    ("Bad", EntryReason.SENTINEL_PASSED): "an adapter of noise was rejected",
    ("Bad", EntryReason.SENTINEL_FAILED): "an adapter of noise passed every check",
}


@dataclass(frozen=True, slots=True)
class Probed:
    """How a sentinel ended."""

    reason: EntryReason
    message: str

    @property
    def verdict(self) -> Verdict:
        """The gate's verdict."""
        return VERDICTS[self.reason]


def judge_sentinel(log: LogState, opened: AdapterReleaseSpec, base_digest: str, evidence: EvidenceView, result: EvidenceResult) -> Probed:
    """How a sentinel ends by its evidence; what cannot be judged says nothing of the gate, also where people would see Rejected."""
    judged = judge_test(log, as_test(opened, base_digest), base_digest, evidence, result)
    reason = _reason(judged.results)
    kind = opened.sentinel.kind if opened.sentinel else "Bad"
    return Probed(reason, _SAID.get((kind, reason)) or f"its evidence could not be judged: {judged.message}")


def as_test(opened: AdapterReleaseSpec, base_digest: str) -> AdapterReleaseSpec:
    """The entry that began a sentinel as the gate reads a Test: of a candidate started from the incumbent, which no adapter's digest names.

    Raises ValueError when the entry begins no sentinel.
    """
    sentinel, gate = opened.sentinel, opened.gate
    if sentinel is None or gate is None:
        raise ValueError("the entry begins no sentinel")
    lineage = Lineage(parent_digest=gate.incumbent_digest, base_digest=base_digest, adapter_digest=sentinel.digest_of())
    return opened.model_copy(update={"candidate": CandidateRef(name=sentinel.uid, uid=sentinel.uid), "lineage": lineage})


def _reason(results: Iterable[CheckResult]) -> EntryReason:
    """What the log allows is not what a sentinel probes: a gate that would accept it but for that has failed."""
    measured = {result.outcome for result in results if result.check is not Check.AUTHORITY}
    if Outcome.FAIL in measured:
        return EntryReason.SENTINEL_PASSED
    return EntryReason.SENTINEL_FAILED if measured == {Outcome.PASS} else EntryReason.SENTINEL_INCONCLUSIVE
