"""From rows to what the statistics take: fixed denominators, missing answers counted against the candidate, scores in exact integers."""

from __future__ import annotations

from collections.abc import Iterable

from gatevalve.contracts.files import BASELINES, SCORE_ONE, Arm, PairRow
from gatevalve.contracts.policy import Suite
from gatevalve.gate.inputs import Evidence
from gatevalve.gate.statistics import ClusteredMean, clustered_mean


def scores(row: PairRow, arm: Arm) -> tuple[int, ...]:
    """An arm's scores of one item; a missing answer is the candidate's worst and a baseline's best."""
    missing = 0 if arm == "candidate" else SCORE_ONE
    return tuple([missing if score is None else score for score in row.scores[arm]])


def paired_gain(evidence: Evidence, suite: Suite, against: Arm) -> ClusteredMean:
    """Mean of the items' differences, candidate less `against`, each averaged over its decodes; between -1 and 1."""
    return gain_of(evidence.rows(suite.name), suite.decodes, against)


def gain_of(rows: Iterable[PairRow], decodes: int, against: Arm) -> ClusteredMean:
    """`paired_gain` of rows that are at hand."""
    differences = ((row.cluster, sum(scores(row, "candidate")) - sum(scores(row, against))) for row in rows)
    return clustered_mean(differences, SCORE_ONE * decodes, -1.0, 1.0)


def candidate_rate(evidence: Evidence, suite: Suite) -> ClusteredMean:
    """Mean of the candidate's item scores, each averaged over its decodes; between 0 and 1."""
    rows = evidence.rows(suite.name)
    return clustered_mean(((row.cluster, sum(scores(row, "candidate"))) for row in rows), SCORE_ONE * suite.decodes, 0.0, 1.0)


def counts_exactly(evidence: Evidence, suite: Suite) -> bool:
    """Whether items are independent, answered once, and right or wrong, so that exact bounds of a count apply.

    Right or wrong is read from the baselines alone: otherwise a candidate could choose its test by one half-right answer.
    """
    rows = evidence.rows(suite.name)
    independent = len({row.cluster for row in rows}) == len(rows)
    return (
        suite.decodes == 1
        and independent
        and all(score in (0, SCORE_ONE) for row in rows for arm in BASELINES for score in scores(row, arm))
    )


def right(row: PairRow, arm: Arm) -> bool:
    """Whether an arm's only answer is wholly right."""
    return scores(row, arm) == (SCORE_ONE,)


def lost(evidence: Evidence, suite: Suite, against: Arm) -> int:
    """Items that `against` answers rightly and the candidate does not."""
    return sum(right(row, against) and not right(row, "candidate") for row in evidence.rows(suite.name))


def won(evidence: Evidence, suite: Suite, against: Arm) -> int:
    """Items that the candidate answers rightly and `against` does not."""
    return sum(right(row, "candidate") and not right(row, against) for row in evidence.rows(suite.name))
