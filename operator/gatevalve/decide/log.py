"""The log folded into what it says: live release, incumbent, policy in force, open tests, verdicts and quarantine."""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.names import entry_name
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import SERVING_ACTIONS, Action, EntryReason, Verdict
from gatevalve.decide.view import EntryView, LogView
from gatevalve.gate.rounds import enforced


def name_of(entry: AdapterReleaseSpec) -> str:
    """The entry's object name."""
    return entry_name(entry.channel.name, entry.sequence)


@dataclass(frozen=True, slots=True)
class LogState:
    """What a valid log says. Nothing here is remembered anywhere else."""

    entries: tuple[EntryView, ...]

    @property
    def specs(self) -> tuple[AdapterReleaseSpec, ...]:
        """The entries without their statuses."""
        return tuple(view.spec for view in self.entries)

    @property
    def next_sequence(self) -> int:
        """The sequence of the entry that would come next."""
        return len(self.entries)

    @property
    def serving(self) -> tuple[EntryView, ...]:
        """Every entry that says what the alias answers from, in order."""
        return tuple(view for view in self.entries if view.spec.action in SERVING_ACTIONS and view.spec.serves is not None)

    @property
    def live(self) -> EntryView | None:
        """The entry that says what shall serve now."""
        return self.serving[-1] if self.serving else None

    @property
    def incumbent_digest(self) -> str | None:
        """The adapter that serves now; None is the base."""
        return served_digest(self.live) if self.live else None

    @property
    def channel_uid(self) -> str | None:
        """The uid of the channel that the newest Open entry names."""
        return next((spec.channel.uid for spec in reversed(self.specs) if spec.action is Action.OPEN), None)

    @property
    def store_uid(self) -> str:
        """The uid that prefixes the channel's paths in the store: of the channel that opened the log first, also after an adoption."""
        return self.specs[0].channel.uid if self.entries else ""

    @property
    def policy(self) -> GatePolicySpec | None:
        """The policy in force."""
        return next((policy for spec in reversed(self.specs) if (policy := enforced(spec)) is not None), None)

    @property
    def policy_digest(self) -> str | None:
        """The digest of the policy in force."""
        return self.policy.digest_of() if self.policy else None

    def policy_named(self, digest: str) -> GatePolicySpec | None:
        """A policy that was in force, by digest."""
        return next((policy for spec in reversed(self.specs) if (policy := enforced(spec)) and policy.digest_of() == digest), None)

    @property
    def unapproved(self) -> frozenset[str]:
        """Digests of policies that were named while the one in force was, and that nobody approved."""
        since = max((spec.sequence for spec in self.specs if enforced(spec) is not None), default=0)
        later = (spec for spec in self.specs[since:] if spec.reason is EntryReason.POLICY_UNAPPROVED)
        return frozenset(spec.policy.digest_of() for spec in later if spec.policy is not None)

    def approvals(self, digest: str) -> tuple[AdapterReleaseSpec, ...]:
        """The Policy entries by which persons put a policy in force."""
        approved = (spec for spec in self.specs if spec.reason is EntryReason.POLICY_APPROVED and spec.policy is not None)
        return tuple(spec for spec in approved if spec.policy and spec.policy.digest_of() == digest)

    def of_candidate(self, uid: str, *actions: Action) -> AdapterReleaseSpec | None:
        """The newest entry of one of the actions about a candidate."""
        return next(
            (spec for spec in reversed(self.specs) if spec.candidate and spec.candidate.uid == uid and spec.action in actions), None
        )

    @property
    def open_tests(self) -> tuple[AdapterReleaseSpec, ...]:
        """Tests that have no verdict yet."""
        return tuple(
            spec
            for spec in self.specs
            if spec.action is Action.TEST and spec.candidate and not self.of_candidate(spec.candidate.uid, Action.ACCEPT, Action.REJECT)
        )

    @property
    def quarantine(self) -> frozenset[str]:
        """Digests of adapters that the gate rejected or that a Rollback took out of service."""
        rejected = {
            spec.lineage.adapter_digest
            for spec in self.specs
            if spec.action is Action.REJECT and spec.verdict is Verdict.REJECTED and spec.lineage and spec.lineage.adapter_digest
        }
        return frozenset(rejected | self._taken_back())

    def _taken_back(self) -> set[str]:
        taken: set[str] = set()
        for before, after in zip(self.serving, self.serving[1:], strict=False):
            old, new = served_digest(before), served_digest(after)
            if after.spec.action is Action.ROLLBACK and old is not None and old != new:
                taken.add(old)
        return taken

    def served_after(self, entry: AdapterReleaseSpec) -> bool:
        """Something else was made to serve after an entry was written: what was measured then is stale."""
        return self.live is not None and self.live.spec.sequence > entry.sequence

    def policy_changed_after(self, entry: AdapterReleaseSpec) -> bool:
        """Another policy than an entry's came into force after it was written, be it for a while only."""
        digest = entry.gate.policy_digest if entry.gate else None
        later = (enforced(spec) for spec in self.specs[entry.sequence + 1 :])
        return any(policy is not None and policy.digest_of() != digest for policy in later)

    def serving_entry(self, name: str) -> EntryView | None:
        """A serving entry by name."""
        return next((view for view in self.serving if name_of(view.spec) == name), None)

    def restored(self, entry: AdapterReleaseSpec) -> str:
        """The name of the entry whose adapter an entry serves: itself, or what a Rollback restores."""
        return entry.restores or name_of(entry)


def served_digest(view: EntryView) -> str | None:
    """The adapter digest an entry serves; None is the base."""
    return view.spec.serves.digest if view.spec.serves else None


def fold(log: LogView) -> LogState:
    """The state of a valid log."""
    return LogState(log.entries)
