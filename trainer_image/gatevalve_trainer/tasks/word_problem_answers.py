"""The task reference of word-problems: the right answer to a problem that somebody else has asked, worked out from its text alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

_WORDS = {"who": "[A-Z][a-z]+", "other": "[A-Z][a-z]+", "what": "[a-z]+", "a": r"\d{1,6}", "b": r"\d{1,6}", "c": r"\d{1,6}"}

Solved = Callable[..., int | None]


def _pattern(text: str) -> re.Pattern[str]:
    """The pattern of a text with places such as {who} and {a}; a place that comes again must hold the same words again."""
    parts, seen = re.split(r"\{(\w+)\}", text), set[str]()
    found = [re.escape(parts[0])]
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        found += [f"(?P={name})" if name in seen else f"(?P<{name}>{_WORDS[name]})", re.escape(literal)]
        seen.add(name)
    return re.compile("".join(found))


def _shared(a: int, b: int) -> int | None:
    """a things shared among b friends; None when they do not come out even."""
    return a // b if b and a % b == 0 else None


def _found(a: int, b: int, c: int) -> int | None:
    share = _shared(b, a)
    return None if share is None else share + c


KINDS: Mapping[str, tuple[re.Pattern[str], Solved]] = {
    "buy": (_pattern("{who} has {a} {what} and buys {b} more. How many {what} does {who} have?"), lambda a, b: a + b),
    "give": (_pattern("{who} has {a} {what} and gives {b} to {other}. How many {what} does {who} have?"), lambda a, b: a - b),
    "fewer": (
        _pattern("{who} has {a} {what}. {other} has {b} fewer than {who}. How many {what} does {other} have?"),
        lambda a, b: a - b,
    ),
    "boxes": (_pattern("{who} has {a} boxes with {b} {what} each. How many {what} in all?"), lambda a, b: a * b),
    "share": (_pattern("{who} shares {a} {what} equally among {b} friends. How many {what} does each get?"), _shared),
    "buylose": (_pattern("{who} has {a} {what}, buys {b} more and loses {c}. How many {what} are left?"), lambda a, b, c: a + b - c),
    "bags": (
        _pattern("{who} has {a} bags with {b} {what} each and {c} loose {what}. How many {what} in all?"),
        lambda a, b, c: a * b + c,
    ),
    "packs": (_pattern("{who} buys {a} packs of {b} {what} and uses {c}. How many {what} remain?"), lambda a, b, c: a * b - c),
    "groups": (_pattern("{who} gives {c} {what} to each of {a} boys and {b} girls. How many {what} in all?"), lambda a, b, c: (a + b) * c),
    "find": (
        _pattern("{a} friends share {b} {what} equally and {who}, one of them, finds {c} more. How many {what} does {who} have?"),
        _found,
    ),
    "together": (
        _pattern("{who} has {a} {what}. {other} has {b} more than {who}. How many {what} do they have together?"),
        lambda a, b: a + b + a,
    ),
    "twice": (_pattern("{who} has {a} {what}. {other} has twice as many. How many {what} do they have together?"), lambda a: 3 * a),
}
"""The text of each kind, and the number that answers it."""


def refer(messages: Sequence[Mapping[str, str]]) -> str | None:
    """The right answer to the problem that the last message asks; None when it asks no problem of these kinds."""
    last = messages[-1] if messages else {}
    return answer_to(last.get("content", "")) if last.get("role") == "user" else None


def answer_to(text: str) -> str | None:
    """The number that answers a problem; None for any other text, and for numbers that make no sense of it."""
    for pattern, solve in KINDS.values():
        if (found := pattern.fullmatch(text.strip())) is not None:
            value = solve(**{name: int(number) for name, number in found.groupdict().items() if name in "abc"})
            return str(value) if value is not None and value >= 0 else None
    return None
