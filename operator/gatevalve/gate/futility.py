"""Futility: the screen, on items of its own, ends candidates that will hardly show a gain; it can refuse and never accept."""

from __future__ import annotations

from collections.abc import Sequence

from gatevalve.contracts.files import PairRow
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, found, measured, points
from gatevalve.gate.samples import gain_of


def hopeless(policy: GatePolicySpec, rows: Sequence[PairRow]) -> bool:
    """Whether the screen's rows say not to measure any further: p of a gain on the incumbent is above futility.alphaBasisPoints.

    Asked as a bound that never rises when an answer gets worse (`ClusteredMean.t_bound`), which is the same wherever values vary: up to
    one half of the gain, above one half of the loss. Rows that all show the same, and no gain, are hopeless up to one half.
    Rows of less than two clusters show no variance, thus say nothing.
    """
    alpha = policy.futility.alpha_basis_points
    if alpha == 10_000 or len({row.cluster for row in rows}) < 2:
        return False
    gain = gain_of(rows, policy.primary.decodes, "incumbent")
    if alpha > 5_000:
        return gain.turned().t_bound((10_000 - alpha) / 10_000) > 0
    alike = gain.standard_error == 0 and gain.mean <= 0
    return alike or gain.t_bound(alpha / 10_000) < 0


def futility(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """The same rule as the evaluation's, on the same rows; a test that ended with its screen can fail here and never pass."""
    screen = policy.screen
    if screen is None or screen.name in evidence.set_aside:
        return ()
    rows = evidence.rows(screen.name)
    if hopeless(policy, rows):
        return (_says(policy, Finding.HOPELESS, screen, rows),)
    if evidence.stage == "Screen":
        return (found(Check.FUTILITY, Outcome.INSUFFICIENT, Finding.SCREEN_ONLY, screen, len(rows), Finding.SCREEN_ONLY.sentence),)
    return (_says(policy, Finding.OK, screen, rows),)


def _says(policy: GatePolicySpec, finding: Finding, screen: Suite, rows: Sequence[PairRow]) -> CheckResult:
    gain, most = gain_of(rows, screen.decodes, "incumbent"), policy.futility.alpha_basis_points / 10_000
    p = gain.p_greater(0)
    sentence = (
        f"On the screen the candidate gains {points(gain.mean)} on the incumbent over {gain.clusters} clusters (p = {p:.4f}). "
        f"Measured further: up to p = {most:.4f}."
    )
    return measured(Check.FUTILITY, screen, finding, gain.mean, p, gain.items, sentence)
