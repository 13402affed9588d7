"""Power: how large a true effect the tests of a policy see, worked out from variances; it informs people and moves no verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from gatevalve.contracts.policy import GENERATED_REPLIES, SCREEN, GatePolicySpec, Suite
from gatevalve.gate.noise import Noise, planned_noise
from gatevalve.gate.statistics import beta_cdf, rate_upper, rounded, student_quantile

SEEN = 0.8
"""A test sees an effect when it passes in so large a share of cases."""
MOST_DECODES = 64
STEPS = 40
"""Halvings of an interval of effects: far below a basis point."""

Power = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is asked of an arm."""

    items: int
    decodes: int

    def times(self, items: int = 1, decodes: int = 1) -> Size:
        """More of it."""
        return Size(self.items * items, self.decodes * decodes)


@dataclass(frozen=True, slots=True)
class Choice:
    """What another size of a suite buys: the effect that it sees, None when it sees none."""

    what: str
    size: Size
    effect: float | None


@dataclass(frozen=True, slots=True)
class SuitePower:
    """What a suite's check sees at error rate `alpha`, all as shares of 1.

    `effect`: Primary and screen: the smallest true gain that passes in 8 of 10 tests; Guard: the largest true loss that still does.
    None: there is no such effect. `equal`: Guard: the share of candidates as good as the incumbent that pass.
    """

    suite: str
    role: str
    size: Size
    alpha: float
    effect: float | None
    equal: float | None
    choices: tuple[Choice, ...]


def power(policy: GatePolicySpec, noises: Mapping[str, Noise], items: Mapping[str, int]) -> tuple[SuitePower, ...]:
    """The screen, the Primary and every Guard whose noise and number of items are known, by name."""
    known = (suite for suite in powered(policy) if suite.name in noises and suite.name in items)
    return tuple(_suite(policy, suite, noises[suite.name], items[suite.name]) for suite in known)


def powered(policy: GatePolicySpec) -> tuple[Suite, ...]:
    """The suites whose checks see an effect with some probability: the screen, the Primary and every Guard."""
    return (*((policy.screen,) if policy.screen else ()), policy.primary, *policy.with_role("Guard"))


def planned_items(policy: GatePolicySpec) -> dict[str, int]:
    """The number of items of each suite whose policy tells it: not of fixed files."""
    return {suite.name: suite.items.fresh for suite in powered(policy) if suite.items.fresh is not None}


def _suite(policy: GatePolicySpec, suite: Suite, noise: Noise, items: int) -> SuitePower:
    size = Size(items, suite.decodes)
    guard = suite.role == "Guard"

    def effect(of: Size) -> float | None:
        return _largest(loss_power(policy, suite, noise, of)) if guard else _smallest(gain_power(policy, suite, noise, of))

    equal = rounded(loss_power(policy, suite, noise, size)(0.0)) if guard else None
    choices = tuple(Choice(what, of, effect(of)) for what, of in _sizes(suite, noise, size))
    return SuitePower(suite.name, SCREEN if suite.name == SCREEN else suite.role, size, _alpha(policy, suite), effect(size), equal, choices)


def _alpha(policy: GatePolicySpec, suite: Suite) -> float:
    if suite.name == SCREEN:
        return policy.futility.alpha_basis_points / 10_000
    return policy.guard_alpha_basis_points / 10_000 if suite.role == "Guard" else policy.round.alpha_per_test()


def _sizes(suite: Suite, noise: Noise, size: Size) -> Iterable[tuple[str, Size]]:
    for factor in (2, 4):
        yield f"items x{factor}", size.times(items=factor)
    for factor in (2, 4):
        if noise.split and float(suite.sampling.temperature) > 0:
            yield f"decodes x{factor}", size.times(decodes=factor)


def _smallest(seen: Power) -> float | None:
    """The smallest gain that is seen; what is seen grows with it."""
    return _boundary(lambda gain: seen(gain) >= SEEN)


def _largest(passes: Power) -> float | None:
    """The largest loss that passes; what passes shrinks with it."""
    return _boundary(lambda loss: passes(loss) < SEEN) if passes(0.0) >= SEEN else None


def _boundary(holds: Callable[[float], bool]) -> float | None:
    low, high = 0.0, 1.0
    if not holds(high):
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return rounded(high)


# ---- the checks' own rules, as probabilities


def gain_power(policy: GatePolicySpec, suite: Suite, noise: Noise, size: Size) -> Power:
    """The share of tests of a size in which a true gain passes the screen, or superiority on the Primary."""
    if suite.name == SCREEN:
        return lambda gain: _screened(policy.futility.alpha_basis_points / 10_000, noise, size, gain)
    least = (policy.primary.min_effect_basis_points or 0) / 10_000
    return lambda gain: _superior(policy.round.alpha_per_test(), least, noise, size, gain)


def _screened(alpha: float, noise: Noise, size: Size, gain: float) -> float:
    """The share of tests that the screen lets go on (`gatevalve.gate.futility`)."""
    if alpha > 0.5:
        return 1.0 if alpha >= 1 else 1 - _Mean(noise, size, -gain).t_bound_exceeds(0.0, 1 - alpha)
    return _Mean(noise, size, gain).t_bound_exceeds(0.0, alpha)


def _superior(alpha: float, least: float, noise: Noise, size: Size, gain: float) -> float:
    """The share of tests in which the lower bound of the gain is above 0 and the gain is at least the least worthwhile one."""
    mean = _Mean(noise, size, gain)
    return min(mean.bound_exceeds(0.0, alpha), mean.exceeds(least))


def loss_power(policy: GatePolicySpec, suite: Suite, noise: Noise, size: Size) -> Power:
    """The share of tests of a size in which a true loss passes a Guard against the incumbent."""
    alpha, margin = policy.guard_alpha_basis_points / 10_000, (suite.margin_basis_points or 0) / 10_000
    if size.decodes == 1 and noise.flips is not None:
        most = most_lost(size.items, alpha, margin)
        flips = noise.flips
        return lambda loss: _at_most(most, size.items, min(1.0, loss + flips))
    return lambda loss: _no_worse(alpha, margin, noise, size, loss)


def _no_worse(alpha: float, margin: float, noise: Noise, size: Size, loss: float) -> float:
    mean = _Mean(noise, size, -loss)
    t = student_quantile(alpha, mean.freedom)
    return mean.bound_exceeds((2 * t * t + 1) / 6 * noise.cluster / size.items - margin, alpha)


@lru_cache(maxsize=256)
def most_lost(items: int, alpha: float, margin: float) -> int:
    """The most lost items whose upper bound (Clopper & Pearson 1934) is below a margin; -1 when not even none is."""
    low, high = -1, items
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rate_upper(middle, items, alpha) < margin else (low, middle)
    return low


def _at_most(most: int, items: int, rate: float) -> float:
    """P(X <= most) of a binomial X: an incomplete beta function (DLMF 8.17.5)."""
    if most < 0:
        return 0.0
    return 1.0 if most >= items else beta_cdf(1 - rate, items - most, most + 1)


@lru_cache(maxsize=1024)
def _t(alpha: float, freedom: int) -> float:
    return student_quantile(alpha, freedom) if alpha <= 0.5 else -student_quantile(1 - alpha, freedom)


class _Mean:
    """The mean of items' differences as it will be measured, when the true one is `true`: about normal, with estimated variance."""

    def __init__(self, noise: Noise, size: Size, true: float) -> None:
        self._true = true
        self._error = max(math.sqrt(max(0.0, noise.variance(size.decodes, true)) * noise.cluster / size.items), 1e-9)
        self.freedom = max(1, round(size.items / noise.cluster) - 1)

    def exceeds(self, value: float) -> float:
        """P(mean > value)."""
        return _normal((self._true - value) / self._error)

    def exceeds_t(self, null: float, t: float) -> float:
        """P((mean - null) / SE > t): noncentral t by its normal approximation (Abramowitz & Stegun 26.7.10)."""
        shift = (self._true - null) / self._error
        return _normal((shift - t * (1 - 1 / (4 * self.freedom))) / math.sqrt(1 + t * t / (2 * self.freedom)))

    def bound_exceeds(self, null: float, alpha: float) -> float:
        """P(`ClusteredMean.lower_bound` > null), clusters of one size: whichever of its three parts asks most decides."""
        unseen = 1 - alpha ** (1 / (self.freedom + 1))
        return min(self.t_bound_exceeds(null, alpha), self.exceeds((null + unseen) / (1 - unseen)))

    def t_bound_exceeds(self, null: float, alpha: float) -> float:
        """P(`ClusteredMean.t_bound` > null)."""
        t = student_quantile(alpha, self.freedom)
        reach = t * t / self.freedom
        return min(self.exceeds_t(null, t), self.exceeds((null + reach) / (1 + reach)))


def _normal(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


# ---- what the operator says of a policy


@dataclass(frozen=True, slots=True)
class Seen:
    """In which share of tests the Primary's minDetectableEffectBasisPoints passes screen and superiority, and what would make it 8 of 10.

    `remedies` name one thing each that suffices by itself.
    """

    effect_basis_points: int
    share: float
    remedies: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def planned_power(policy: GatePolicySpec) -> Seen | None:
    """What a policy's tests see by the planning variance alone; None when the number of the Primary's items is unknown.

    Nothing that was measured enters: what a test sees of sealed items is told to nobody.
    """
    items = policy.primary.items.fresh
    effect = policy.primary.min_detectable_effect_basis_points or 0
    if items is None:
        return None
    if effect == 0:
        return Seen(0, 1.0)
    size = Size(items, policy.primary.decodes)
    share = _passes(policy, size, policy.futility.items, effect)
    return Seen(effect, share, () if share >= SEEN else _remedies(policy, size, effect))


def _passes(policy: GatePolicySpec, size: Size, screen: int, effect: int) -> float:
    """The screen has items of its own, so that what both let pass is a product."""
    noise, gain = planned_noise(policy.primary), effect / 10_000
    least = (policy.primary.min_effect_basis_points or 0) / 10_000
    superior = _superior(policy.round.alpha_per_test(), least, noise, size, gain)
    alpha = policy.futility.alpha_basis_points / 10_000
    return rounded(superior * (_screened(alpha, noise, Size(screen, size.decodes), gain) if screen else 1.0))


def _remedies(policy: GatePolicySpec, size: Size, effect: int) -> tuple[str, ...]:
    screen = policy.futility.items
    greedy = float(policy.primary.sampling.temperature) == 0
    others = sum((suite.items.fresh or 0) * suite.decodes for suite in policy.suites if suite is not policy.primary)
    tried = (
        (
            "items",
            size.items,
            (GENERATED_REPLIES - others) // size.decodes,
            lambda n: _passes(policy, replace(size, items=n), screen, effect),
        ),
        ("decodes", size.decodes, 1 if greedy else MOST_DECODES, lambda n: _passes(policy, replace(size, decodes=n), screen, effect)),
        ("futility.items", screen, GENERATED_REPLIES if screen else 0, lambda n: _passes(policy, size, n, effect)),
    )
    found = ((what, _fewest(low, high, share)) for what, low, high, share in tried)
    return tuple(f"{what} {number}" for what, number in found if number is not None)


def _fewest(low: int, high: int, share: Callable[[int], float]) -> int | None:
    """The smallest number above `low`, which is too small, whose share is enough."""
    if high <= low or share(high) < SEEN:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= SEEN else (middle, high)
    return high
