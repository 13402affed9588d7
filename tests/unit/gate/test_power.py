"""What a policy's tests see: against simulated tests, and what is told of a policy before anything is measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from demo.objects import manifest
from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import SCREEN, GatePolicySpec, Suite
from gatevalve.gate.noise import Noise, observed_noise, planned_noise, pooled
from gatevalve.gate.power import SEEN, Size, SuitePower, gain_power, loss_power, planned_items, planned_power, power
from gatevalve.gate.statistics import ClusteredMean, clustered_mean, rate_upper
from support.gate_cases import drawn_rows, policy_of, row_of

FEWEST_TESTS, DRAWS = 1500, 400_000
"""Simulated tests of a size: more where tests are small."""
CLOSE = 0.03
"""The approximation's error that is promised; simulated shares themselves are off by up to a point."""

Rates = tuple[tuple[float, float], tuple[float, float]]
"""The true rates of candidate and incumbent on the two kinds of items, each as frequent."""


def spread(gain: float, centre: float = 0.5, tau: float = 0.15) -> Rates:
    """Items on which the true gain is `gain` give or take `tau`, as often above as below."""
    high, low = (gain + tau) / 2, (gain - tau) / 2
    return (centre + high, centre - high), (centre + low, centre - low)


def noise_of(rates: Rates) -> Noise:
    """The variances that rates of items truly have."""
    mean = sum(new - old for new, old in rates) / 2
    within = sum(one * (1 - one) for pair in rates for one in pair) / 2
    return Noise(sum((new - old - mean) ** 2 for new, old in rates) / 2, within, None)


def answers(rate: float, decodes: int) -> list[float]:
    """How probable each number of right answers is."""
    return [math.comb(decodes, right) * rate**right * (1 - rate) ** (decodes - right) for right in range(decodes + 1)]


def differences(rates: Rates, decodes: int) -> tuple[list[int], list[float]]:
    """What an item's difference in answers can be, of an item of either kind, and how probable that is."""
    found = [(answers(new, decodes), answers(old, decodes)) for new, old in rates]
    values = [(i - j, p * q) for new, old in found for i, p in enumerate(new) for j, q in enumerate(old)]
    return [value for value, _ in values], [weight for _, weight in values]


def simulated(rates: Rates, size: Size, passes: Callable[[ClusteredMean], bool], seed: int = 7) -> float:
    """The share of simulated tests that pass, each on items of its own."""
    rng, passed, tests = random.Random(seed), 0, max(FEWEST_TESTS, DRAWS // size.items)
    names = [f"{item}" for item in range(size.items)]
    values, weights = differences(rates, size.decodes)
    for _ in range(tests):
        drawn = zip(names, rng.choices(values, weights, k=size.items), strict=True)
        passed += passes(clustered_mean(drawn, size.decodes, -1.0, 1.0))
    return passed / tests


GAINS = {
    "a gain that eight of ten tests see": (Size(240, 3), 0.095, {}),
    "a gain that one of ten tests sees": (Size(240, 3), 0.035, {}),
    "no gain": (Size(120, 2), 0.0, {}),
    "a large gain on few items": (Size(40, 1), 0.40, {}),
    "a gain at the least worthwhile one": (Size(240, 3), 0.10, {"minEffectBasisPoints": 1000}),
}


@pytest.mark.parametrize("sentence", GAINS)
def test_superiority_passes_as_often_as_simulated_with(sentence: str) -> None:
    size, gain, changes = GAINS[sentence]
    policy = with_primary(changes)
    least = (policy.primary.min_effect_basis_points or 0) / 10_000
    alpha = policy.round.alpha_per_test()
    seen = simulated(spread(gain), size, lambda mean: mean.mean >= least and mean.lower_bound(alpha) > 0)
    assert gain_power(policy, policy.primary, noise_of(spread(gain)), size)(gain) == pytest.approx(seen, abs=CLOSE)


def goes_on(mean: ClusteredMean, alpha: int) -> bool:
    """The screen's rule on a mean whose values vary."""
    if alpha > 5000:
        return alpha == 10_000 or mean.turned().t_bound(1 - alpha / 10_000) <= 0
    return mean.t_bound(alpha / 10_000) >= 0


@pytest.mark.parametrize(("alpha", "gain"), [(100, 0.25), (5000, 0.05), (2000, 0.05), (8000, 0.0), (10_000, 0.0)])
def test_the_screen_passes_as_often_as_simulated(alpha: int, gain: float) -> None:
    policy, size = policy_of(futility={"items": 60, "alphaBasisPoints": alpha}), Size(60, 3)
    assert policy.screen is not None
    seen = simulated(spread(gain), size, lambda mean: goes_on(mean, alpha))
    assert gain_power(policy, policy.screen, noise_of(spread(gain)), size)(gain) == pytest.approx(seen, abs=CLOSE)


@pytest.mark.parametrize(("items", "loss"), [(600, 0.0), (600, 0.012), (1200, 0.015)])
def test_a_guard_of_means_passes_as_often_as_simulated(items: int, loss: float) -> None:
    policy, size, rate = policy_of(guard={"decodes": 3}), Size(items, 3), spread(-loss, centre=0.9, tau=0.05)
    seen = simulated(rate, size, lambda mean: mean.cautious_lower_bound(0.01) > -0.04)
    assert loss_power(policy, guard(policy), noise_of(rate), size)(loss) == pytest.approx(seen, abs=CLOSE)


@pytest.mark.parametrize("loss", [0.0, 0.007, 0.03])
def test_a_guard_of_counts_passes_as_often_as_simulated(loss: float) -> None:
    rng, policy, flips = random.Random(3), policy_of(), 0.011
    lost = [sum(rng.random() < loss + flips for _ in range(600)) for _ in range(FEWEST_TESTS)]
    allowed = {number for number in set(lost) if rate_upper(number, 600, 0.01) < 0.04}
    seen = sum(number in allowed for number in lost) / FEWEST_TESTS
    assert loss_power(policy, guard(policy), Noise(0, 0, flips), Size(600, 1))(loss) == pytest.approx(seen, abs=CLOSE)


def test_the_plan_expects_no_more_of_a_test_than_answers_that_are_right_or_wrong_give() -> None:
    policy, size = policy_of(items=240, decodes=3), Size(240, 3)
    seen = simulated(spread(0.095), size, lambda mean: mean.lower_bound(0.005) > 0)
    planned = gain_power(policy, policy.primary, planned_noise(policy.primary), size)(0.095)
    assert seen - 0.10 < planned < seen + 0.01


@pytest.mark.parametrize(("gain", "seen"), [(0.15, 0.0), (0.17, 1.0)])
def test_a_gain_that_hardly_varies_is_seen_once_it_is_beyond_what_few_items_may_hide(gain: float, seen: float) -> None:
    policy = policy_of()
    assert gain_power(policy, policy.primary, Noise(1e-6, 0, None), Size(40, 1))(gain) == pytest.approx(seen)


# ---- the table


def with_primary(changes: dict[str, Any], **policy: Any) -> GatePolicySpec:
    wire = policy_of(240, 3, **policy).wire()
    wire["suites"][0] |= changes
    return GatePolicySpec.parse(wire)


def guard(policy: GatePolicySpec) -> Suite:
    return policy.with_role("Guard")[0]


def planned(policy: GatePolicySpec, guard_items: int = 600) -> dict[str, SuitePower]:
    items = {**planned_items(policy), "regression": guard_items}
    suites = {suite.name: suite for suite in (*policy.suites, *([policy.screen] if policy.screen else []))}
    return {found.suite: found for found in power(policy, {name: planned_noise(suites[name]) for name in items}, items)}


def test_screen_primary_and_guards_are_told_and_a_fixed_file_only_where_its_items_are_known() -> None:
    policy = policy_of(240, 3, futility={"items": 60, "alphaBasisPoints": 5000})
    assert list(planned(policy)) == [SCREEN, "target", "regression"]
    noises = {suite.name: planned_noise(suite) for suite in policy.suites}
    assert [found.suite for found in power(policy, noises, planned_items(policy))] == ["target"]


def test_an_effect_that_is_told_is_the_smallest_that_eight_of_ten_tests_see() -> None:
    policy = policy_of(240, 3)
    found = planned(policy)["target"]
    seen = gain_power(policy, policy.primary, planned_noise(policy.primary), found.size)
    assert found.effect is not None
    assert seen(found.effect - 0.0001) < SEEN <= seen(found.effect + 1e-8)
    assert found.alpha == 0.005
    assert found.effect == pytest.approx(0.0966, abs=0.0005)


def test_more_items_and_more_decodes_see_less_and_decodes_leave_what_lies_between_items() -> None:
    found = planned(policy_of(240, 3))["target"]
    effects = {choice.what: choice.effect or 1.0 for choice in found.choices}
    assert list(effects) == ["items x2", "items x4", "decodes x2", "decodes x4"]
    assert effects["items x4"] < effects["items x2"] < (found.effect or 0)
    assert effects["items x4"] < effects["decodes x4"] < effects["decodes x2"]
    assert effects["items x4"] == pytest.approx((found.effect or 0) / 2, rel=0.02)


def test_a_guard_tells_the_loss_that_passes_and_how_often_no_loss_does() -> None:
    found = planned(policy_of(240, 3))["regression"]
    assert found.alpha == 0.01
    assert found.equal == pytest.approx(0.991, abs=0.002)
    assert found.effect == pytest.approx(0.0068, abs=0.0005)
    assert [choice.what for choice in found.choices] == ["items x2", "items x4"]


def test_a_guard_too_small_for_its_margin_passes_nothing() -> None:
    found = planned(policy_of(240, 3), guard_items=100)["regression"]
    assert (found.effect, found.equal) == (None, 0.0)
    assert [choice.effect is None for choice in found.choices] == [True, False]


def test_one_sampled_answer_loses_more_items_to_chance_than_a_margin_allows() -> None:
    policy = policy_of(240, 3, guard={"sampling": {"temperature": "1.0", "maxTokens": 48}})
    assert planned(policy)["regression"].equal == 0.0


# ---- variances


def test_the_planned_variance_is_that_of_items_and_of_one_answer_of_each_arm() -> None:
    suite = policy_of().primary
    assert planned_noise(suite).variance(3, 0.1) == pytest.approx(0.15**2 + 2 * 0.25 / 3)
    assert planned_noise(suite, 0.9).variance(1, 0.0) == pytest.approx(0.15**2 + 2 * 0.09)


def test_greedy_replies_vary_with_the_effect_alone() -> None:
    noise = planned_noise(guard(policy_of()))
    assert noise.variance(1, 0.0) == pytest.approx(0.15**2)
    assert noise.variance(1, 0.1) == pytest.approx(0.15**2 + 0.1 - 0.01)


def test_observed_variances_are_those_that_the_answers_were_drawn_with() -> None:
    rng, rate = random.Random(5), spread(0.1)
    rows = drawn_rows("target", list(rate) * 2000, 4, rng)
    found, true = observed_noise(rows, 4), noise_of(rate)
    assert found.between == pytest.approx(true.between, abs=0.006)
    assert found.within == pytest.approx(true.within, rel=0.03)
    assert (found.flips, found.cluster, found.split) == (None, 1.0, True)


def test_observed_variances_give_back_the_clustered_standard_error() -> None:
    rng, rate = random.Random(6), spread(0.1)
    rows = [
        row.model_copy(update={"cluster": f"c{number // 4}"}) for number, row in enumerate(drawn_rows("target", list(rate) * 40, 2, rng))
    ]
    noise = observed_noise(rows, 2)
    measured = clustered_mean(((row.cluster, difference(row)) for row in rows), 2, -1.0, 1.0)
    assert math.sqrt(noise.variance(2, 0.0) * noise.cluster / 80) == pytest.approx(measured.standard_error)
    assert noise.cluster == 4


def difference(row: PairRow) -> int:
    return sum((new or 0) - (old or 0) for new, old in zip(row.scores["candidate"], row.scores["incumbent"], strict=True)) // SCORE_ONE


def test_items_that_all_differ_alike_have_no_variance_below_zero() -> None:
    rows = [row_of("target", item, (SCORE_ONE, 0), (SCORE_ONE, 0)) for item in range(40)]
    noise = observed_noise(rows, 2)
    assert (noise.between, noise.within) == (0.0, 0.0)


def test_with_one_decode_nothing_tells_sampling_from_items_and_other_decodes_are_not_planned() -> None:
    rng, policy = random.Random(5), policy_of(400, 1)
    noise = observed_noise(drawn_rows("target", [(0.6, 0.5)] * 400, 1, rng), 1)
    assert not noise.split
    (found,) = power(policy, {"target": noise}, {"target": 400})
    assert [choice.what for choice in found.choices] == ["items x2", "items x4"]


FLIPS = {
    "three lost and five won": ([(0, 1)] * 3 + [(1, 0)] * 5 + [(1, 1)] * 92, 0.03),
    "nothing changed": ([(1, 1)] * 100, 0.0),
}


@pytest.mark.parametrize("sentence", FLIPS)
def test_flips_are_what_changed_without_getting_worse(sentence: str) -> None:
    answers, share = FLIPS[sentence]
    rows = [row_of("regression", item, (new * SCORE_ONE,), (old * SCORE_ONE,)) for item, (new, old) in enumerate(answers)]
    assert observed_noise(rows, 1).flips == share


def test_graded_scores_have_no_flips() -> None:
    rows = [row_of("regression", item, (SCORE_ONE // 2,), (SCORE_ONE // 2,)) for item in range(40)]
    assert observed_noise(rows, 1).flips is None


def test_several_tests_are_pooled_into_their_mean() -> None:
    found = pooled([Noise(0.25, 0.5, 0.01), Noise(0.75, 0.25, None, cluster=3, split=False)])
    assert found == Noise(0.5, 0.375, None, 2, split=False)


def test_rows_of_one_cluster_show_no_variance() -> None:
    with pytest.raises(ContractError, match="show no variance"):
        observed_noise([row_of("target", 0, (SCORE_ONE,), (0,))], 1)


# ---- what is told of a policy


def test_the_demos_policy_sees_what_it_says_it_wants_to_see() -> None:
    seen = planned_power(GatePolicySpec.parse(manifest("policy")["spec"]))
    assert seen is not None
    assert (seen.effect_basis_points, seen.remedies) == (1000, ())
    assert 0.80 <= seen.share < 0.81


def test_too_few_items_are_told_with_what_would_be_enough() -> None:
    seen = planned_power(policy_of(120, 3))
    assert seen is not None
    assert seen.share < 0.5
    (items, decodes) = seen.remedies
    enough = (
        planned_power(policy_of(int(items.removeprefix("items ")), 3)),
        planned_power(policy_of(120, int(decodes.removeprefix("decodes ")))),
    )
    assert [found and found.share >= SEEN for found in enough] == [True, True]
    fewer = planned_power(policy_of(int(items.removeprefix("items ")) - 1, 3))
    assert fewer is not None
    assert fewer.share < SEEN


def test_a_screen_that_ends_what_a_test_would_see_is_told() -> None:
    seen = planned_power(policy_of(480, 3, futility={"items": 30, "alphaBasisPoints": 1000}))
    assert seen is not None
    assert seen.share < SEEN
    assert [remedy.split()[0] for remedy in seen.remedies] == ["decodes", "futility.items"]


UNKNOWN: dict[str, tuple[dict[str, Any], float | None]] = {
    "a fixed file's items are not counted in the policy": (
        {"items": {"uri": "suites/t.jsonl", "digest": sha256(b"t")}},
        None,
    ),
    "no effect is asked for": ({"minDetectableEffectBasisPoints": 0}, 1.0),
}


@pytest.mark.parametrize("sentence", UNKNOWN)
def test_nothing_is_missing_where(sentence: str) -> None:
    changes, share = UNKNOWN[sentence]
    seen = planned_power(with_primary(changes))
    assert (seen.share if seen else None) == share


def test_a_judged_score_is_planned_with_no_more_than_it_can_vary() -> None:
    spec = policy_of().suites[0].wire()
    judge = {"url": "http://judge.example", "model": "judge", "canaries": {"uri": "suites/a.jsonl", "digest": sha256(b"canaries")}}
    judged = Suite.parse({**{key: value for key, value in spec.items() if key != "verifier"}, "judge": judge})
    rng = random.Random(3)
    rows = [row_of("target", item, tuple(rng.choice((0, SCORE_ONE)) for _ in range(3)), (SCORE_ONE // 2,) * 3) for item in range(2000)]
    assert planned_noise(judged).within == pytest.approx(observed_noise(rows, 3).within, rel=0.1)
