"""Rounds: which sealed item set is in force and how much of its error budget is spent, read from the log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from gatevalve.contracts.kinds import AdapterReleaseSpec, GateFacts
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action, EntryReason


class RoundInForce(NamedTuple):
    """The round that the next test belongs to, and the tests it has paid for so far."""

    number: int
    tests: int


class NextTest(NamedTuple):
    """The place of the next test: its round and its number in that round, both from 1."""

    round: int
    test: int


class Round(NamedTuple):
    """The newest round of a log so far: number, tests it paid for, what it was opened under, and whether the log has ended it."""

    number: int = 0
    tests: int = 0
    policy_digest: str | None = None
    incumbent_digest: str | None = None
    ended: bool = True


def enforced(entry: AdapterReleaseSpec) -> GatePolicySpec | None:
    """The policy that is in force from an entry on; one that waits for a person's approval is on record and no more."""
    return entry.policy if entry.reason is not EntryReason.POLICY_UNAPPROVED else None


@lru_cache(maxsize=256)
def digest_of_policy(policy: GatePolicySpec) -> str:
    """A policy's digest, worked out once: entry after entry asks for the same few."""
    return policy.digest_of()


def round_in_force(last: Round, policy: GatePolicySpec, policy_digest: str, incumbent_digest: str | None) -> RoundInForce:
    """The round in force under a policy and an incumbent (None: the base), after what `rounds` told last.

    A round ends at its first Accept, after maxTests tests, when the policy digest or the incumbent changes (also when it changes back),
    and when the channel is opened anew.
    Numbers start at 1, grow and never repeat.
    """
    spent = last.tests >= policy.round.max_tests
    foreign = (last.policy_digest, last.incumbent_digest) != (policy_digest, incumbent_digest)
    if last.ended or spent or foreign:
        return RoundInForce(last.number + 1, 0)
    return RoundInForce(last.number, last.tests)


def next_test(last: Round, policy: GatePolicySpec, policy_digest: str, incumbent_digest: str | None) -> NextTest:
    """Round and number that the next Test entry has to carry, after what `rounds` told last."""
    number, tests = round_in_force(last, policy, policy_digest, incumbent_digest)
    return NextTest(number, tests + 1)


def rounds(entries: Iterable[AdapterReleaseSpec]) -> Iterator[Round]:
    """The newest round before a channel's first entry, and after each of its entries in order."""
    return accumulate(entries, _after, initial=Round())


def _after(last: Round, entry: AdapterReleaseSpec) -> Round:
    if entry.action is Action.TEST and entry.gate is not None:
        return _paid(last, entry.gate)
    return last._replace(ended=True) if not last.ended and _ends(last, entry) else last


def _paid(last: Round, gate: GateFacts) -> Round:
    if gate.round == last.number:
        return last._replace(tests=last.tests + 1)
    if gate.round < last.number:
        return last
    return Round(gate.round, 1, gate.policy_digest, gate.incumbent_digest, ended=False)


def _ends(last: Round, entry: AdapterReleaseSpec) -> bool:
    if entry.action is Action.ACCEPT:
        return entry.gate is not None and entry.gate.round == last.number
    policy = enforced(entry)
    other_policy = policy is not None and digest_of_policy(policy) != last.policy_digest
    other_incumbent = entry.serves is not None and entry.serves.digest != last.incumbent_digest
    return entry.action is Action.OPEN or other_policy or other_incumbent
