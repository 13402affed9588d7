"""Churn: answers that went wrong, beyond the incumbent's own noise."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.churn import churn
from gatevalve.gate.results import CheckResult
from support.gate_cases import PRIMARY_DECODES, case_of, drawn_rows, guard_rows, must_pass_policy, must_rows, policy_of, row_of
from support.thresholds import THRESHOLDS

ONE = SCORE_ONE


def allowed(most: int, decodes: int = 1) -> GatePolicySpec:
    return policy_of(decodes=decodes, behaviour={**THRESHOLDS["behaviour"], "maxExcessNegativeFlipBasisPoints": most})


def of_target(policy: GatePolicySpec, rows: list[PairRow]) -> CheckResult:
    return churn(policy, *case_of(policy, [*rows, *guard_rows()]))[0]


def flipped(count: int, items: int = 100) -> list[PairRow]:
    """Items of which the candidate loses `count` and wins as many."""
    lost, won = [(0, ONE)] * count, [(ONE, 0)] * count
    return [row_of("target", i, (new,), (old,)) for i, (new, old) in enumerate([*lost, *won, *[(ONE, ONE)] * (items - 2 * count)])]


FLIPS: dict[str, tuple[GatePolicySpec, list[PairRow], str, Outcome]] = {
    "nothing lost": (allowed(0), flipped(0), "0.000000000", Outcome.PASS),
    "5 of 100 answers lost at the limit": (allowed(500), flipped(5), "0.050000000", Outcome.PASS),
    "6 of 100 answers lost, and won elsewhere": (allowed(500), flipped(6), "0.060000000", Outcome.FAIL),
    "no limit": (allowed(10_000), flipped(50), "0.500000000", Outcome.PASS),
    "as noisy as the incumbent itself": (
        allowed(0, 2),
        [row_of("target", i, (ONE, 0), (ONE, 0)) for i in range(40)],
        "-0.250000000",
        Outcome.PASS,
    ),
    "both answers lost where the incumbent is sure": (
        allowed(4000, 2),
        [row_of("target", i, (0, 0) if i < 20 else (ONE, ONE), (ONE, ONE)) for i in range(40)],
        "0.500000000",
        Outcome.FAIL,
    ),
    "a missing answer is lost": (
        allowed(100),
        [row_of("target", i, (None if i < 2 else ONE,), (ONE,)) for i in range(100)],
        "0.020000000",
        Outcome.FAIL,
    ),
    "half an answer lost counts half": (
        allowed(400),
        [row_of("target", i, (ONE // 2 if i < 10 else ONE,), (ONE,)) for i in range(100)],
        "0.050000000",
        Outcome.FAIL,
    ),
}


@pytest.mark.parametrize("case", FLIPS)
def test_answers_lost_beyond_the_incumbents_noise(case: str) -> None:
    policy, rows, excess, outcome = FLIPS[case]
    result = of_target(policy, rows)
    assert (result.statistic, result.outcome) == (excess, outcome)
    assert result.finding is (Finding.OK if outcome is Outcome.PASS else Finding.CHURNED)


def test_every_suite_with_scores_is_looked_at() -> None:
    policy = must_pass_policy()
    results = churn(policy, *case_of(policy, [*flipped(0), *guard_rows(), *must_rows((0,))]))
    assert [(result.suite, result.outcome) for result in results] == [
        ("target", Outcome.PASS),
        ("regression", Outcome.PASS),
        ("safety", Outcome.FAIL),
    ]


TABLES = st.lists(st.tuples(st.lists(st.booleans(), min_size=3, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3)), min_size=1)


def rows_of(table: list[tuple[list[bool], list[bool]]]) -> list[PairRow]:
    return [row_of("target", i, tuple(ONE * one for one in new), tuple(ONE * one for one in old)) for i, (new, old) in enumerate(table)]


@given(TABLES)
@settings(deadline=None)
def test_of_right_and_wrong_answers_it_is_the_formula_of_rates(table: list[tuple[list[bool], list[bool]]]) -> None:
    new, old = (np.array([pair[arm] for pair in table]).mean(axis=1) for arm in (0, 1))
    excess = (old * (1 - new)).mean() - (3 / 2 * old * (1 - old)).mean()
    assert float(of_target(allowed(0, 3), rows_of(table)).statistic or 0) == pytest.approx(excess, abs=1e-9)


@given(TABLES, st.data())
@settings(deadline=None)
def test_a_worse_answer_never_lowers_it(table: list[tuple[list[bool], list[bool]]], data: st.DataObject) -> None:
    rows = rows_of(table)
    index, decode = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 2))
    scores = list(rows[index].scores["candidate"])
    scores[decode] = data.draw(st.integers(0, scores[decode] or 0))
    worse = rows[index].model_copy(update={"scores": {**rows[index].scores, "candidate": tuple(scores)}})
    before, after = (of_target(allowed(0, 3), some) for some in (rows, [*rows[:index], worse, *rows[index + 1 :]]))
    assert float(after.statistic or 0) >= float(before.statistic or 0)


def test_a_candidate_that_is_the_incumbent_shows_none_on_average() -> None:
    rng = random.Random(7)
    rates = [rng.random() for _ in range(4000)]
    result = of_target(allowed(0, 4), drawn_rows("target", [(rate, rate) for rate in rates], 4, rng))
    assert abs(float(result.statistic or 1)) < 0.01


JUDGED = {
    "verifier": None,
    "judge": {"url": "http://judge.example", "model": "judge", "canaries": {"uri": "suites/a.jsonl", "digest": sha256(b"canaries")}},
}


def test_a_judge_calls_no_reply_right_so_a_lost_comparison_is_no_lost_answer() -> None:
    rules = policy_of(guard={**JUDGED, "decodes": 2, "floorBasisPoints": 0})
    kept = [row_of("target", item, (ONE,) * PRIMARY_DECODES, (ONE,) * PRIMARY_DECODES) for item in range(40)]
    lost = [row_of("regression", item, (0, 0), (ONE // 2, ONE // 2)) for item in range(40)]
    assert [result.suite for result in churn(rules, *case_of(rules, [*kept, *lost]))] == ["target"]
