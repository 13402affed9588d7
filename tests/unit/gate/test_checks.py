"""Each check on both sides of its threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.anchored import anchored
from gatevalve.gate.authority import authority
from gatevalve.gate.floors import floors
from gatevalve.gate.noninferiority import noninferiority
from gatevalve.gate.results import CheckResult
from gatevalve.gate.statistics import clustered_mean, decimal, rate_lower, rate_upper
from gatevalve.gate.superiority import superiority
from support.gate_cases import case_of, guard_rows, must_pass_policy, must_rows, policy_of, row_of, suite_rows, target_rows

ONE = SCORE_ONE


def said(result: CheckResult) -> tuple[Outcome, Finding]:
    return result.outcome, result.finding


def flat(gain: int, items: int = 240) -> list[PairRow]:
    return [row_of("target", i, (gain,), (0,)) for i in range(items)]


SUPERIORITY: dict[str, tuple[GatePolicySpec, list[PairRow], Outcome, Finding]] = {
    "a gain on 24 of 40 items is no chance": (policy_of(), target_rows(24), Outcome.PASS, Finding.OK),
    "a gain on 9 of 40 items could be chance": (policy_of(), target_rows(9), Outcome.FAIL, Finding.NOT_SIGNIFICANT),
    "no difference is no gain": (policy_of(), target_rows(0), Outcome.FAIL, Finding.EFFECT_TOO_SMALL),
    "a loss is no gain": (policy_of(), suite_rows("target", 40, 2, lambda i: 0, lambda i: i % 3), Outcome.FAIL, Finding.EFFECT_TOO_SMALL),
    "the same tiny gain everywhere is below the least worthwhile": (
        policy_of(240, 1),
        flat(ONE // 250),
        Outcome.FAIL,
        Finding.EFFECT_TOO_SMALL,
    ),
    "the same small gain everywhere has no variance and proves nothing": (
        policy_of(240, 1),
        flat(ONE // 100),
        Outcome.FAIL,
        Finding.NOT_SIGNIFICANT,
    ),
    "the same large gain everywhere has no variance and is a gain": (policy_of(240, 1), flat(ONE // 5), Outcome.PASS, Finding.OK),
}


@pytest.mark.parametrize("case", SUPERIORITY)
def test_superiority(case: str) -> None:
    policy, rows, outcome, finding = SUPERIORITY[case]
    (result,) = superiority(policy, *case_of(policy, rows))
    assert said(result) == (outcome, finding)


def test_superiority_is_asked_at_the_error_rate_of_one_test() -> None:
    rows = target_rows(15)
    lenient = policy_of(round={"alphaBasisPoints": 500, "maxTests": 1})
    strict = policy_of(round={"alphaBasisPoints": 500, "maxTests": 500})
    assert [superiority(policy, *case_of(policy, rows))[0].outcome for policy in (lenient, strict)] == [Outcome.PASS, Outcome.FAIL]


def test_items_of_one_cluster_are_not_counted_as_independent() -> None:
    policy = policy_of(160)
    spread = [row_of("target", i, (ONE, ONE), (0, 0)) if i % 8 == 0 else row_of("target", i, (0, 0), (0, 0)) for i in range(160)]
    together = [row.model_copy(update={"cluster": f"c{0 if row.scores['candidate'][0] else i // 8}"}) for i, row in enumerate(spread)]
    assert superiority(policy, *case_of(policy, spread))[0].outcome is Outcome.PASS
    assert superiority(policy, *case_of(policy, together))[0].outcome is Outcome.FAIL


def test_superiority_reports_effect_bound_n_and_a_sentence_with_its_numbers() -> None:
    (result,) = superiority(policy_of(), *case_of(policy_of(), target_rows(24)))
    expected = clustered_mean(((f"{i}", int(i < 24)) for i in range(40)), 2, -1.0, 1.0)
    assert (result.statistic, result.bound, result.n) == ("0.300000000", decimal(expected.lower_bound(0.005)), 40)
    assert result.sentence.startswith("The candidate gains 30.00 points on the incumbent over 40 clusters (p = 0.0000")


GUARD_LOSSES: dict[str, tuple[list[PairRow], Outcome]] = {
    "13 of 600 items lost are within 4 points": (guard_rows(13, 600), Outcome.PASS),
    "14 of 600 items lost may be more than 4 points": (guard_rows(14, 600), Outcome.FAIL),
    "none of 200 lost is within 4 points": (guard_rows(0, 200), Outcome.PASS),
    "none of 100 lost may still hide 4 points": (guard_rows(0, 100), Outcome.FAIL),
    "items won elsewhere do not make up for items lost": (
        suite_rows("regression", 600, 1, lambda i: int(i >= 14), lambda i: int(i < 300)),
        Outcome.FAIL,
    ),
    "an answer that is only nearly right is lost": (
        [row_of("regression", i, (ONE - 1 if i < 14 else ONE,), (ONE,)) for i in range(600)],
        Outcome.FAIL,
    ),
}


@pytest.mark.parametrize("case", GUARD_LOSSES)
def test_noninferiority_counts_lost_items_exactly(case: str) -> None:
    rows, outcome = GUARD_LOSSES[case]
    (result,) = noninferiority(policy_of(), *case_of(policy_of(), rows))
    assert said(result) == (outcome, Finding.OK if outcome is Outcome.PASS else Finding.WORSE_THAN_MARGIN)


def test_the_exact_bound_is_the_one_of_the_lost_items() -> None:
    (result,) = noninferiority(policy_of(), *case_of(policy_of(), guard_rows(7, 600)))
    assert (result.statistic, result.bound, result.n) == (decimal(7 / 600), decimal(rate_upper(7, 600, 0.01)), 600)
    assert "Of 600 items 7 that the incumbent has right are lost and 0 are won" in result.sentence


def several(lost: int, decodes: int = 3, count: int = 600) -> tuple[GatePolicySpec, list[PairRow]]:
    policy = policy_of(guard={"decodes": decodes, "floorBasisPoints": 0})
    return policy, suite_rows("regression", count, decodes, lambda i: decodes - int(i < lost), lambda i: decodes)


def graded(lost: int) -> tuple[GatePolicySpec, list[PairRow]]:
    return policy_of(), [row_of("regression", i, ((0,) if i < lost else (ONE // 2,)), (ONE // 2,)) for i in range(600)]


def in_clusters(lost: int) -> tuple[GatePolicySpec, list[PairRow]]:
    rows = guard_rows(lost, 600)
    return policy_of(), [row.model_copy(update={"cluster": f"c{i // 2}"}) for i, row in enumerate(rows)]


AVERAGED: dict[str, tuple[tuple[GatePolicySpec, list[PairRow]], Outcome]] = {
    "one of three answers lost on 40 of 600 items": (several(40), Outcome.PASS),
    "one of three answers lost on 70 of 600 items": (several(70), Outcome.FAIL),
    "nothing lost in three answers": (several(0), Outcome.PASS),
    "nothing lost on 40 items proves no 4 points": (several(0, count=40), Outcome.FAIL),
    "half a point lost on 20 of 600 graded items": (graded(20), Outcome.PASS),
    "half a point lost on 45 of 600 graded items": (graded(45), Outcome.FAIL),
    "4 of 600 items lost in pairs": (in_clusters(4), Outcome.PASS),
    "14 of 600 items lost in pairs": (in_clusters(14), Outcome.FAIL),
}


@pytest.mark.parametrize("case", AVERAGED)
def test_noninferiority_of_several_answers_graded_scores_or_clusters_is_a_clustered_t(case: str) -> None:
    (policy, rows), outcome = AVERAGED[case]
    (result,) = noninferiority(policy, *case_of(policy, rows))
    assert said(result) == (outcome, Finding.OK if outcome is Outcome.PASS else Finding.WORSE_THAN_MARGIN)
    assert "The candidate loses" in result.sentence


def test_a_candidate_cannot_choose_the_lenient_test_by_one_half_right_answer() -> None:
    rows = guard_rows(14, 600)
    rows[599] = row_of("regression", 599, (ONE // 2,), (ONE,))
    (result,) = noninferiority(policy_of(), *case_of(policy_of(), rows))
    assert (result.outcome, result.statistic) == (Outcome.FAIL, decimal(15 / 600))


def anchored_case(anchor_hits: int, guard_lost: int) -> list[PairRow]:
    target = [row_of("target", i, (ONE, 0), (0, 0), (ONE if i < anchor_hits else 0, 0)) for i in range(40)]
    guard = [row_of("regression", i, (int(i >= guard_lost) * ONE,), (0,), (ONE,)) for i in range(200)]
    return [*target, *guard]


ANCHORED: dict[str, tuple[list[PairRow], list[tuple[Outcome, Finding]]]] = {
    "better than the anchor and nothing lost": (anchored_case(5, 0), [(Outcome.PASS, Finding.OK), (Outcome.PASS, Finding.OK)]),
    "as good as the anchor is not better": (anchored_case(40, 0), [(Outcome.FAIL, Finding.BELOW_ANCHOR), (Outcome.PASS, Finding.OK)]),
    "hardly better than the anchor": (anchored_case(36, 0), [(Outcome.FAIL, Finding.BELOW_ANCHOR), (Outcome.PASS, Finding.OK)]),
    "a guard below the anchor": (anchored_case(5, 9), [(Outcome.PASS, Finding.OK), (Outcome.FAIL, Finding.BELOW_ANCHOR)]),
}


@pytest.mark.parametrize("case", ANCHORED)
def test_anchored_looks_at_the_primary_and_at_every_guard(case: str) -> None:
    rows, expected = ANCHORED[case]
    assert [said(result) for result in anchored(policy_of(), *case_of(policy_of(), rows))] == expected


FLOORS: dict[str, tuple[dict[str, Any], list[PairRow], list[tuple[Outcome, Finding]]]] = {
    "29 wrong of 600 are shown to be above 92 %": ({"floorBasisPoints": 9200}, guard_rows(29, 600), [(Outcome.PASS, Finding.OK)]),
    "40 wrong of 600 are not": ({"floorBasisPoints": 9200}, guard_rows(40, 600), [(Outcome.FAIL, Finding.BELOW_FLOOR)]),
    "none wrong of 30 is not shown to be above 92 %": (
        {"floorBasisPoints": 9200},
        guard_rows(0, 30),
        [(Outcome.FAIL, Finding.BELOW_FLOOR)],
    ),
    "two of three answers right are above 60 %": (
        {"floorBasisPoints": 6000, "decodes": 3},
        suite_rows("regression", 600, 3, lambda i: 1 + i % 3, lambda i: 3),
        [(Outcome.PASS, Finding.OK)],
    ),
    "two of three answers right are not above 65 %": (
        {"floorBasisPoints": 6500, "decodes": 3},
        suite_rows("regression", 600, 3, lambda i: 1 + i % 3, lambda i: 3),
        [(Outcome.FAIL, Finding.BELOW_FLOOR)],
    ),
    "a floor of 0 is none": ({"floorBasisPoints": 0}, guard_rows(600, 600), []),
}


@pytest.mark.parametrize("case", FLOORS)
def test_floors(case: str) -> None:
    guard, rows, expected = FLOORS[case]
    policy = policy_of(guard=guard)
    assert [said(result) for result in floors(policy, *case_of(policy, rows))] == expected


def test_the_floor_is_compared_with_the_exact_bound() -> None:
    (result,) = floors(policy_of(), *case_of(policy_of(), guard_rows(12, 600)))
    assert (result.statistic, result.bound, result.n) == (decimal(0.98), decimal(rate_lower(588, 600, 0.01)), 600)


MUST_PASS: dict[str, tuple[list[PairRow], Outcome]] = {
    "every reply is right": (must_rows(()), Outcome.PASS),
    "one of many replies is wrong": (must_rows((0,)), Outcome.FAIL),
    "one reply is nearly right": (must_rows((ONE - 1,)), Outcome.FAIL),
    "one reply is missing": (must_rows((None,)), Outcome.FAIL),
}


@pytest.mark.parametrize("case", MUST_PASS)
def test_must_pass_asks_that_every_reply_is_wholly_right(case: str) -> None:
    rows, outcome = MUST_PASS[case]
    policy = must_pass_policy()
    results = floors(policy, *case_of(policy, [*guard_rows(0, 600), *rows]))
    assert [result.suite for result in results] == ["regression", "safety"]
    assert said(results[1]) == (outcome, Finding.OK if outcome is Outcome.PASS else Finding.MUST_PASS_FAILED)


def test_must_pass_states_how_many_replies_are_right() -> None:
    policy = must_pass_policy()
    result = floors(policy, *case_of(policy, [*guard_rows(0, 600), *must_rows((0,))]))[1]
    assert (result.statistic, result.n, result.sentence) == ("0.900000000", 10, "9 of 10 replies are wholly right. Asked for: all.")


OTHER = sha256(b"other")
AUTHORITY: dict[str, tuple[dict[str, Any], Finding]] = {
    "all in order": ({}, Finding.OK),
    "the last test of the round": ({"tests_spent": 10}, Finding.OK),
    "both from the base": ({"parent_digest": None, "incumbent_digest": None}, Finding.OK),
    "another policy is in force": ({"policy_digest": OTHER}, Finding.POLICY_FOREIGN),
    "an adapter for another base": ({"adapter_base_digest": OTHER}, Finding.BASE_FOREIGN),
    "another parent than what serves": ({"parent_digest": OTHER}, Finding.PARENT_FOREIGN),
    "started from the base while an adapter serves": ({"parent_digest": None}, Finding.PARENT_FOREIGN),
    "started from an adapter while the base serves": ({"incumbent_digest": None}, Finding.PARENT_FOREIGN),
    "the adapter that serves": ({"candidate_digest": sha256(b"incumbent")}, Finding.UNCHANGED),
    "an adapter that was turned away": ({"quarantined": frozenset({OTHER, sha256(b"candidate")})}, Finding.QUARANTINED),
    "one test too many": ({"tests_spent": 11}, Finding.BUDGET_EXHAUSTED),
    "a test that nobody paid": ({"tests_spent": 0}, Finding.BUDGET_EXHAUSTED),
}


@pytest.mark.parametrize("case", AUTHORITY)
def test_authority(case: str) -> None:
    changes, finding = AUTHORITY[case]
    evidence, ledger = case_of(policy_of(), [])
    (result,) = authority(policy_of(), evidence, replace(ledger, **changes))
    assert said(result) == (Outcome.PASS if finding is Finding.OK else Outcome.FAIL, finding)
