"""The statistics against exact or independent sums, and the properties that the checks lean on."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import takewhile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatevalve.contracts.errors import ContractError
from gatevalve.gate import statistics
from gatevalve.gate.statistics import (
    ClusteredMean,
    beta_cdf,
    beta_quantile,
    clustered_mean,
    decimal,
    rate_lower,
    rate_upper,
    student_quantile,
    student_tail,
)

ONE = 60
Table = list[list[int]]


def binomial_tail(k: int, n: int, x: Fraction) -> float:
    """P(Bin(n, x) >= k) in integers alone."""
    hit, miss = x.numerator, x.denominator - x.numerator
    shares: int = sum(math.comb(n, i) * hit**i * miss ** (n - i) for i in range(k, n + 1))
    return shares / int(x.denominator**n)


def student_within(t: float, freedom: int) -> float:
    """P(|T| <= t) by the finite sums of Abramowitz & Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    if freedom % 2 == 0:
        term, total = 1.0, 1.0
        for k in range(1, freedom // 2):
            term *= cosine * cosine * (2 * k - 1) / (2 * k)
            total += term
        return sine * total
    term, total = cosine, cosine if freedom > 1 else 0.0
    for k in range(1, (freedom - 1) // 2):
        term *= cosine * cosine * (2 * k) / (2 * k + 1)
        total += term
    return 2 / math.pi * (angle + sine * total)


def simpson_tail(t: float, freedom: int) -> float:
    """P(T > t) by integrating the density over u = 1/x from 0 to 1/t, for t > 0."""
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def density(u: float) -> float:
        return 0.0 if u == 0 else constant * (1 + 1 / (u * u * freedom)) ** (-(freedom + 1) / 2) / (u * u)

    steps, width = 20_000, 1 / t / 20_000
    inner = sum((4 if i % 2 else 2) * density(i * width) for i in range(1, steps))
    return width / 3 * (density(0) + inner + density(1 / t))


def mean_of(table: Table, low: float = -1.0) -> ClusteredMean:
    return clustered_mean(((f"c{g}", value) for g, cluster in enumerate(table) for value in cluster), ONE, low, 1.0)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 2), (3, 10), (10, 10), (17, 40), (200, 400), (399, 400)])
@pytest.mark.parametrize("x", [Fraction(1, 1000), Fraction(4, 100), Fraction(1, 3), Fraction(1, 2), Fraction(97, 100)])
def test_the_incomplete_beta_function_is_the_exact_binomial_tail(k: int, n: int, x: Fraction) -> None:
    assert beta_cdf(float(x), k, n - k + 1) == pytest.approx(binomial_tail(k, n, x), abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 29, 30, 239, 599, 1999])
@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, 1.96, 2.5965, 5.0, 12.0])
def test_students_tail_is_the_finite_sum_of_its_trigonometric_form(t: float, freedom: int) -> None:
    expected = (1 - student_within(t, freedom)) / 2
    assert student_tail(t, freedom) == pytest.approx(expected, abs=1e-11)
    assert student_tail(-t, freedom) == pytest.approx(1 - expected, abs=1e-11)


@pytest.mark.parametrize(("t", "freedom"), [(2.0, 5), (2.756, 29), (3.5, 10), (6.0, 100)])
def test_students_tail_is_the_integral_of_its_density(t: float, freedom: int) -> None:
    assert student_tail(t, freedom) == pytest.approx(simpson_tail(t, freedom), abs=1e-9)


@pytest.mark.parametrize(
    ("alpha", "freedom", "printed"),
    [
        (0.05, 1, 6.314),
        (0.05, 10, 1.812),
        (0.01, 10, 2.764),
        (0.005, 29, 2.756),
        (0.01, 30, 2.457),
        (0.005, 120, 2.617),
        (0.001, 60, 3.232),
    ],
)
def test_quantiles_are_those_of_the_printed_t_table(alpha: float, freedom: int, printed: float) -> None:
    assert student_quantile(alpha, freedom) == pytest.approx(printed, abs=6e-4)


@given(st.floats(1e-5, 0.49), st.integers(1, 5000))
@settings(deadline=None)
def test_the_quantile_inverts_the_tail(alpha: float, freedom: int) -> None:
    assert student_tail(student_quantile(alpha, freedom), freedom) == pytest.approx(alpha, rel=1e-9)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 200), (1, 30), (12, 600), (299, 600), (599, 600), (600, 600)])
@pytest.mark.parametrize("alpha", [0.005, 0.01, 0.05])
def test_clopper_pearson_bounds_are_where_the_exact_binomial_tail_is_alpha(hits: int, n: int, alpha: float) -> None:
    step = Fraction(1, 10**9)
    lower, upper = Fraction(decimal(rate_lower(hits, n, alpha))), Fraction(decimal(rate_upper(hits, n, alpha)))
    if hits > 0:
        assert binomial_tail(hits, n, lower - step) <= alpha <= binomial_tail(hits, n, min(lower + step, Fraction(1)))
    if hits < n:
        assert 1 - binomial_tail(hits + 1, n, upper + step) <= alpha <= 1 - binomial_tail(hits + 1, n, max(upper - step, Fraction(0)))


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (rate_lower(0, 30, 0.01), 0.0),
        (rate_upper(30, 30, 0.01), 1.0),
        (rate_upper(0, 600, 0.01), 1 - 0.01 ** (1 / 600)),
        (rate_lower(600, 600, 0.01), 0.01 ** (1 / 600)),
    ],
)
def test_bounds_of_nothing_and_of_everything_have_their_closed_form(bound: float, expected: float) -> None:
    assert bound == pytest.approx(expected, abs=1e-9)


def test_a_rate_at_the_margin_passes_with_at_most_the_error_rate() -> None:
    most = max(losses for losses in range(60) if rate_upper(losses, 600, 0.01) < 0.04)
    assert 1 - binomial_tail(most + 1, 600, Fraction(4, 100)) <= 0.01 < 1 - binomial_tail(most + 2, 600, Fraction(4, 100))


def test_a_beta_function_that_does_not_converge_is_an_error_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "FRACTION_TERMS", 3)
    with pytest.raises(ContractError, match="does not converge"):
        beta_quantile(0.5, 200, 300)


def test_one_cluster_has_no_variance_and_is_refused() -> None:
    with pytest.raises(ContractError, match="1 clusters show no variance"):
        mean_of([[1, 2, 3]])


def test_the_clustered_standard_error_is_the_formula_of_its_source() -> None:
    table = [[60, 0, 30], [0], [-60, 20], [60, 60, 60, 10]]
    values = [Fraction(value, ONE) for cluster in table for value in cluster]
    mean = sum(values) / len(values)
    residuals = [sum((Fraction(value, ONE) - mean for value in cluster), Fraction(0)) for cluster in table]
    variance = Fraction(4, 3) * sum(residual**2 for residual in residuals) / len(values) ** 2
    assert mean_of(table).mean == pytest.approx(float(mean), abs=1e-9)
    assert mean_of(table).standard_error == pytest.approx(math.sqrt(variance), abs=1e-15)


TABLES = st.lists(st.lists(st.integers(-ONE, ONE), min_size=1, max_size=4), min_size=2, max_size=14)


@given(TABLES, st.sampled_from([0.001, 0.005, 0.01, 0.05, 0.3]), st.data())
@example([[2]] * 13 + [[60]], 0.005, None)
@example([[0]] * 13 + [[60]], 0.01, None)
@example([*[[-30] * 7] * 3, *[[60]] * 30, [60] * 7], 0.01, None)
@settings(max_examples=400, deadline=None)
def test_a_worse_value_never_raises_the_lower_bound(table: Table, alpha: float, data: st.DataObject | None) -> None:
    g = data.draw(st.integers(0, len(table) - 1)) if data else len(table) - 1
    i = data.draw(st.integers(0, len(table[g]) - 1)) if data else 0
    worse = data.draw(st.integers(-ONE, table[g][i])) if data else 1
    worsened = [[worse if (a, b) == (g, i) else value for b, value in enumerate(cluster)] for a, cluster in enumerate(table)]
    assert mean_of(worsened).lower_bound(alpha) <= mean_of(table).lower_bound(alpha) + 2e-9


@given(TABLES)
@settings(deadline=None)
def test_items_repeated_within_their_cluster_change_nothing(table: Table) -> None:
    once, often = mean_of(table), mean_of([cluster * 5 for cluster in table])
    assert often.mean == once.mean
    assert often.standard_error == pytest.approx(once.standard_error, abs=1e-12)
    assert often.lower_bound(0.01) == pytest.approx(once.lower_bound(0.01), abs=2e-9)


@given(TABLES)
@settings(deadline=None)
def test_swapped_arms_negate_the_effect_and_turn_p_round(table: Table) -> None:
    ours, theirs = mean_of(table), mean_of([[-value for value in cluster] for cluster in table])
    assert theirs.mean == -ours.mean
    if ours.standard_error:
        assert theirs.p_greater(0) == pytest.approx(1 - ours.p_greater(0), abs=2e-9)


@given(TABLES, st.sampled_from([0.005, 0.01, 0.05]))
@settings(deadline=None)
def test_a_lower_bound_above_the_null_means_p_below_alpha(table: Table, alpha: float) -> None:
    mean = mean_of(table)
    if mean.lower_bound(alpha) > 1e-8:
        assert mean.p_greater(0) < alpha


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ([[1]] * 200, "a gain of 1.7 points on every one of 200 items could hide 2.6 % of items that are lost outright"),
        ([[60]] * 2, "two items prove nothing at an error rate of 0.5 %"),
        ([[0]] * 199 + [[60]], "one item of 200 won"),
    ],
)
def test_values_that_hardly_vary_prove_no_gain(table: Table, why: str) -> None:
    assert mean_of(table).lower_bound(0.005) <= 0, why


def test_bounds_stay_within_what_a_value_can_be() -> None:
    few = mean_of([[60], [-60], [60]])
    assert (few.lower_bound(0.001), few.cautious_lower_bound(0.001)) == (-1.0, -1.0)
    assert mean_of([[1], [59], [60]], low=0.0).cautious_lower_bound(0.001) == 0.0


def test_equal_values_prove_what_their_number_allows() -> None:
    same = mean_of([[60]] * 240)
    assert same.standard_error == 0
    assert same.lower_bound(0.005) == pytest.approx(1 - 2 * (1 - 0.005 ** (1 / 240)), abs=1e-9)


@pytest.mark.parametrize(("items", "margin"), [(300, 4), (600, 4), (600, 2), (1000, 4)])
def test_near_the_ceiling_the_cautious_bound_keeps_its_error_rate_where_the_t_test_does_not(items: int, margin: int) -> None:
    def passes(bound: Callable[[ClusteredMean], float]) -> float:
        means = (mean_of([[-ONE]] * lost + [[0]] * (items - lost)) for lost in range(items))
        most = sum(1 for _ in takewhile(lambda mean: -bound(mean) < margin / 100, means)) - 1
        return 1 - binomial_tail(most + 1, items, Fraction(margin, 100))

    assert passes(lambda mean: mean.cautious_lower_bound(0.01)) < 0.0115
    assert passes(lambda mean: mean.lower_bound(0.01)) > 0.0170


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.000000000"), (-1e-12, "0.000000000"), (1 / 3, "0.333333333"), (-0.04, "-0.040000000")]
)
def test_statistics_are_written_with_fixed_digits(value: float, text: str) -> None:
    assert decimal(value) == text
