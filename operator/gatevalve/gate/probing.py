"""Probing: under which policies sentinels run, and which policies ask the same traffic."""

from __future__ import annotations

from gatevalve.contracts.policy import GatePolicySpec, Items

TrafficSuite = tuple[str, Items, str | None]
"""Name, source and verifier of a suite that takes its items from traffic."""


def sentinels_off(policy: GatePolicySpec) -> str | None:
    """Why a policy has no sentinels; None when it has."""
    return "sentinels.everyCandidates of the policy in force is 0" if policy.sentinels.every_candidates == 0 else None


def traffic_suites(policy: GatePolicySpec) -> tuple[TrafficSuite, ...]:
    """The suites that take their items from traffic, the screen included: policies that agree in them can be asked the same items."""
    return tuple((suite.name, suite.items, suite.verifier) for suite in policy.asked if suite.items.traffic is not None)
