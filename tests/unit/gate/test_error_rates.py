"""The gate's error rates and power under the demo's policy, simulated with fixed seeds."""

from __future__ import annotations

import math
import random

import pytest

from gatevalve.contracts.reasons import Verdict
from gatevalve.gate.judge import judge
from gatevalve.gate.statistics import clustered_mean
from support.gate_cases import case_of, drawn_rows, manners_rows, policy_of

POLICY = policy_of(items=240, decodes=3)
ALPHA_PER_TEST = POLICY.round.alpha_per_test()


def rates(rng: random.Random, count: int, centre: float, spread: float) -> list[float]:
    """True rates of items: logistic of normal deviates."""
    return [1 / (1 + math.exp(-rng.gauss(centre, spread))) for _ in range(count)]


def same_answers(rng: random.Random, rate: float) -> int:
    """Difference of three answers each of two equal arms, in thirds."""
    return sum((rng.random() < rate) - (rng.random() < rate) for _ in range(3))


def verdict_of(rng: random.Random, gain: float, guard_loss: float) -> Verdict:
    """One candidate that is truly `gain` better on the primary suite and breaks a share of what the guard asks."""
    target = [(min(1.0, max(0.0, rate + gain)), rate) for rate in rates(rng, 240, -0.5, 1.2)]
    guard = [(0.0, 1.0) if rng.random() < guard_loss else (1.0, float(rng.random() < 0.97)) for _ in range(600)]
    rows = [*drawn_rows("target", target, 3, rng), *drawn_rows("regression", guard, 1, rng), *manners_rows()]
    return judge(POLICY, *case_of(POLICY, rows)).verdict


def test_a_candidate_equal_to_the_incumbent_passes_superiority_no_oftener_than_alpha_over_max_tests() -> None:
    rng, tests = random.Random(1), 2000
    items = rates(rng, 240, -0.5, 1.2)
    passed = 0
    for _ in range(tests):
        mean = clustered_mean(((f"{i}", same_answers(rng, rate)) for i, rate in enumerate(items)), 3, -1.0, 1.0)
        passed += mean.mean >= 0.005 and mean.lower_bound(ALPHA_PER_TEST) > 0
    deviation = math.sqrt(tests * ALPHA_PER_TEST * (1 - ALPHA_PER_TEST))
    assert 0 < passed <= tests * ALPHA_PER_TEST + 3 * deviation


def test_an_honest_gain_of_17_points_is_accepted_in_three_of_four_tests_at_least() -> None:
    rng = random.Random(2)
    verdicts = [verdict_of(rng, gain=0.17, guard_loss=0.005) for _ in range(40)]
    assert verdicts.count(Verdict.ACCEPTED) >= 30


def test_a_guard_that_loses_15_points_is_always_rejected() -> None:
    rng = random.Random(3)
    assert {verdict_of(rng, gain=0.20, guard_loss=0.15) for _ in range(20)} == {Verdict.REJECTED}


def test_a_candidate_equal_to_the_incumbent_is_not_accepted() -> None:
    rng = random.Random(4)
    assert Verdict.ACCEPTED not in {verdict_of(rng, gain=0.0, guard_loss=0.0) for _ in range(20)}


@pytest.mark.parametrize(
    ("centre", "gain"), [(-0.5, 0.085), (3.2, 0.06)], ids=["8.5 points from 40 percent", "about 4 points from 93 percent"]
)
def test_superiority_sees_the_gains_that_the_docs_name_in_seven_of_ten_tests_at_least(centre: float, gain: float) -> None:
    rng, tests = random.Random(5), 200
    passed = 0
    for _ in range(tests):
        items = [(min(1.0, rate + gain), rate) for rate in rates(rng, 240, centre, 1.2)]
        differences = [(f"{i}", sum((rng.random() < new) - (rng.random() < old) for _ in range(3))) for i, (new, old) in enumerate(items)]
        mean = clustered_mean(differences, 3, -1.0, 1.0)
        passed += mean.mean >= 0.005 and mean.lower_bound(ALPHA_PER_TEST) > 0
    assert passed >= 0.7 * tests
