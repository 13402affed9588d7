"""The gate: an ordered chain of checks, of which the worst outcome wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Outcome, Verdict
from gatevalve.gate.anchored import anchored
from gatevalve.gate.authority import authority
from gatevalve.gate.behaviour import behaviour
from gatevalve.gate.churn import churn
from gatevalve.gate.disclosure import disclosed, public_effect
from gatevalve.gate.evidence import sound_evidence
from gatevalve.gate.floors import floors
from gatevalve.gate.futility import futility
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.noninferiority import noninferiority
from gatevalve.gate.results import CheckResult, Judgement
from gatevalve.gate.samples import paired_gain
from gatevalve.gate.superiority import superiority

CheckFunction = Callable[[GatePolicySpec, Evidence, Ledger], tuple[CheckResult, ...]]

MEASUREMENTS: tuple[CheckFunction, ...] = (superiority, noninferiority, anchored, floors, behaviour, churn)
"""Checks 2 to 7, in order, which read suites of sound rows only; evidence is the first check and authority the last."""


def judge(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> Judgement:
    """The verdict on one test: Accepted when every check passes; what is told of the others is decided in `disclosure`."""
    soundness = sound_evidence(policy, evidence, ledger)
    results = (*soundness, *_measured(policy, evidence, ledger, soundness), *authority(policy, evidence, ledger))
    verdict, reason, message = disclosed(policy, results)
    accepted = verdict is Verdict.ACCEPTED
    effect = public_effect(paired_gain(evidence, policy.primary, "incumbent").mean) if accepted else None
    return Judgement(verdict, reason, message, effect, results)


def _measured(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger, soundness: tuple[CheckResult, ...]) -> Iterator[CheckResult]:
    """A suite with unsound rows is set aside and the others are measured: whether the Primary's are sound is not to be told."""
    unsound = [result.suite for result in soundness if result.outcome is not Outcome.PASS]
    if None in unsound:
        return
    sound = evidence.without(suite for suite in unsound if suite is not None)
    yield from futility(policy, sound, ledger)
    if evidence.stage == "Full":
        for check in MEASUREMENTS:
            yield from check(policy, sound, ledger)
