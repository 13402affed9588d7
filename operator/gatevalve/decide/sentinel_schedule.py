"""Which sentinel is due, and how the newest ones ended: read from the log alone, so that a restart probes neither twice nor never."""

from __future__ import annotations

from functools import cache

from gatevalve.contracts.kinds import AdapterReleaseSpec, SentinelKind, SentinelRef
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import ConditionReason, EntryReason
from gatevalve.decide.log import LogState, name_of
from gatevalve.gate.probing import sentinels_off, traffic_suites

KINDS: tuple[SentinelKind, ...] = ("Same", "Bad")
"""In the order in which they run."""


def due_sentinel(log: LogState) -> SentinelRef | None:
    """The sentinel that comes before the next candidate, with a number that was never used."""
    policy = log.policy
    if policy is None or sentinels_off(policy) is not None:
        return None
    kind, spent = next((kind for kind in KINDS if _is_due(log, policy, kind)), None), traffic_round(log)
    if kind is None or (spent is None and traffic_suites(policy)):
        return None
    numbers = (entry.sentinel.number for entry in log.sentinels if entry.sentinel)
    return SentinelRef(kind=kind, number=max(numbers, default=0) + 1, traffic_round=spent)


def traffic_round(log: LogState) -> int | None:
    """The round whose traffic the next sentinel is asked again: the newest that has ended and was asked the same suites.

    None while there is none, and for a policy that takes nothing from traffic: fresh conversations are for candidates.
    """
    policy, digest = log.policy, log.policy_digest
    if policy is None or digest is None or not (suites := traffic_suites(policy)):
        return None
    open_round = log.round_in_force(policy, digest, log.incumbent_digest).number
    alike = cache(lambda known: (found := log.policy_named(known)) is not None and traffic_suites(found) == suites)
    tested = (test.gate for test in log.tests_newest_first if test.gate is not None)
    return next((gate.round for gate in tested if gate.round < open_round and alike(gate.policy_digest)), None)


def ended_sentinel(log: LogState, kind: SentinelKind) -> AdapterReleaseSpec | None:
    """The entry that ended the newest sentinel of a kind that has ended."""
    return _newest(log, kind, opened=False)


def failed_sentinel(log: LogState) -> AdapterReleaseSpec | None:
    """The end of a sentinel that failed, unless one of its kind has ended otherwise since, or the policy in force has none."""
    if log.policy is None or sentinels_off(log.policy) is not None:
        return None
    ended = (ended_sentinel(log, kind) for kind in KINDS)
    return next((entry for entry in ended if entry is not None and entry.reason is EntryReason.SENTINEL_FAILED), None)


def unprobed(log: LogState) -> str | None:
    """Why no test is opened after a sentinel that failed: the gate is to be probed first and cannot be. None when it can, or need not."""
    failed = failed_sentinel(log)
    if failed is None or log.open_sentinel is not None or due_sentinel(log) is not None:
        return None
    remedy = "name a policy whose traffic a round has asked, or one whose suites take none"
    return f"{name_of(failed)} failed, and no round on this policy's traffic has ended on which the gate could be probed again; {remedy}"


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
    if log.policy is not None and traffic_suites(log.policy) and traffic_round(log) is None:
        return "once a round on this policy's traffic has ended"
    if log.open_sentinel is not None or due_sentinel(log) is not None:
        return "before the next candidate"
    return f"after {log.policy.sentinels.every_candidates if log.policy else 0} tests, or with the next policy"
