"""The statistics that the checks use, from the standard library alone: clustered means, Student's t, exact bounds of a rate, a line.

Everything up to the last square root is integer arithmetic, so the order of the rows cannot change a digit; what leaves is rounded to
`DIGITS` so that the last bits of a machine's mathematics library cannot change a verdict.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gatevalve.contracts.errors import ContractError

DIGITS = 9
"""Digits after the point that statistics are rounded to before they are compared or stored."""

FRACTION_TERMS = 10_000
"""Terms of a continued fraction; a million items need fewer than 1,600."""

_TINY = 1e-300
_EPSILON = 4e-16


def rounded(value: float) -> float:
    """The value as it may be compared and stored."""
    return round(value, DIGITS) + 0.0


def decimal(value: float) -> str:
    """The value as a decimal string of fixed digits: records hold no floats."""
    return f"{rounded(value):.{DIGITS}f}"


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b) (DLMF 8.17.22, evaluated with Lentz's method).

    Raises ContractError when the continued fraction does not converge.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front / a * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    upper, lower = 1.0, 0.0
    value = 1.0
    for term in range(FRACTION_TERMS):
        coefficient = _beta_coefficient(term, x, a, b)
        lower = 1 / _nonzero(1 + coefficient * lower)
        upper = _nonzero(1 + coefficient / upper)
        step = upper * lower
        value *= step
        if abs(step - 1) < _EPSILON:
            return 1 / value
    raise ContractError("evidence", f"the beta function of ({x}, {a}, {b}) does not converge", "use suites of fewer items")


def _beta_coefficient(term: int, x: float, a: float, b: float) -> float:
    half, odd = divmod(term + 1, 2)
    if odd:
        return -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
    return half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _bisect(rises: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if rises(middle) else (middle, high)
    return high


def beta_quantile(p: float, a: float, b: float) -> float:
    """The x at which I_x(a, b) reaches p."""
    return _bisect(lambda x: beta_cdf(x, a, b) >= p)


def student_tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's t (DLMF 8.17 and Abramowitz & Stegun 26.7.1), by whichever of two equal forms does not cancel."""
    square = t * t
    within = beta_cdf(square / (freedom + square), 0.5, freedom / 2) if square < freedom else None
    half = (1 - within) / 2 if within is not None else beta_cdf(freedom / (freedom + square), freedom / 2, 0.5) / 2
    return half if t >= 0 else 1 - half


@lru_cache(maxsize=256)
def student_quantile(alpha: float, freedom: int) -> float:
    """The t that Student's T exceeds with probability alpha, for alpha up to one half, by whichever of two equal forms does not cancel."""
    if alpha > 0.25:
        share = beta_quantile(1 - 2 * alpha, 0.5, freedom / 2)
        return math.sqrt(freedom * share / (1 - share))
    rest = beta_quantile(2 * alpha, freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - rest) / rest)


def rate_lower(hits: int, n: int, alpha: float) -> float:
    """One-sided lower bound of a rate at confidence 1 - alpha (Clopper & Pearson 1934)."""
    return 0.0 if hits == 0 else rounded(beta_quantile(alpha, hits, n - hits + 1))


def rate_upper(hits: int, n: int, alpha: float) -> float:
    """One-sided upper bound of a rate at confidence 1 - alpha (Clopper & Pearson 1934)."""
    return 1.0 if hits == n else rounded(beta_quantile(1 - alpha, hits + 1, n - hits))


def intercept_weights(values: Sequence[float]) -> tuple[float, ...]:
    """Weights of the observations in the intercept of least squares on `values`: 1/n - mean * (x - mean) / Σ (x - mean)²; 1/n where all
    values are the same, which leaves the mean.

    Source: the normal equations of a straight line; the intercept is then the sum of weight times observation.
    """
    n = len(values)
    if min(values) == max(values):
        return (1 / n,) * n
    mean = math.fsum(values) / n
    squares = math.fsum((value - mean) ** 2 for value in values)
    return tuple(1 / n - mean * (value - mean) / squares for value in values)


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """The mean of bounded item values and what its one-sided bounds need.

    `low` and `high` are the least and greatest value an item can have; `largest` counts the items of the largest cluster;
    `unevenness` is the sum over clusters of size * |size/items - 1/clusters|: 0 when all clusters have one size.
    """

    mean: float
    standard_error: float
    items: int
    clusters: int
    largest: int
    unevenness: float
    low: float
    high: float

    def p_greater(self, null: float) -> float:
        """One-sided p of `mean > null`: Student's t with clusters - 1 degrees of freedom; 0 or 1 where nothing varies."""
        if self.standard_error == 0:
            return 0.0 if self.mean > null else 1.0
        return rounded(student_tail((self.mean - null) / self.standard_error, self.clusters - 1))

    def lower_bound(self, alpha: float) -> float:
        """One-sided lower bound of the true mean at confidence 1 - alpha; `docs/gate.md` derives the three parts.

        The mean less the greatest of: t * SE (Miller 2024, arXiv 2411.00640, section 2.2); what keeps the bound from falling when a
        value rises, t² * range / clusters as in Bernstein's inequality; and what clusters that never showed may hide
        (zero failures in Clopper & Pearson 1934). Without the last two, values that hardly vary would prove anything.
        """
        return rounded(max(self.low, min(self.t_bound(alpha), self.mean - self._unseen(alpha))))

    def t_bound(self, alpha: float) -> float:
        """The lower bound by its first two parts alone, for alpha up to one half: Student's t, and never rising when a value falls."""
        t = student_quantile(alpha, self.clusters - 1)
        return rounded(self.mean - max(t * self.standard_error, self._reach(t)))

    def turned(self) -> ClusteredMean:
        """The same of the values' negatives."""
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)

    def cautious_lower_bound(self, alpha: float) -> float:
        """The lower bound for values near their ceiling, where rare great losses skew the mean and Student's t is too sure.

        Less (2t² + 1)/6 items, all lost: Johnson's correction for skewness (1978, J. Am. Stat. Assoc. 73, 536) with the greatest ratio
        of third to second moment that losses of at most one item allow.
        """
        t = student_quantile(alpha, self.clusters - 1)
        return rounded(max(self.low, self.lower_bound(alpha) - (2 * t * t + 1) / 6 * self.largest / self.items))

    def _reach(self, t: float) -> float:
        span = self.largest * (self.high - self.mean) + self.unevenness * (self.high - self.low)
        return span * self.clusters * t * t / (self.items * (self.clusters - 1))

    def _unseen(self, alpha: float) -> float:
        return (self.mean - self.low) * float(1 - alpha ** (1 / self.clusters))


def clustered_mean(values: Iterable[tuple[str, int]], one: int, low: float, high: float) -> ClusteredMean:
    """The mean of (cluster, value) pairs, values in units of 1/one, with SE² = G/(G-1) Σ_g (Σ_{i in g} (x_i - mean))² / n².

    Source: Miller 2024, arXiv 2411.00640, section 2.2, with the small-sample factor G/(G-1). Raises ContractError below two clusters.
    """
    sums: defaultdict[str, int] = defaultdict(int)
    sizes: defaultdict[str, int] = defaultdict(int)
    for cluster, value in values:
        sums[cluster] += value
        sizes[cluster] += 1
    clusters, items, total = len(sums), sum(sizes.values()), sum(sums.values())
    if clusters < 2:
        raise ContractError("clusters", f"{clusters} clusters show no variance", "give a suite of at least two clusters")
    squares = sum((items * sums[cluster] - sizes[cluster] * total) ** 2 for cluster in sums)
    return ClusteredMean(
        mean=total / (items * one),
        standard_error=math.sqrt(clusters * squares / (clusters - 1)) / (items * items * one),
        items=items,
        clusters=clusters,
        largest=max(sizes.values()),
        unevenness=sum(size * abs(size * clusters - items) for size in sizes.values()) / (items * clusters),
        low=low,
        high=high,
    )
