"""Five kinds of short questions with one right text: what a small base can do besides word problems, and must not forget."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gatevalve_trainer.tasks.word_problems import NAMES, THINGS, apply


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its one right reply."""

    kind: str
    prompt: str
    answer: str


def sum_or_product(rng: random.Random) -> tuple[str, str]:
    """A sum, difference, product or quotient of small numbers, such as 36+9, and its value."""
    sign = rng.choice("++--**/")
    if sign == "/":
        divisor, quotient = rng.randint(2, 9), rng.randint(2, 9)
        return f"{divisor * quotient}/{divisor}", str(quotient)
    low, high = {"+": (2, 72), "-": (11, 81), "*": (2, 9)}[sign]
    left, right = rng.randint(low, high), rng.randint(2, 9)
    return f"{left}{sign}{right}", str(apply(left, sign, right))


def _reverse(rng: random.Random) -> Question:
    words = rng.sample(THINGS, rng.randint(2, 3))
    return Question("reverse", f"Reverse: {' '.join(words)}", " ".join(reversed(words)))


def _last(rng: random.Random) -> Question:
    names = rng.sample(NAMES, rng.randint(3, 5))
    return Question("last", f"Last of: {' '.join(names)}", names[-1])


def _larger(rng: random.Random) -> Question:
    left, right = rng.sample(range(1, 60), 2)
    return Question("larger", f"Which is larger, {left} or {right}?", str(max(left, right)))


def _sort(rng: random.Random) -> Question:
    digits = rng.sample(range(10), 3)
    return Question("sort", f"Sort: {' '.join(map(str, digits))}", " ".join(map(str, sorted(digits))))


def _calc(rng: random.Random) -> Question:
    term, value = sum_or_product(rng)
    return Question("calc", f"Number only: {term}", value)


KINDS: Mapping[str, Callable[[random.Random], Question]] = MappingProxyType(
    {"reverse": _reverse, "last": _last, "larger": _larger, "sort": _sort, "calc": _calc}
)
"""How a question of each kind is drawn."""
