"""Gain by length: on the Primary, what of the gain longer or shorter replies explain; a reward that likes length is won by padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.inputs import Evidence
from gatevalve.gate.results import Check, CheckResult, found, measured, points
from gatevalve.gate.samples import paired_gain, scores
from gatevalve.gate.statistics import intercept_weights, rounded

NO_LIMIT = 1_000
"""A limit of so many percent is none."""


def gain_by_length(policy: GatePolicySpec, evidence: Evidence) -> tuple[CheckResult, ...]:
    """The gain at equal length keeps at least the share of the whole gain that maxGainByLengthPercent leaves to it.

    The gain at equal length is the intercept of least squares of the items' differences on the logarithm of their replies' length ratio.
    """
    limit = policy.behaviour.max_gain_by_length_percent
    return tuple(_kept(suite, evidence, limit) for suite in evidence.with_role(policy, "Primary"))


def _kept(suite: Suite, evidence: Evidence, limit: int) -> CheckResult:
    compared = [(row, shift) for row in evidence.rows(suite.name) if (shift := _length_shift(row)) is not None]
    if not compared or (limit < NO_LIMIT and any(None in row.tokens["candidate"] for row in evidence.rows(suite.name))):
        # With an answer its length is lost: a long one that goes missing must not make the gain look less explained by length.
        return found(Check.BEHAVIOUR, Outcome.INSUFFICIENT, Finding.NO_REPLIES, suite, len(compared), Finding.NO_REPLIES.sentence)
    rows = [row for row, _ in compared]
    weights = intercept_weights([shift for _, shift in compared])
    gain = paired_gain(evidence, suite, "incumbent").mean
    at_equal_length = rounded(math.fsum(weight * _difference(row) for row, weight in zip(rows, weights, strict=True)))
    left = _left(rows, weights, limit)
    finding = Finding.OK if left >= 0 or gain <= 0 or limit >= NO_LIMIT else Finding.GAIN_BY_LENGTH
    allowed = f"{limit} %, which cautiously leaves {points(left)} to spare" if limit < NO_LIMIT else "any share"
    sentence = f"Of a gain of {points(gain)}, {points(at_equal_length)} are left at equal length. Length may explain {allowed}."
    return measured(Check.BEHAVIOUR, suite, finding, at_equal_length, left, len(rows), sentence)


def _left(rows: Sequence[PairRow], weights: Sequence[float], limit: int) -> float:
    """The gain at equal length less the share of the whole gain that is asked of it; both are sums over items with weights from lengths.

    An item whose weight is negative would help by losing: it counts with the best the candidate could have done. So a worse score never
    turns a failure into a pass.
    """
    asked = (100 - limit) / 100 / len(rows)
    return rounded(math.fsum(_worth(row, weight - asked) for row, weight in zip(rows, weights, strict=True)))


def _worth(row: PairRow, weight: float) -> float:
    best = float(1 - _rate(scores(row, "incumbent")))
    return weight * (best if weight < 0 else _difference(row))


def _difference(row: PairRow) -> float:
    return float(_rate(scores(row, "candidate")) - _rate(scores(row, "incumbent")))


def _rate(given: Sequence[int]) -> Fraction:
    return Fraction(sum(given), len(given) * SCORE_ONE)


def _length_shift(row: PairRow) -> float | None:
    """Logarithm of the candidate's mean tokens over the incumbent's; None unless both have replied. Empty replies count as one token."""
    candidate, incumbent = ([count for count in row.tokens[arm] if count is not None] for arm in ("candidate", "incumbent"))
    if not candidate or not incumbent:
        return None
    return math.log(max(1, sum(candidate)) * len(incumbent) / (max(1, sum(incumbent)) * len(candidate)))
