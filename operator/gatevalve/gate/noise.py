"""Noise: how much the paired difference of one item varies, planned before anything is measured or observed in evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gatevalve.contracts.files import BASELINES, SCORE_ONE, Arm, PairRow
from gatevalve.contracts.policy import Suite
from gatevalve.gate.samples import gain_of, right, scores

WORST_RATE = 0.5
"""The share of right answers at which replies vary most."""
ITEM_SPREAD = 0.15
"""Standard deviation, between items, of the true difference of two adapters: a gain is never the same on every item."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What makes the paired difference of one item vary, scores between 0 and 1.

    `between`: variance of the items' true differences; `within`: variance of one answer less another arm's answer to the same item;
    `flips`: share of items that one answer loses although nothing is truly lost, None where losses are not counted but averaged.
    `cluster`: items of a cluster, which vary together. `greedy`: replies do not vary, so an effect of x moves at least a share x of the
    items from one end to the other. `split`: `within` is told from `between`, so that other numbers of decodes can be planned.
    """

    between: float
    within: float
    flips: float | None
    cluster: float = 1.0
    greedy: bool = False
    split: bool = True

    def variance(self, decodes: int, effect: float) -> float:
        """The variance of an item's difference, averaged over its decodes, when the true mean difference is `effect`."""
        moved = abs(effect) - effect * effect if self.greedy else 0.0
        return self.between + self.within / decodes + moved


def planned_noise(suite: Suite, rate: float = WORST_RATE) -> Noise:
    """The variance to plan with before anything is measured: right or wrong answers at a rate, independent between arms and decodes.

    One answer varies by rate * (1 - rate); of a judged pair only the candidate's score does, its incumbent's is always one half; greedy
    replies do not vary.
    """
    between, one = ITEM_SPREAD**2, rate * (1 - rate)
    if float(suite.sampling.temperature) == 0 and suite.judge is None:
        return Noise(between, 0.0, between / 2, greedy=True)
    return Noise(between, (1 if suite.judge else 2) * one, one)


def observed_noise(rows: Sequence[PairRow], decodes: int) -> Noise:
    """What the rows of one suite show of candidate and incumbent: the clustered variance, split where items were answered several times.

    The variance between decodes of one item and arm is that of sampling; what it does not explain of the clustered standard error lies
    between items. Raises ContractError below two clusters.
    """
    gain = gain_of(rows, decodes, "incumbent")
    cluster = gain.items / gain.clusters
    whole = gain.standard_error**2 * gain.items
    sampled = sum(_sampled(row, arm) for row in rows for arm in ("candidate", "incumbent")) / len(rows)
    within = min(sampled, whole * decodes)
    return Noise(
        between=(whole - within / decodes) / cluster,
        within=within / cluster,
        flips=_flips(rows) if decodes == 1 and gain.clusters == gain.items else None,
        cluster=cluster,
        split=decodes > 1,
    )


def pooled(noises: Sequence[Noise]) -> Noise:
    """The mean of what several tests show of one suite."""
    number = len(noises)
    flips = [noise.flips for noise in noises if noise.flips is not None]
    return Noise(
        between=sum(noise.between for noise in noises) / number,
        within=sum(noise.within for noise in noises) / number,
        flips=sum(flips) / number if len(flips) == number else None,
        cluster=sum(noise.cluster for noise in noises) / number,
        split=all(noise.split for noise in noises),
    )


def _sampled(row: PairRow, arm: Arm) -> float:
    """The variance of one answer of an arm to one item; 0 where there is but one."""
    answers = [score / SCORE_ONE for score in scores(row, arm)]
    if len(answers) < 2:
        return 0.0
    mean = sum(answers) / len(answers)
    return sum((answer - mean) ** 2 for answer in answers) / (len(answers) - 1)


def _flips(rows: Sequence[PairRow]) -> float | None:
    """The share of items lost that as many won make up for: what changed without getting worse. None where scores are graded."""
    if any(score not in (0, SCORE_ONE) for row in rows for arm in BASELINES if arm in row.scores for score in scores(row, arm)):
        return None
    lost = sum(right(row, "incumbent") and not right(row, "candidate") for row in rows)
    won = sum(right(row, "candidate") and not right(row, "incumbent") for row in rows)
    return min(lost, won) / len(rows)
