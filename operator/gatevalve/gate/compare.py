"""Policies compared: whether another policy asks at least as much in everything; one line says for each field which way is stricter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Generic, TypeVar

from gatevalve.contracts.policy import GatePolicySpec, RoundBudget, Suite
from gatevalve.gate.probing import sentinels_off, traffic_suites

T = TypeVar("T")

NEVER = 1_000_000
"""Stands for no sentinels at all: more tests than any policy may have between two of them."""


class Relation(StrEnum):
    """What a policy is to the one in force."""

    EQUAL = "Equal"
    STRICTER = "Stricter"
    LOOSER = "Looser"
    INCOMPARABLE = "Incomparable"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two policies differ, and what the new value is to the old one."""

    field: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class Line(Generic[T]):
    """The order of one field: `rank` grows with strictness; values of one rank, or without one, are neither stricter nor looser."""

    field: str
    value: Callable[[T], Any]
    rank: Callable[[Any], Any] | None = None


def _more(value: int) -> int:
    return value


def _less(value: float | Fraction) -> float | Fraction:
    return -value


def _any(number: int) -> bool:
    return number > 0


def _per_test(budget: RoundBudget) -> Fraction:
    return Fraction(budget.alpha_basis_points, budget.max_tests)


SUITE: tuple[Line[Suite], ...] = (
    # Another role, other items, another scorer or another way of asking measures something else.
    Line("role", lambda suite: suite.role),
    Line("items.generator", lambda suite: suite.items.generator),
    Line("items.uri", lambda suite: suite.items.uri),
    Line("items.digest", lambda suite: suite.items.digest),
    Line("items.traffic.min", lambda suite: suite.items.traffic.min if suite.items.traffic else None, _more),
    Line("verifier", lambda suite: suite.verifier),
    Line("judge", lambda suite: suite.judge),
    Line("sampling.temperature", lambda suite: suite.sampling.temperature),
    Line("sampling.maxTokens", lambda suite: suite.sampling.max_tokens),
    # With one decode losses are counted, with several means are taken: other statistics, not a stricter one.
    Line("decodes", lambda suite: suite.decodes),
    # The error rates hold for any number of items; fewer leave them to a rougher approximation and less of the population is seen.
    Line("items.count", lambda suite: suite.items.count, _more),
    Line("minEffectBasisPoints", lambda suite: suite.min_effect_basis_points, _more),
    # A plan, not a bound: it moves the condition Underpowered and no verdict.
    Line("minDetectableEffectBasisPoints", lambda suite: suite.min_detectable_effect_basis_points),
    Line("marginBasisPoints", lambda suite: suite.margin_basis_points, _less),
    Line("floorBasisPoints", lambda suite: suite.floor_basis_points, _more),
)
"""Of suites with one name."""

POLICY: tuple[Line[GatePolicySpec], ...] = (
    Line("round.alphaBasisPoints", lambda policy: policy.round.alpha_basis_points, _less),
    # More tests share the round's alpha among them, so each gets less; what a round may release wrongly is alpha, the line above.
    Line("round.maxTests", lambda policy: _per_test(policy.round), _less),
    Line("guardAlphaBasisPoints", lambda policy: policy.guard_alpha_basis_points, _less),
    Line("behaviour.lengthRatioPercent.min", lambda policy: policy.behaviour.length_ratio_percent.min, _more),
    Line("behaviour.lengthRatioPercent.max", lambda policy: policy.behaviour.length_ratio_percent.max, _less),
    Line("behaviour.maxGainByLengthPercent", lambda policy: policy.behaviour.max_gain_by_length_percent, _less),
    Line("behaviour.maxRepetitionBasisPoints", lambda policy: policy.behaviour.max_repetition_basis_points, _less),
    Line("behaviour.maxTruncationBasisPoints", lambda policy: policy.behaviour.max_truncation_basis_points, _less),
    Line("behaviour.minDiversityPercent", lambda policy: policy.behaviour.min_diversity_percent, _more),
    Line("behaviour.maxKlMillinatsPerToken", lambda policy: policy.behaviour.max_kl_millinats_per_token, _less),
    Line("behaviour.maxAnchorKlMillinatsPerToken", lambda policy: policy.behaviour.max_anchor_kl_millinats_per_token, _less),
    Line("behaviour.maxFormatShiftBasisPoints", lambda policy: policy.behaviour.max_format_shift_basis_points, _less),
    Line("behaviour.maxJudgeTextBasisPoints", lambda policy: policy.behaviour.max_judge_text_basis_points, _less),
    Line("behaviour.maxAvoidanceBasisPoints", lambda policy: policy.behaviour.max_avoidance_basis_points, _less),
    Line("behaviour.maxExcessNegativeFlipBasisPoints", lambda policy: policy.behaviour.max_excess_negative_flip_basis_points, _less),
    # The screen can only refuse: with items it asks more than without, two sizes ask differently, and a smaller p ends more candidates.
    Line("futility.items", lambda policy: policy.futility.items, _any),
    Line("futility.alphaBasisPoints", lambda policy: policy.futility.alpha_basis_points, _less),
    # Fewer tests between two sentinels probe the gate more often.
    Line("sentinels.everyCandidates", lambda policy: NEVER if sentinels_off(policy) else policy.sentinels.every_candidates, _less),
    Line("evidence.maxMissingBasisPoints", lambda policy: policy.evidence.max_missing_basis_points, _less),
    Line("evidence.minClusters", lambda policy: policy.evidence.min_clusters, _more),
)
"""Of everything but the suites."""


def compare(old: GatePolicySpec, new: GatePolicySpec) -> Relation:
    """What `new` is to `old`: Stricter when no field is looser, Equal when it is the same policy."""
    found = {difference.relation for difference in differences(old, new)}
    if not found:
        return Relation.EQUAL
    return found.pop() if len(found) == 1 else Relation.INCOMPARABLE


def differences(old: GatePolicySpec, new: GatePolicySpec) -> tuple[Difference, ...]:
    """Every field in which two policies differ, as people write it; none when they are one policy."""
    found = [*_suites(old, new), *_lines("", POLICY, old, new), *_put_off(old, new)]
    if not found and old != new:
        found = [Difference("the order of suites", Relation.INCOMPARABLE)]
    return tuple(found)


def _suites(old: GatePolicySpec, new: GatePolicySpec) -> Iterator[Difference]:
    """Suites matched by name: one that is gone asks for less, one more asks for more."""
    before, after = ({suite.name: suite for suite in policy.suites} for policy in (old, new))
    for name in sorted(before.keys() | after.keys()):
        where = f"suite {name}"
        if name not in after:
            yield Difference(where, Relation.LOOSER)
        elif name not in before:
            yield Difference(where, Relation.STRICTER)
        else:
            yield from _lines(f"{where} ", SUITE, before[name], after[name])


def _put_off(old: GatePolicySpec, new: GatePolicySpec) -> Iterator[Difference]:
    """Other traffic, or rounds on it of more tests, put the next sentinel off: no number of stricter policies may do that."""
    probed, traffic = sentinels_off(old) is None and sentinels_off(new) is None, traffic_suites(new)
    longer = bool(traffic) and new.round.max_tests > old.round.max_tests
    if probed and (longer or traffic_suites(old) != traffic):
        yield Difference("traffic that sentinels are asked again", Relation.INCOMPARABLE)


def _lines(where: str, lines: tuple[Line[T], ...], old: T, new: T) -> Iterator[Difference]:
    for line in lines:
        relation = _relation(line, line.value(old), line.value(new))
        if relation is not Relation.EQUAL:
            yield Difference(where + line.field, relation)


def _relation(line: Line[T], old: Any, new: Any) -> Relation:
    if old == new:
        return Relation.EQUAL
    if line.rank is None or old is None or new is None:
        return Relation.INCOMPARABLE
    before, after = line.rank(old), line.rank(new)
    if before == after:
        return Relation.INCOMPARABLE
    return Relation.STRICTER if after > before else Relation.LOOSER
