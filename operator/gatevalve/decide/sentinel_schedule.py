"""Which sentinel is due, and how the newest ones ended: read from the log alone, so that a restart probes neither twice nor never."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterReleaseSpec, SentinelKind, SentinelRef
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import ConditionReason, EntryReason
from gatevalve.decide.log import LogState, name_of
from gatevalve.gate.probing import sentinels_off

KINDS: tuple[SentinelKind, ...] = ("Same", "Bad")
"""In the order in which they run."""


def due_sentinel(log: LogState) -> SentinelRef | None:
    """The sentinel that comes before the next candidate, with a number that was never used."""
    policy = log.policy
    if policy is None or sentinels_off(policy) is not None:
        return None
    kind = next((kind for kind in KINDS if _is_due(log, policy, kind)), None)
    numbers = (entry.sentinel.number for entry in log.sentinels if entry.sentinel)
    return SentinelRef(kind=kind, number=max(numbers, default=0) + 1) if kind is not None else None


def ended_sentinel(log: LogState, kind: SentinelKind) -> AdapterReleaseSpec | None:
    """The entry that ended the newest sentinel of a kind that has ended."""
    return _newest(log, kind, opened=False)


def failed_sentinel(log: LogState) -> AdapterReleaseSpec | None:
    """The end of a sentinel that failed, unless one of its kind has ended otherwise since, or the policy in force has none."""
    if log.policy is None or sentinels_off(log.policy) is not None:
        return None
    ended = (ended_sentinel(log, kind) for kind in KINDS)
    return next((entry for entry in ended if entry is not None and entry.reason is EntryReason.SENTINEL_FAILED), None)


def _is_due(log: LogState, policy: GatePolicySpec, kind: SentinelKind) -> bool:
    """After so many tests and after each new policy; again after a failure, and before the next test but one after no verdict."""
    opened, ended = _newest(log, kind, opened=True), ended_sentinel(log, kind)
    since, how = opened.sequence if opened else 0, ended.reason if ended else None
    tests = log.tests_after(since)
    again = how is EntryReason.SENTINEL_FAILED or (how is EntryReason.SENTINEL_INCONCLUSIVE and tests > 0)
    return again or log.policy_set_after(since) or tests >= policy.sentinels.every_candidates


def _newest(log: LogState, kind: SentinelKind, *, opened: bool) -> AdapterReleaseSpec | None:
    for entry in reversed(log.sentinels):
        if entry.sentinel is not None and entry.sentinel.kind == kind and (entry.reason is EntryReason.SENTINEL_OPENED) == opened:
            return entry
    return None


def sentinels_told(log: LogState) -> tuple[bool | None, ConditionReason | EntryReason, str]:
    """Condition SentinelsPassed: whether the newest sentinel of each kind passed; Unknown while one of them has told nothing."""
    off = sentinels_off(log.policy) if log.policy is not None else None
    if off is not None:
        return None, ConditionReason.SENTINELS_OFF, f"the gate is not probed: {off}"
    ended = {kind: ended_sentinel(log, kind) for kind in KINDS}
    for reason in (EntryReason.SENTINEL_FAILED, EntryReason.SENTINEL_INCONCLUSIVE):
        told = [entry for entry in ended.values() if entry is not None and entry.reason is reason]
        if told:
            text = "; ".join(f"{name_of(entry)}: {entry.message}" for entry in told)
            return (False if reason is EntryReason.SENTINEL_FAILED else None), reason, text
    if any(entry is None for entry in ended.values()):
        return None, ConditionReason.WAITING, f"not every sentinel has ended yet; the next one comes {_when(log)}"
    entries = ", ".join(name_of(entry) for entry in ended.values() if entry is not None)
    return True, ConditionReason.AS_EXPECTED, f"neither was accepted: {entries}"


def _when(log: LogState) -> str:
    if log.open_sentinel is not None or due_sentinel(log) is not None:
        return "before the next candidate"
    return f"after {log.policy.sentinels.every_candidates if log.policy else 0} tests, or with the next policy"
