"""Probing: under which policies sentinels can be run at all."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec


def sentinels_off(policy: GatePolicySpec) -> str | None:
    """Why a policy has no sentinels; None when it has."""
    if policy.sentinels.every_candidates == 0:
        return "sentinels.everyCandidates of the policy in force is 0"
    traffic = [suite.name for suite in policy.suites if suite.items.traffic is not None]
    if traffic:
        return f"suite {traffic[0]} takes its items from traffic, which sentinels would use up"
    return None
