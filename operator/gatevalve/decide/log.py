"""The log folded into what it says: live release, incumbent, policy in force, open tests, verdicts and quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from gatevalve.contracts.kinds import AdapterReleaseSpec, AnchorInForce
from gatevalve.contracts.names import entry_name
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action, EntryReason
from gatevalve.decide.log_index import LogIndex, newest, until
from gatevalve.decide.view import EntryView, LogView
from gatevalve.gate.rounds import NextTest, Round, RoundInForce, next_test, round_in_force

FOLDED_LOGS = 16
"""So many logs are remembered as folded: one reconcile asks for the same log again and again."""


def name_of(entry: AdapterReleaseSpec) -> str:
    """The entry's object name."""
    return entry_name(entry.channel.name, entry.sequence)


@dataclass(frozen=True)
class LogState:
    """What a valid log says, or its first `length` entries said. Nothing here is remembered anywhere else.

    A log is read once: what it said before each of its entries shares one index, so that an audit grows with the log and not its square.
    """

    written: tuple[EntryView, ...]
    length: int = -1
    _shared: LogIndex | None = field(default=None, compare=False, repr=False)

    def before(self, sequence: int) -> LogState:
        """The log as it was before the entry of a sequence."""
        return LogState(self.written, sequence, self._index)

    @cached_property
    def _index(self) -> LogIndex:
        return self._shared if self._shared is not None else LogIndex(tuple(view.spec for view in self.written))

    @cached_property
    def entries(self) -> tuple[EntryView, ...]:
        """The entries with their statuses."""
        return self.written[: self.next_sequence]

    @cached_property
    def specs(self) -> tuple[AdapterReleaseSpec, ...]:
        """The entries without their statuses."""
        return tuple(view.spec for view in self.entries)

    @property
    def next_sequence(self) -> int:
        """The sequence of the entry that would come next."""
        return self.length if self.length >= 0 else len(self.written)

    @cached_property
    def serving(self) -> tuple[EntryView, ...]:
        """Every entry that says what the alias answers from, in order."""
        return tuple(self.written[position] for position in until(self._index.serving, self.next_sequence))

    @property
    def live(self) -> EntryView | None:
        """The entry that says what shall serve now."""
        position = newest(self._index.serving, self.next_sequence)
        return self.written[position] if position is not None else None

    @property
    def incumbent_digest(self) -> str | None:
        """The adapter that serves now; None is the base."""
        return served_digest(self.live) if self.live else None

    @property
    def opening(self) -> AdapterReleaseSpec | None:
        """The newest Open entry."""
        return self._newest(self._index.opened)

    @property
    def base_digest(self) -> str:
        """The base that the newest Open entry fixes; empty before there is one."""
        return self.opening.opening.base.digest if self.opening and self.opening.opening else ""

    @property
    def channel_uid(self) -> str | None:
        """The uid of the channel that the newest Open entry names."""
        return self.opening.channel.uid if self.opening else None

    @property
    def store_uid(self) -> str:
        """The uid that prefixes the channel's paths in the store: of the channel that opened the log first, also after an adoption."""
        return self.written[0].spec.channel.uid if self.next_sequence else ""

    @property
    def policy_entry(self) -> AdapterReleaseSpec | None:
        """The entry from which on the policy in force is in force."""
        return self._newest(self._index.enforced)

    @property
    def policy(self) -> GatePolicySpec | None:
        """The policy in force."""
        return self.policy_entry.policy if self.policy_entry else None

    @property
    def policy_digest(self) -> str | None:
        """The digest of the policy in force."""
        position = newest(self._index.enforced, self.next_sequence)
        return self._index.digests[position] if position is not None else None

    def policy_named(self, digest: str) -> GatePolicySpec | None:
        """A policy that was in force, by digest."""
        entry = self._newest(self._index.enforced_as.get(digest, ()))
        return entry.policy if entry else None

    @cached_property
    def unapproved(self) -> frozenset[str]:
        """Digests of policies that were named while the one in force was, and that nobody approved."""
        since = newest(self._index.enforced, self.next_sequence) or 0
        return frozenset(self._index.digests[position] for position in until(self._index.unapproved, self.next_sequence, since))

    def approvals(self, digest: str) -> tuple[AdapterReleaseSpec, ...]:
        """The Policy entries by which persons put a policy in force."""
        return tuple(self.written[position].spec for position in until(self._index.approved_as.get(digest, ()), self.next_sequence))

    def of_candidate(self, uid: str, *actions: Action) -> AdapterReleaseSpec | None:
        """The newest entry of one of the actions about a candidate."""
        found = [newest(self._index.of_candidate.get((uid, action), ()), self.next_sequence) for action in actions]
        position = max((position for position in found if position is not None), default=None)
        return self.written[position].spec if position is not None else None

    @cached_property
    def open_tests(self) -> tuple[AdapterReleaseSpec, ...]:
        """Tests that have no verdict yet."""
        tests = (spec for spec in self.specs if spec.action is Action.TEST and spec.candidate)
        return tuple(spec for spec in tests if spec.candidate and not self.of_candidate(spec.candidate.uid, Action.ACCEPT, Action.REJECT))

    @property
    def frozen_by(self) -> AdapterReleaseSpec | None:
        """The newest Freeze entry while nobody has lifted it."""
        entry = self._newest(self._index.frozen)
        return entry if entry is not None and entry.action is Action.FREEZE else None

    @property
    def anchor(self) -> AnchorInForce:
        """The anchor in force; the base until somebody moves it."""
        entry = self._newest(self._index.anchored)
        return entry.anchor if entry is not None and entry.anchor is not None else AnchorInForce()

    @cached_property
    def sentinels(self) -> tuple[AdapterReleaseSpec, ...]:
        """Every entry that begins or ends a sentinel, in order."""
        return tuple(self.written[position].spec for position in until(self._index.sentinels, self.next_sequence))

    @property
    def open_sentinel(self) -> AdapterReleaseSpec | None:
        """The entry that began a sentinel which has not ended."""
        entry = self._newest(self._index.sentinels)
        return entry if entry is not None and entry.reason is EntryReason.SENTINEL_OPENED else None

    @property
    def tests_newest_first(self) -> Iterator[AdapterReleaseSpec]:
        """Every Test entry, the newest one first."""
        return (self.written[position].spec for position in reversed(until(self._index.tests, self.next_sequence)))

    def tests_after(self, sequence: int) -> int:
        """Tests paid for after the entry of a sequence."""
        return len(until(self._index.tests, self.next_sequence, sequence + 1))

    def policy_set_after(self, sequence: int) -> bool:
        """A Policy entry put another policy in force after the entry of a sequence."""
        return bool(until(self._index.changed, self.next_sequence, sequence + 1))

    def freezes(self, reason: EntryReason) -> tuple[AdapterReleaseSpec, ...]:
        """The Freeze entries of a reason, lifted or not."""
        found = (self.written[position].spec for position in until(self._index.frozen, self.next_sequence))
        return tuple(entry for entry in found if entry.action is Action.FREEZE and entry.reason is reason)

    @cached_property
    def quarantine(self) -> frozenset[str]:
        """Digests of adapters that the gate rejected or that a Rollback took out of service."""
        return frozenset(digest for digest, position in self._index.quarantined.items() if position < self.next_sequence)

    def is_quarantined(self, digest: str) -> bool:
        """An adapter is in the quarantine, which need not be gathered to tell."""
        return self._index.quarantined.get(digest, self.next_sequence) < self.next_sequence

    def next_test(self, policy: GatePolicySpec, policy_digest: str, incumbent_digest: str | None) -> NextTest | None:
        """Round and number that the next Test entry has to carry; None when there must be no other."""
        return next_test(self._last_round, policy, policy_digest, incumbent_digest)

    def round_in_force(self, policy: GatePolicySpec, policy_digest: str, incumbent_digest: str | None) -> RoundInForce:
        """The round that the next test belongs to."""
        return round_in_force(self._last_round, policy, policy_digest, incumbent_digest)

    def served_after(self, entry: AdapterReleaseSpec) -> bool:
        """Something else was made to serve after an entry was written: what was measured then is stale."""
        return self.live is not None and self.live.spec.sequence > entry.sequence

    def policy_changed_after(self, entry: AdapterReleaseSpec) -> bool:
        """Another policy than an entry's came into force after it was written, be it for a while only."""
        digest = entry.gate.policy_digest if entry.gate else None
        later = until(self._index.enforced, self.next_sequence, entry.sequence + 1)
        return any(self._index.digests[position] != digest for position in later)

    def serving_entry(self, name: str) -> EntryView | None:
        """A serving entry by name."""
        position = self._index.named.get(name, self.next_sequence)
        return self.written[position] if position < self.next_sequence else None

    def restored(self, entry: AdapterReleaseSpec) -> str:
        """The name of the entry whose adapter an entry serves: itself, or what a Rollback restores."""
        return entry.restores or name_of(entry)

    @property
    def _last_round(self) -> Round:
        return self._index.rounds[self.next_sequence]

    def _newest(self, positions: Sequence[int]) -> AdapterReleaseSpec | None:
        position = newest(positions, self.next_sequence)
        return self.written[position].spec if position is not None else None


def served_digest(view: EntryView) -> str | None:
    """The adapter digest an entry serves; None is the base."""
    return view.spec.serves.digest if view.spec.serves else None


def fold(log: LogView) -> LogState:
    """The state of a valid log; the same one for the same entries."""
    return _folded(_Same(log.entries))


class _Same:
    """Entries as a key that is equal to itself only: to compare thousands of entries takes longer than to read them once."""

    __slots__ = ("entries",)

    def __init__(self, entries: tuple[EntryView, ...]) -> None:
        self.entries = entries

    def __hash__(self) -> int:
        return id(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.entries is self.entries


@lru_cache(maxsize=FOLDED_LOGS)
def _folded(same: _Same) -> LogState:
    return LogState(same.entries)
