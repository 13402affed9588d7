"""The statistics equal scipy's and statsmodels' on tables that hypothesis makes, and at the edges where those are defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm  # type: ignore[import-untyped]
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from gatevalve.gate.statistics import (
    beta_cdf,
    clustered_mean,
    intercept_weights,
    rate_lower,
    rate_upper,
    student_quantile,
    student_tail,
)

ONE = 60
NINE_DIGITS = 1.1e-9
"""Statistics are rounded to nine digits, so an oracle may be half a digit off, and as much again for its own error."""

TABLES = st.lists(st.lists(st.integers(-ONE, ONE), min_size=1, max_size=5), min_size=2, max_size=40)
ALPHAS = st.sampled_from([0.0005, 0.005, 0.01, 0.05, 0.2])


def clustered_ols(values: np.ndarray[Any, Any], groups: list[int], *columns: np.ndarray[Any, Any]) -> Any:
    """Least squares on a constant and columns, with errors clustered in groups and no correction for a small sample."""
    design = np.column_stack([np.ones(len(values)), *columns])
    options = {"groups": groups, "use_correction": False}
    return sm.OLS(values, design).fit(cov_type="cluster", cov_kwds=options, use_t=True)


@given(TABLES)
@settings(max_examples=150, deadline=None)
def test_clustered_mean_error_and_p_are_those_of_statsmodels(table: list[list[int]]) -> None:
    groups = [g for g, cluster in enumerate(table) for _ in cluster]
    values = np.array([value / ONE for cluster in table for value in cluster])
    ours = clustered_mean(((str(g), round(value * ONE)) for g, value in zip(groups, values, strict=True)), ONE, -1.0, 1.0)
    theirs = clustered_ols(values, groups)
    count = len(table)
    error = theirs.bse[0] * np.sqrt(count / (count - 1))
    assert ours.mean == pytest.approx(theirs.params[0], abs=NINE_DIGITS)
    assert ours.standard_error == pytest.approx(error, abs=1e-9)
    assume(error > 1e-6)
    assert ours.p_greater(0) == pytest.approx(stats.t.sf(values.mean() / error, count - 1), abs=NINE_DIGITS)


@given(st.lists(st.integers(-ONE, ONE), min_size=2, max_size=60))
@settings(max_examples=150, deadline=None)
def test_without_clusters_it_is_the_paired_t_test(differences: list[int]) -> None:
    values = np.array(differences) / ONE
    assume(values.std() > 1e-6)
    ours = clustered_mean(((str(i), value) for i, value in enumerate(differences)), ONE, -1.0, 1.0)
    assert ours.p_greater(0) == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue, abs=NINE_DIGITS)


@given(st.floats(-40, 40), st.integers(1, 40_000))
@settings(deadline=None)
def test_students_tail(t: float, freedom: int) -> None:
    assert student_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), abs=1e-9)


@given(st.floats(1e-5, 0.499), st.integers(1, 40_000))
@settings(deadline=None)
def test_students_quantile(alpha: float, freedom: int) -> None:
    assert student_quantile(alpha, freedom) == pytest.approx(stats.t.isf(alpha, freedom), rel=1e-9)


@given(st.floats(0, 1), st.floats(0.5, 5000), st.floats(0.5, 5000))
@settings(deadline=None)
def test_the_incomplete_beta_function(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-9)


COUNTS = st.integers(1, 40_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
EDGES = [(0, 1), (1, 1), (0, 600), (600, 600), (1, 600), (599, 600), (0, 40_000), (40_000, 40_000), (20_000, 40_000)]


def check_bounds(hits: int, n: int, alpha: float) -> None:
    def exact(side: str) -> Any:
        return stats.binomtest(hits, n, alternative=side).proportion_ci(1 - alpha, method="exact")

    assert rate_lower(hits, n, alpha) == pytest.approx(exact("greater").low, abs=NINE_DIGITS)
    assert rate_upper(hits, n, alpha) == pytest.approx(exact("less").high, abs=NINE_DIGITS)


@given(COUNTS, ALPHAS)
@settings(deadline=None)
def test_clopper_and_pearsons_bounds(count: tuple[int, int], alpha: float) -> None:
    check_bounds(*count, alpha)


@pytest.mark.parametrize(("hits", "n"), EDGES)
def test_the_exact_paired_bound_at_no_discordant_pair_and_at_nothing_else(hits: int, n: int) -> None:
    check_bounds(hits, n, 0.01)


SHIFTS = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200), st.integers(-ONE, ONE)), min_size=3, max_size=60)


@given(SHIFTS)
@settings(max_examples=150, deadline=None)
def test_the_gain_at_equal_length_is_the_intercept_of_least_squares(table: list[tuple[int, int, int]]) -> None:
    shifts = np.log([new / old for new, old, _ in table])
    gains = np.array([gain / ONE for *_, gain in table])
    assume(shifts.std() > 0.01)
    ours = float(np.dot(intercept_weights(list(shifts)), gains))
    assert ours == pytest.approx(sm.OLS(gains, sm.add_constant(shifts)).fit().params[0], abs=1e-9)
    assert ours == pytest.approx(stats.linregress(shifts, gains).intercept, abs=1e-9)


def test_where_lengths_do_not_vary_the_gain_at_equal_length_is_the_gain() -> None:
    assert intercept_weights([0.7] * 4) == (0.25,) * 4
    assert intercept_weights([0.1]) == (1.0,)
