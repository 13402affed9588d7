"""Replies to a behaviour suite: those that exist, and what is measured on them. Exact fractions throughout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from gatevalve.contracts.files import ARMS, SCORE_ONE, Arm, Likelihood, PairRow, Style

BASIS_POINTS, PERCENT, MICRONATS_PER_MILLINAT = 10_000, 100, 1_000


@dataclass(frozen=True, slots=True)
class Reply:
    """The form of one reply."""

    tokens: int
    finish: str
    text: str
    style: Style


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies of every arm that are there, and the likelihoods of the candidate's."""

    of: dict[Arm, tuple[Reply, ...]]
    likelihoods: tuple[Likelihood, ...]

    @classmethod
    def to(cls, rows: Sequence[PairRow]) -> Self:
        """The replies that the rows of a behaviour suite hold."""
        likelihoods = (told for row in rows for told in row.likelihoods or () if told is not None)
        return cls({arm: tuple(reply for row in rows for reply in _replies(row, arm)) for arm in ARMS}, tuple(likelihoods))

    @property
    def complete(self) -> bool:
        """Every arm has replied at least once."""
        return all(self.of.values())


def _replies(row: PairRow, arm: Arm) -> list[Reply]:
    given = zip(row.tokens[arm], row.finishes[arm], row.texts[arm], (row.styles or {}).get(arm, ()), strict=True)
    return [
        Reply(tokens, finish, text, style)
        for tokens, finish, text, style in given
        if tokens is not None and finish is not None and text is not None and style is not None
    ]


Measure = Callable[[Replies], Fraction | None]
"""What a rule looks at; None when the replies do not allow to tell."""


def _mean(replies: Sequence[Reply], value: Callable[[Reply], int]) -> Fraction:
    return Fraction(sum(value(reply) for reply in replies), len(replies))


def over_anchor(value: Callable[[Reply], int], one: int = 1) -> Measure:
    """The candidate's mean of `value`, in units of 1/one, less the anchor's, in basis points."""

    def excess(replies: Replies) -> Fraction:
        return (_mean(replies.of["candidate"], value) - _mean(replies.of["anchor"], value)) * BASIS_POINTS / one

    return excess


def repetition() -> Measure:
    """Excess of the share of repeated four-grams over the anchor's."""
    return over_anchor(lambda reply: reply.style.repetition, SCORE_ONE)


def length_ratio(replies: Replies) -> Fraction | None:
    """Mean tokens of the candidate in percent of the incumbent's."""
    incumbent = _mean(replies.of["incumbent"], lambda reply: reply.tokens)
    return _mean(replies.of["candidate"], lambda reply: reply.tokens) * PERCENT / incumbent if incumbent else None


def diversity(replies: Replies) -> Fraction:
    """Distinct texts among the candidate's replies in percent of the anchor's."""
    return _distinct(replies.of["candidate"]) * PERCENT / _distinct(replies.of["anchor"])


def _distinct(replies: Sequence[Reply]) -> Fraction:
    return Fraction(len({reply.text for reply in replies}), len(replies))


def kl(k3: Callable[[Likelihood], int]) -> Measure:
    """Mean of k3 over the tokens of the candidate's replies, in millinats."""

    def per_token(replies: Replies) -> Fraction | None:
        tokens = sum(reply.tokens for reply in replies.of["candidate"])
        return Fraction(sum(map(k3, replies.likelihoods)), tokens * MICRONATS_PER_MILLINAT) if tokens else None

    return per_token
