"""Authority: the log allows this release: right parent, policy and base, budget left, a new adapter that was never turned away."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.results import Check, CheckResult, found


def authority(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """Compares the ledger with itself and with the policy, never with the report: foreign evidence is no reason to reject a candidate."""
    rules = (
        (policy.digest_of() == ledger.policy_digest, Finding.POLICY_FOREIGN),
        (ledger.adapter_base_digest == ledger.base_digest, Finding.BASE_FOREIGN),
        (ledger.parent_digest == ledger.incumbent_digest, Finding.PARENT_FOREIGN),
        (ledger.candidate_digest != ledger.incumbent_digest, Finding.UNCHANGED),
        (ledger.candidate_digest not in ledger.quarantined, Finding.QUARANTINED),
        (1 <= ledger.tests_spent <= policy.round.max_tests, Finding.BUDGET_EXHAUSTED),
    )
    broken = next((finding for holds, finding in rules if not holds), Finding.OK)
    outcome = Outcome.PASS if broken is Finding.OK else Outcome.FAIL
    return (found(Check.AUTHORITY, outcome, broken, None, 0, broken.sentence),)
