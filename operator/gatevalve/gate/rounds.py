"""Rounds: which sealed item set is in force and how much of its error budget is spent, read from the log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from gatevalve.contracts.kinds import AdapterReleaseSpec, GateFacts
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action
from gatevalve.gate.enforced import digest_of_policy, enforced
from gatevalve.gate.lifetime import Life, lives


class RoundInForce(NamedTuple):
    """The round that the next test belongs to, the tests it has paid for so far, and those that it pays for in all.

    Of a fixed Primary file both counts are of the file's life, so that no test may be left.
    """

    number: int
    tests: int
    max_tests: int


class NextTest(NamedTuple):
    """The place of the next test: its round and its number in that round, both from 1."""

    round: int
    test: int


class Round(NamedTuple):
    """The newest round of a log so far: number, tests it paid for, what it was opened under, and whether the log has ended it.

    `policy` is the one in force, and `life` that of its Primary file, if it names one.
    """

    number: int = 0
    tests: int = 0
    policy_digest: str | None = None
    incumbent_digest: str | None = None
    ended: bool = True
    policy: GatePolicySpec | None = None
    life: Life | None = None


def round_in_force(last: Round, policy: GatePolicySpec, policy_digest: str, incumbent_digest: str | None) -> RoundInForce:
    """The round in force under a policy and an incumbent (None: the base), after what `rounds` told last.

    A round ends at its first Accept, after maxTests tests, when the policy digest or the incumbent changes (also when it changes back),
    and when the channel is opened anew.
    Numbers start at 1, grow and never repeat; one that may have been drawn under a policy is never used under another.
    """
    foreign = (last.policy_digest, last.incumbent_digest) != (policy_digest, incumbent_digest)
    over = _is_over(last, policy) or foreign
    number = last.number + 1 if over else last.number
    if (file := policy.primary.items.digest) is not None:
        return RoundInForce(number, *_of_life(last.life, file))
    return RoundInForce(number, 0 if over else last.tests, policy.round.max_tests)


def next_test(last: Round, policy: GatePolicySpec, policy_digest: str, incumbent_digest: str | None) -> NextTest | None:
    """Round and number that the next Test entry has to carry, after what `rounds` told last.

    None when there must be no other: a fixed Primary file has one budget for life. Fresh items always pay for a test.
    """
    number, tests, max_tests = round_in_force(last, policy, policy_digest, incumbent_digest)
    return NextTest(number, tests + 1) if tests < max_tests else None


def rounds(entries: Iterable[AdapterReleaseSpec]) -> Iterator[Round]:
    """The newest round before a channel's first entry, and after each of its entries in order."""
    log = tuple(entries)
    return (last._replace(life=life) for last, life in zip(accumulate(log, _after, initial=Round()), lives(log), strict=True))


def _is_over(last: Round, policy: GatePolicySpec) -> bool:
    return last.ended or last.tests >= policy.round.max_tests


def _of_life(life: Life | None, file: str) -> tuple[int, int]:
    """Tests on a Primary file and tests it pays for: none for a file that no policy in force has named."""
    return (life.tests, life.tests_in_all) if life is not None and life.file == file else (0, 0)


def _after(last: Round, entry: AdapterReleaseSpec) -> Round:
    if entry.action is Action.TEST and entry.gate is not None:
        return _paid(last, entry.gate)
    ended = last._replace(ended=True) if not last.ended and _ends(last, entry) else last
    policy = enforced(entry)
    return _under(last, ended, policy) if policy is not None else ended


def _under(before: Round, ended: Round, policy: GatePolicySpec) -> Round:
    """Another policy leaves the number alone that the one before it may have drawn items for, ahead of their first test."""
    known = before.policy
    drawn_ahead = known is not None and known != policy and _is_over(before, known)
    number = ended.number + 1 if drawn_ahead else ended.number
    return ended._replace(number=number, policy=policy, ended=ended.ended or drawn_ahead)


def _paid(last: Round, gate: GateFacts) -> Round:
    if gate.round == last.number:
        return last._replace(tests=last.tests + 1)
    if gate.round < last.number:
        return last
    return last._replace(number=gate.round, tests=1, policy_digest=gate.policy_digest, incumbent_digest=gate.incumbent_digest, ended=False)


def _ends(last: Round, entry: AdapterReleaseSpec) -> bool:
    if entry.action is Action.ACCEPT:
        return entry.gate is not None and entry.gate.round == last.number
    policy = enforced(entry)
    other_policy = policy is not None and digest_of_policy(policy) != last.policy_digest
    other_incumbent = entry.serves is not None and entry.serves.digest != last.incumbent_digest
    return entry.action is Action.OPEN or other_policy or other_incumbent
