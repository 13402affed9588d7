"""Churn: few answers that the incumbent has right go wrong, whatever else is gained, beyond what the incumbent does to itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product

from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, measured, points
from gatevalve.gate.samples import scores


def churn(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """Each suite with a verifier, against maxExcessNegativeFlipBasisPoints; a judge compares two replies and calls neither right."""
    most = policy.behaviour.max_excess_negative_flip_basis_points
    suites = evidence.with_role(policy, "Primary", "Guard", "MustPass")
    return tuple(_held(suite, evidence.rows(suite.name), most) for suite in suites if suite.judge is None)


def _held(suite: Suite, rows: tuple[PairRow, ...], most: int) -> CheckResult:
    excess = excess_flips([flips_of(row) for row in rows], suite.decodes)
    finding = Finding.OK if excess * 10_000 <= most else Finding.CHURNED
    sentence = (
        f"Of what the incumbent has right, the candidate loses {points(float(excess))} more than the incumbent does when asked again. "
        f"Allowed: {points(most / 10_000)}."
    )
    return measured(Check.CHURN, suite, finding, float(excess), float(excess), len(rows), sentence)


def flips_of(row: PairRow) -> tuple[int, int]:
    """What the candidate loses of an item's answers to the incumbent, and what the incumbent loses to itself, summed over pairs."""
    incumbent = scores(row, "incumbent")
    return _flips(incumbent, scores(row, "candidate")), _own_flips(incumbent)


def excess_flips(flips: Sequence[tuple[int, int]], decodes: int) -> Fraction:
    """The mean loss of an answer beyond the incumbent's own, of the `flips_of` each item; between -1 and 1."""
    excess = Fraction(sum(lost for lost, _ in flips), len(flips) * decodes**2 * SCORE_ONE)
    if decodes == 1:
        return excess
    return excess - Fraction(sum(own for _, own in flips), len(flips) * decodes * (decodes - 1) * SCORE_ONE)


def _flips(before: Iterable[int], after: Iterable[int]) -> int:
    """What is lost from each answer of one list to each of the other; with right and wrong answers, the pairs of right and wrong."""
    return sum(max(0, old - new) for old, new in product(before, after))


def _own_flips(answers: tuple[int, ...]) -> int:
    """The same among the answers of one list; an answer loses nothing to itself, so only pairs of two answers count."""
    return _flips(answers, answers)
