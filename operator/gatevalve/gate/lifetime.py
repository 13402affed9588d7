"""The life of a fixed Primary file: all its tests count together, whatever policy, incumbent or opening they were paid under."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action
from gatevalve.gate.enforced import digest_of_policy, enforced


class Life(NamedTuple):
    """What the tests on a fixed Primary file, named by its digest, have used of its one budget.

    `limit` is the fewest maxTests of the policies that named the file while they were in force.
    """

    file: str
    limit: int
    tests: int = 0
    accepted: bool = False

    @property
    def tests_in_all(self) -> int:
        """The tests that the file pays for in all: none after its first Accept."""
        return self.tests if self.accepted else self.limit


def lives(entries: Iterable[AdapterReleaseSpec]) -> Iterator[Life | None]:
    """The life of the Primary file in force before the first entry of a log, and after each in order; None while items are fresh."""
    told = _Told()
    yield None
    for entry in entries:
        told.take(entry)
        yield told.in_force


class _Told:
    """What the entries so far say: the file that each policy names, and each file's life."""

    def __init__(self) -> None:
        self._lives: dict[str, Life] = {}
        self._files: dict[str, str | None] = {}
        self._file: str | None = None

    @property
    def in_force(self) -> Life | None:
        return self._lives[self._file] if self._file is not None else None

    def take(self, entry: AdapterReleaseSpec) -> None:
        if (policy := enforced(entry)) is not None:
            self._name(policy)
        elif entry.gate is not None and (file := self._files.get(entry.gate.policy_digest)) is not None:
            self._count(file, entry.action)

    def _name(self, policy: GatePolicySpec) -> None:
        file = self._files[digest_of_policy(policy)] = self._file = policy.primary.items.digest
        if file is not None:
            life = self._lives.get(file, Life(file, policy.round.max_tests))
            self._lives[file] = life._replace(limit=min(life.limit, policy.round.max_tests))

    def _count(self, file: str, action: Action) -> None:
        life = self._lives[file]
        if action is Action.TEST:
            self._lives[file] = life._replace(tests=life.tests + 1)
        elif action is Action.ACCEPT:
            self._lives[file] = life._replace(accepted=True)
