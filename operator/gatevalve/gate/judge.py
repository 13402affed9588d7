"""The gate: an ordered chain of checks, of which the worst outcome wins."""

from __future__ import annotations

from collections.abc import Callable

from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Outcome, Verdict
from gatevalve.gate.anchored import anchored
from gatevalve.gate.authority import authority
from gatevalve.gate.disclosure import public_effect, public_message, public_reason
from gatevalve.gate.evidence import sound_evidence
from gatevalve.gate.floor import floor
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.length_ratio import length_ratio
from gatevalve.gate.noninferiority import noninferiority
from gatevalve.gate.results import CheckResult, Judgement
from gatevalve.gate.samples import paired_gain
from gatevalve.gate.superiority import superiority

CheckFunction = Callable[[GatePolicySpec, Evidence, Ledger], tuple[CheckResult, ...]]

MEASUREMENTS: tuple[CheckFunction, ...] = (superiority, noninferiority, anchored, floor, length_ratio)
"""The checks that read scores and lengths, in order; they see sound evidence only."""


def judge(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> Judgement:
    """The verdict on one test: Accepted when every check passes, Rejected when any fails, Inconclusive otherwise."""
    results = _results(policy, evidence, ledger)
    failed = [result for result in results if result.outcome is Outcome.FAIL]
    insufficient = [result for result in results if result.outcome is Outcome.INSUFFICIENT]
    if worst := failed or insufficient:
        verdict = Verdict.REJECTED if failed else Verdict.INCONCLUSIVE
        return Judgement(verdict, public_reason(policy, worst[0]), public_message(policy, worst[0]), None, results)
    effect = public_effect(paired_gain(evidence, policy.primary, "incumbent").mean)
    return Judgement(Verdict.ACCEPTED, EntryReason.GATE_PASSED, EntryReason.GATE_PASSED.sentence, effect, results)


def _results(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    soundness = sound_evidence(policy, evidence, ledger)
    sound = all(result.outcome is Outcome.PASS for result in soundness)
    measurements = (result for check in MEASUREMENTS for result in check(policy, evidence, ledger)) if sound else ()
    return (*soundness, *measurements, *authority(policy, evidence, ledger))
