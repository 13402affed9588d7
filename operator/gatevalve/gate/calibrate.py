"""Calibrate: how far the incumbent strays from itself, measured as the checks measure a candidate, beside each limit of a policy.

The spread is a cluster bootstrap (Efron & Tibshirani 1993, chapter 8): clusters are drawn anew with all arms' answers to them. Its random
numbers come from the evidence's digest, so the same evidence gives the same table; no verdict rests on it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from gatevalve.contracts.files import PairRow
from gatevalve.contracts.policy import Behaviour, GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.behaviour import RULES, Rule
from gatevalve.gate.churn import excess_flips, flips_of
from gatevalve.gate.inputs import Evidence
from gatevalve.gate.replies import Replies
from gatevalve.gate.statistics import rounded

RESAMPLES = 1_000
TAIL = 10
"""Resamples beyond a percentile: 1 of 100."""

FIELDS: dict[Finding, str] = {
    Finding.LENGTH_RATIO: "lengthRatioPercent",
    Finding.REPETITION: "maxRepetitionBasisPoints",
    Finding.TRUNCATION: "maxTruncationBasisPoints",
    Finding.DIVERSITY: "minDiversityPercent",
    Finding.KL_INCUMBENT: "maxKlMillinatsPerToken",
    Finding.KL_ANCHOR: "maxAnchorKlMillinatsPerToken",
    Finding.FORMAT_SHIFT: "maxFormatShiftBasisPoints",
    Finding.JUDGE_TEXT: "maxJudgeTextBasisPoints",
    Finding.AVOIDANCE: "maxAvoidanceBasisPoints",
}
"""The policy's field of each rule on replies, below `behaviour`."""
CHURN_FIELD = "maxExcessNegativeFlipBasisPoints"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Calibration:
    """One limit on one suite: what was measured, the 1st and 99th percentile of its resamples, and what the policy allows.

    All in the limit's own unit; `low` and `high` are absent where no resample can be measured.
    """

    field: str
    suite: str
    measured: float | None
    low: float | None
    high: float | None
    least: int | None
    most: int | None

    @property
    def tight(self) -> bool:
        """The limit is tighter than the incumbent's own noise: it would refuse the incumbent itself in more than 1 of 100 tests."""
        below = self.least is not None and self.low is not None and self.low < self.least
        return below or (self.most is not None and self.high is not None and self.high > self.most)


def calibrate(policy: GatePolicySpec, evidence: Evidence, seed: str) -> tuple[Calibration, ...]:
    """Every rule on every Behaviour suite, then churn on every scored suite, for suites that have rows. `seed`: the evidence's digest.

    maxGainByLengthPercent is left out: where nothing is gained, nothing explains it.
    """
    spoken = (suite for suite in policy.with_role("Behaviour") if evidence.rows(suite.name))
    scored = (
        suite for role in ("Primary", "Guard", "MustPass") for suite in policy.suites if suite.role == role and evidence.rows(suite.name)
    )
    return (
        *(found for suite in spoken for found in _behaviour(suite, evidence.rows(suite.name), policy.behaviour, seed)),
        *(_churn(suite, evidence.rows(suite.name), policy.behaviour, seed) for suite in scored),
    )


def _behaviour(suite: Suite, rows: Sequence[PairRow], limits: Behaviour, seed: str) -> Iterator[Calibration]:
    whole = Replies.to(rows)
    samples = [_together(sample) for sample in _resamples([Replies.to(cluster) for cluster in _clusters(rows)], f"{seed} {suite.name}")]
    for rule in RULES:
        least, most = rule.limits(limits)
        values = sorted(value for sample in samples if (value := _value(rule, sample)) is not None)
        yield _calibration(FIELDS[rule.finding], suite, _value(rule, whole), values, least, most)


def _value(rule: Rule, replies: Replies) -> Fraction | None:
    return rule.measure(replies) if replies.complete else None


def _together(parts: Sequence[Replies]) -> Replies:
    return Replies(
        {arm: tuple(reply for part in parts for reply in part.of[arm]) for arm in parts[0].of},
        tuple(likelihood for part in parts for likelihood in part.likelihoods),
    )


def _churn(suite: Suite, rows: Sequence[PairRow], limits: Behaviour, seed: str) -> Calibration:
    def share(flips: Iterable[tuple[int, int]]) -> Fraction:
        return excess_flips(list(flips), suite.decodes) * 10_000

    clusters = [[flips_of(row) for row in cluster] for cluster in _clusters(rows)]
    samples = _resamples(clusters, f"{seed} {suite.name}")
    values = sorted(share(flips for cluster in sample for flips in cluster) for sample in samples)
    measured = share(flips for cluster in clusters for flips in cluster)
    return _calibration(CHURN_FIELD, suite, measured, values, None, limits.max_excess_negative_flip_basis_points)


def _calibration(
    field: str, suite: Suite, measured: Fraction | None, values: Sequence[Fraction], least: int | None, most: int | None
) -> Calibration:
    """Percentiles of values in order: TAIL of RESAMPLES lie beyond each."""
    beyond = len(values) * TAIL // RESAMPLES
    low, high = (_number(values[beyond]), _number(values[-1 - beyond])) if values else (None, None)
    return Calibration(f"behaviour.{field}", suite.name, _number(measured), low, high, least, most)


def _number(value: Fraction | None) -> float | None:
    return None if value is None else rounded(float(value))


def _clusters(rows: Sequence[PairRow]) -> list[list[PairRow]]:
    """The rows by cluster, in the order of the clusters' names."""
    found: defaultdict[str, list[PairRow]] = defaultdict(list)
    for row in rows:
        found[row.cluster].append(row)
    return [found[name] for name in sorted(found)]


def _resamples(clusters: Sequence[T], seed: str) -> Iterator[list[T]]:
    rng = random.Random(seed)
    for _ in range(RESAMPLES):
        yield [clusters[int(rng.random() * len(clusters))] for _ in clusters]
