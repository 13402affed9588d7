"""Where things stand in a log, found in one pass: positions in growing order, so that what it said before an entry is a bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.names import entry_name
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import SERVING_ACTIONS, Action, EntryReason, Verdict
from gatevalve.gate.enforced import digest_of_policy, enforced
from gatevalve.gate.rounds import Round, rounds

Positions = list[int]


class LogIndex:
    """The positions of a log's entries by what they say. Read it with `newest` and `until`; nothing changes it once it is made."""

    def __init__(self, specs: tuple[AdapterReleaseSpec, ...]) -> None:
        """Take a log's entries in order."""
        self._specs = specs
        self.of_candidate: dict[tuple[str, Action], Positions] = defaultdict(list)
        self.named: dict[str, int] = {}
        self.serving: Positions = []
        self.opened: Positions = []
        self.enforced: Positions = []
        self.digests: dict[int, str] = {}
        self.enforced_as: dict[str, Positions] = defaultdict(list)
        self.approved_as: dict[str, Positions] = defaultdict(list)
        self.unapproved: Positions = []
        self.quarantined: dict[str, int] = {}
        self.anchored: Positions = []
        self.frozen: Positions = []
        self.tests: Positions = []
        self.sentinels: Positions = []
        self.changed: Positions = []
        for position, spec in enumerate(specs):
            self._take(position, spec)

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """The newest round before the first entry, and after each entry."""
        return tuple(rounds(self._specs))

    def _take(self, position: int, spec: AdapterReleaseSpec) -> None:
        if spec.candidate is not None:
            self.of_candidate[spec.candidate.uid, spec.action].append(position)
        if spec.action is Action.OPEN:
            self.opened.append(position)
        if spec.action is Action.ANCHOR:
            self.anchored.append(position)
        if spec.action in (Action.FREEZE, Action.UNFREEZE):
            self.frozen.append(position)
        if spec.action is Action.TEST:
            self.tests.append(position)
        if spec.action is Action.SENTINEL:
            self.sentinels.append(position)
        if spec.policy is not None:
            self._take_policy(position, spec, spec.policy)
        if spec.action is Action.REJECT and spec.verdict is Verdict.REJECTED and spec.lineage and spec.lineage.adapter_digest:
            self.quarantined.setdefault(spec.lineage.adapter_digest, position)
        if spec.action in SERVING_ACTIONS and spec.serves is not None:
            self._take_serving(position, spec)

    def _take_policy(self, position: int, spec: AdapterReleaseSpec, policy: GatePolicySpec) -> None:
        digest = self.digests[position] = digest_of_policy(policy)
        if enforced(spec) is None:
            self.unapproved.append(position)
            return
        self.enforced.append(position)
        if spec.action is Action.POLICY:
            self.changed.append(position)
        self.enforced_as[digest].append(position)
        if spec.reason is EntryReason.POLICY_APPROVED:
            self.approved_as[digest].append(position)

    def _take_serving(self, position: int, spec: AdapterReleaseSpec) -> None:
        """What a Rollback takes out of service is quarantined from there on."""
        before = self._specs[self.serving[-1]].serves if self.serving else None
        taken = before.digest if before is not None and spec.action is Action.ROLLBACK else None
        if taken is not None and (spec.serves is None or taken != spec.serves.digest):
            self.quarantined.setdefault(taken, position)
        self.serving.append(position)
        self.named.setdefault(entry_name(spec.channel.name, spec.sequence), position)


def newest(positions: Sequence[int], length: int) -> int | None:
    """The last of the positions among a log's first `length` entries."""
    found = bisect_left(positions, length)
    return positions[found - 1] if found else None


def until(positions: Sequence[int], length: int, since: int = 0) -> Sequence[int]:
    """The positions from `since` on among a log's first `length` entries."""
    return positions[bisect_left(positions, since) : bisect_left(positions, length)]
