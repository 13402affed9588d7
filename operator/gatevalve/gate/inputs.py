"""What a verdict is made from beside the policy: the evidence of one test, and what the log says about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Self

from gatevalve.contracts.files import EvidenceReport, PairRow, SuiteFact
from gatevalve.contracts.policy import GatePolicySpec


@dataclass(frozen=True, slots=True)
class Evidence:
    """One test's report and its paired rows by suite, in the order of the item ids; `report` is absent when there is none to read."""

    report: EvidenceReport | None
    suites: Mapping[str, tuple[PairRow, ...]]

    @classmethod
    def of(cls, report: EvidenceReport | None, rows: Iterable[PairRow]) -> Self:
        """Group rows by suite and sort them, so that the order in which they arrive cannot matter."""
        ordered = sorted(rows, key=lambda row: (row.suite, row.item))
        return cls(report, {suite: tuple(group) for suite, group in groupby(ordered, key=lambda row: row.suite)})

    def rows(self, suite: str) -> tuple[PairRow, ...]:
        """The rows of a suite; none for a suite that was not measured."""
        return self.suites.get(suite, ())


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


def expected_items(policy: GatePolicySpec, facts: Iterable[SuiteFact]) -> dict[str, int]:
    """The number of items of every suite: the generator's count, or what is recorded of the fixed file that the policy names by digest.

    A fixed suite without a fact of just that digest is left out, so that its evidence cannot be sound.
    """
    recorded = {(fact.name, fact.sha256): fact.items for fact in facts}
    sizes = {suite.name: suite.items.count or recorded.get((suite.name, suite.items.digest or "")) for suite in policy.suites}
    return {name: size for name, size in sizes.items() if size is not None}
