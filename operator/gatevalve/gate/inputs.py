"""What a verdict is made from beside the policy: the evidence of one test, and what the log says about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Self

from gatevalve.contracts.files import EvidenceReport, PairRow, Stage, SuiteFact
from gatevalve.contracts.policy import GatePolicySpec, Role, Suite


@dataclass(frozen=True, slots=True)
class Evidence:
    """One test's report and its paired rows by suite, in the order of the item ids; `report` is absent when there is none to read.

    Rows of the suites in `set_aside` are unsound and no measurement looks at them.
    """

    report: EvidenceReport | None
    suites: Mapping[str, tuple[PairRow, ...]]
    set_aside: frozenset[str] = frozenset()

    @classmethod
    def of(cls, report: EvidenceReport | None, rows: Iterable[PairRow]) -> Self:
        """Group rows by suite and sort them, so that the order in which they arrive cannot matter."""
        ordered = sorted(rows, key=lambda row: (row.suite, row.item))
        return cls(report, {suite: tuple(group) for suite, group in groupby(ordered, key=lambda row: row.suite)})

    @property
    def stage(self) -> Stage:
        """How far the test was measured, as its report says."""
        return self.report.stage if self.report else "Full"

    def rows(self, suite: str) -> tuple[PairRow, ...]:
        """The rows of a suite; none for a suite that was not measured."""
        return self.suites.get(suite, ())

    def without(self, unsound: Iterable[str]) -> Self:
        """The same evidence with unsound suites set aside."""
        return replace(self, set_aside=self.set_aside | set(unsound))

    def with_role(self, policy: GatePolicySpec, *roles: Role) -> tuple[Suite, ...]:
        """The policy's suites of some roles, in its order, but for those that are set aside."""
        return tuple(suite for suite in policy.suites if suite.role in roles and suite.name not in self.set_aside)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the log and the facts fixed at dequeue say about the test that is judged. A digest of None is the base.

    `parent_digest` is what the candidate was started from, `incumbent_digest` what serves when it is judged, `tests_spent` counts the
    round's Test entries with this one, `adapter_base_digest` names the base the adapter was made for, and `expected_items` the number of
    items of every suite (see `expected_items`).
    """

    channel_uid: str
    candidate_uid: str
    test_entry: str
    test_digest: str
    round: int
    tests_spent: int
    policy_digest: str
    base_digest: str
    adapter_base_digest: str
    candidate_digest: str
    parent_digest: str | None
    incumbent_digest: str | None
    anchor_digest: str | None
    expected_items: Mapping[str, int]
    quarantined: frozenset[str] = field(default_factory=frozenset)


def measured_suites(policy: GatePolicySpec, stage: Stage) -> tuple[Suite, ...]:
    """The suites whose rows a test of that stage has to hold: the screen alone, or the policy's and the screen."""
    screen = (policy.screen,) if policy.screen else ()
    return screen if stage == "Screen" else (*policy.suites, *screen)


def expected_items(policy: GatePolicySpec, facts: Iterable[SuiteFact]) -> dict[str, int]:
    """The number of items of every suite and of the screen: what the policy asks of each round, or what is recorded of the fixed file
    that the policy names by digest.

    A fixed suite without a fact of just that digest is left out, so that its evidence cannot be sound.
    """
    recorded = {(fact.name, fact.sha256): fact.items for fact in facts}
    suites = measured_suites(policy, "Full")
    sizes = {suite.name: suite.items.fresh or recorded.get((suite.name, suite.items.digest or "")) for suite in suites}
    return {name: size for name, size in sizes.items() if size is not None}
