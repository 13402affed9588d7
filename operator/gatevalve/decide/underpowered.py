"""Underpowered: whether the policy in force sees the effect that it says it wants to see. It is told and stops nothing."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import ConditionReason
from gatevalve.gate.power import SEEN, Seen, planned_power

FIXED = "the items of a fixed file are not counted in the policy; kubectl gatevalve gate power --items tells what they see"
NOTHING = "the policy names no minDetectableEffectBasisPoints that its tests should see"
NO_SINGLE_REMEDY = "neither more items nor more decodes alone would see it in 80: change both and the screen, or plan with a larger effect"


def underpowered(policy: GatePolicySpec) -> tuple[bool | None, ConditionReason, str]:
    """Status, reason and message of the condition; constant for a policy, as nothing that was measured enters."""
    seen = planned_power(policy)
    if seen is None:
        return None, ConditionReason.UNDERPOWERED, FIXED
    if seen.effect_basis_points == 0:
        return False, ConditionReason.AS_EXPECTED, NOTHING
    text = f"a test sees the minDetectableEffectBasisPoints of {seen.effect_basis_points} in {int(seen.share * 100)} of 100 cases"
    if seen.share >= SEEN:
        return False, ConditionReason.AS_EXPECTED, text
    return True, ConditionReason.UNDERPOWERED, f"{text}; {_remedy(policy, seen)}"


def _remedy(policy: GatePolicySpec, seen: Seen) -> str:
    least = policy.primary.min_effect_basis_points or 0
    if least >= seen.effect_basis_points:
        return f"minEffectBasisPoints is {least}, and no number of items shows an effect beyond it that is not: lower it"
    return f"{' or '.join(seen.remedies)} would see it in 80" if seen.remedies else NO_SINGLE_REMEDY
