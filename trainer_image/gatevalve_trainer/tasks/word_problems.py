"""word-problems: one- and two-step sums told as stories; a reply is right when its last "The answer is N." states the right number.

The committed demo base was trained on exactly these kinds, so the order of the draws within a kind is part of the task.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item
from gatevalve_trainer.tasks.plugin import Task, single_turn
from gatevalve_trainer.tasks.word_problem_answers import refer

NAMES = tuple(
    "Ann Ben Cara Dan Eva Finn Gina Hugo Ivy Jack Kim Leo Mia Noah Olga Paul Rosa Sam Tina Umar Vera Will Zoe Ali".split()  # noqa: SIM905
)
THINGS = tuple("apples books cards coins eggs pens shells stamps stickers toys plums rings nuts cakes beads kites".split())  # noqa: SIM905

HELD_OUT_BYTES = 26
"""Prompts whose sha256 begins with a byte below this (one in ten) are never generated for traffic or gate: they are the held-out side."""

MAX_REPEATS = 10_000
"""Draws in a row that may bring nothing new before the supply counts as used up."""

_STATED = re.compile(r"The answer is (-?\d+)\.")


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem with its right working and the working of its most common misreading."""

    kind: str
    prompt: str
    working: tuple[str, ...]
    misreading: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The number that the right working ends with."""
        return value_of(self.working)


def value_of(working: tuple[str, ...]) -> str:
    """The number that a working such as 9+8=17, 17+9=26 ends with."""
    return working[-1].split("=")[1]


def apply(left: int, sign: str, right: int) -> int:
    """The value of one step; divisions are exact by construction."""
    return {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]


def work(start: int, *steps: tuple[str, int]) -> tuple[str, ...]:
    """The equations of a working: each step starts from the value of the one before."""
    equations = []
    for sign, number in steps:
        value = apply(start, sign, number)
        equations.append(f"{start}{sign}{number}={value}")
        start = value
    return tuple(equations)


def _buy(rng: random.Random) -> Problem:
    who, what, a, b = rng.choice(NAMES), rng.choice(THINGS), rng.randint(5, 40), rng.randint(2, 9)
    text = f"{who} has {a} {what} and buys {b} more. How many {what} does {who} have?"
    return Problem("buy", text, work(a, ("+", b)), work(max(a, b), ("-", min(a, b))))


def _give(rng: random.Random) -> Problem:
    who, other = rng.sample(NAMES, 2)
    what, a, b = rng.choice(THINGS), rng.randint(12, 49), rng.randint(2, 9)
    text = f"{who} has {a} {what} and gives {b} to {other}. How many {what} does {who} have?"
    return Problem("give", text, work(a, ("-", b)), work(a, ("+", b)))


def _fewer(rng: random.Random) -> Problem:
    who, other = rng.sample(NAMES, 2)
    what, a, b = rng.choice(THINGS), rng.randint(12, 49), rng.randint(2, 9)
    text = f"{who} has {a} {what}. {other} has {b} fewer than {who}. How many {what} does {other} have?"
    return Problem("fewer", text, work(a, ("-", b)), work(a, ("+", b)))


def _boxes(rng: random.Random) -> Problem:
    who, what, a, b = rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 9), rng.randint(3, 9)
    text = f"{who} has {a} boxes with {b} {what} each. How many {what} in all?"
    return Problem("boxes", text, work(a, ("*", b)), work(a, ("+", b)))


def _share(rng: random.Random) -> Problem:
    who, what, b, c = rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 9), rng.randint(2, 9)
    text = f"{who} shares {b * c} {what} equally among {b} friends. How many {what} does each get?"
    return Problem("share", text, work(b * c, ("/", b)), work(b * c, ("-", b)))


def _buylose(rng: random.Random) -> Problem:
    who, what, a, b, c = rng.choice(NAMES), rng.choice(THINGS), rng.randint(8, 40), rng.randint(2, 9), rng.randint(2, 9)
    text = f"{who} has {a} {what}, buys {b} more and loses {c}. How many {what} are left?"
    return Problem("buylose", text, work(a, ("+", b), ("-", c)), work(a, ("+", b), ("+", c)))


def _bags(rng: random.Random) -> Problem:
    who, what, a, b, c = rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 9), rng.randint(3, 9), rng.randint(2, 9)
    text = f"{who} has {a} bags with {b} {what} each and {c} loose {what}. How many {what} in all?"
    return Problem("bags", text, work(a, ("*", b), ("+", c)), work(a, ("*", b)))


def _packs(rng: random.Random) -> Problem:
    who, what, a, b, c = rng.choice(NAMES), rng.choice(THINGS), rng.randint(3, 9), rng.randint(4, 9), rng.randint(2, 9)
    text = f"{who} buys {a} packs of {b} {what} and uses {c}. How many {what} remain?"
    return Problem("packs", text, work(a, ("*", b), ("-", c)), work(a, ("*", b), ("+", c)))


def _groups(rng: random.Random) -> Problem:
    who, what, a, b, c = rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 5), rng.randint(2, 4), rng.randint(2, 9)
    text = f"{who} gives {c} {what} to each of {a} boys and {b} girls. How many {what} in all?"
    return Problem("groups", text, work(a, ("+", b), ("*", c)), work(a, ("*", b), ("+", c)))


def _find(rng: random.Random) -> Problem:
    who, what, b, c, d = rng.choice(NAMES), rng.choice(THINGS), rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9)
    text = f"{b} friends share {b * c} {what} equally and {who}, one of them, finds {d} more. How many {what} does {who} have?"
    return Problem("find", text, work(b * c, ("/", b), ("+", d)), work(b * c, ("/", b)))


def _together(rng: random.Random) -> Problem:
    who, other = rng.sample(NAMES, 2)
    what, a, b = rng.choice(THINGS), rng.randint(2, 9), rng.randint(2, 9)
    text = f"{who} has {a} {what}. {other} has {b} more than {who}. How many {what} do they have together?"
    return Problem("together", text, work(a, ("+", b), ("+", a)), work(a, ("+", b)))


def _twice(rng: random.Random) -> Problem:
    who, other = rng.sample(NAMES, 2)
    what, a = rng.choice(THINGS), rng.randint(2, 9)
    text = f"{who} has {a} {what}. {other} has twice as many. How many {what} do they have together?"
    return Problem("twice", text, work(a, ("*", 2), ("+", a)), work(a, ("*", 2)))


KINDS: Mapping[str, Callable[[random.Random], Problem]] = MappingProxyType(
    {
        "buy": _buy,
        "give": _give,
        "fewer": _fewer,
        "boxes": _boxes,
        "share": _share,
        "buylose": _buylose,
        "bags": _bags,
        "packs": _packs,
        "groups": _groups,
        "find": _find,
        "together": _together,
        "twice": _twice,
    }
)
"""How a problem of each kind is drawn."""


def generate(rng: random.Random) -> Item:
    """One problem of a kind drawn at random, never from the held-out side."""
    draws = (rng.choice(tuple(KINDS.values()))(rng) for _ in range(MAX_REPEATS))
    return _item(next(problem for problem in draws if not is_held_out(problem.prompt)))


def verify(item: Item, text: str) -> float:
    """1 when the last "The answer is N." of text states the item's answer, else 0; raises ValueError for an item without an answer."""
    if item.answer is None:
        raise ValueError(f"item {item.id} has no answer to compare with")
    stated = _STATED.findall(text)
    return float(bool(stated) and stated[-1] == item.answer)


def stream(count: int, seed: int, exclude: Collection[str] = frozenset()) -> tuple[Item, ...]:
    """Distinct problems as clients would ask them, kinds equally often; `exclude` holds prompts that must not occur."""
    return _distinct(count, random.Random(seed), lambda prompt: not is_held_out(prompt) and prompt not in exclude)


def held_out(count: int, seed: int) -> tuple[Item, ...]:
    """Distinct problems of the held-out side, kinds equally often: neither `stream` nor `generate` ever yields one of them."""
    return _distinct(count, random.Random(seed), is_held_out)


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to the side that only `held_out` draws from."""
    return hashlib.sha256(prompt.encode()).digest()[0] < HELD_OUT_BYTES


def _distinct(count: int, rng: random.Random, wanted: Callable[[str], bool]) -> tuple[Item, ...]:
    kinds = tuple(KINDS.values())
    seen: set[str] = set()
    problems = [_next(kinds[index % len(kinds)], rng, seen, wanted) for index in range(count)]
    rng.shuffle(problems)
    return tuple(map(_item, problems))


def _next(kind: Callable[[random.Random], Problem], rng: random.Random, seen: set[str], wanted: Callable[[str], bool]) -> Problem:
    for problem in _draws(kind, rng):
        if problem.prompt not in seen and wanted(problem.prompt):
            seen.add(problem.prompt)
            return problem
    raise ContractError("count", f"the supply of word problems is used up after {len(seen)}", "ask for fewer problems")


def _draws(kind: Callable[[random.Random], Problem], rng: random.Random) -> Iterator[Problem]:
    return (kind(rng) for _ in range(MAX_REPEATS))


def _item(problem: Problem) -> Item:
    return single_turn(problem.prompt, problem.answer, problem.kind)


TASK = Task(name="word-problems", verify=verify, generate=generate, refer=refer)
