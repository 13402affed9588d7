"""The condition Underpowered: what the policy in force sees by planning alone, told and never in anybody's way."""

from __future__ import annotations

from typing import Any

import pytest

from demo.objects import manifest
from gatevalve.contracts.kinds import Condition
from gatevalve.contracts.policy import GatePolicySpec
from support.world import World, digest, policy


def with_primary(**changes: Any) -> GatePolicySpec:
    wire = policy().wire()
    wire["suites"][0] |= changes
    return GatePolicySpec.parse(wire)


def condition(world: World) -> Condition:
    return next(found for found in world.channel_status.conditions if found.type == "Underpowered")


TOLD: dict[str, tuple[GatePolicySpec, tuple[str, str, str]]] = {
    "too few items": (
        policy(),
        (
            "True",
            "Underpowered",
            "a test sees the minDetectableEffectBasisPoints of 1000 in 12 of 100 cases; items 322 would see it in 80",
        ),
    ),
    "enough items": (
        with_primary(items={"generator": "word-problems", "count": 322}),
        ("False", "AsExpected", "a test sees the minDetectableEffectBasisPoints of 1000 in 80 of 100 cases"),
    ),
    "the demo's policy": (
        GatePolicySpec.parse(manifest("policy")["spec"]),
        ("False", "AsExpected", "a test sees the minDetectableEffectBasisPoints of 1000 in 80 of 100 cases"),
    ),
    "more items or more decodes": (
        with_primary(items={"generator": "word-problems", "count": 240}),
        (
            "True",
            "Underpowered",
            "a test sees the minDetectableEffectBasisPoints of 1000 in 64 of 100 cases; items 322 or decodes 3 would see it in 80",
        ),
    ),
    "an effect that no number of items shows in time": (
        with_primary(minDetectableEffectBasisPoints=10, minEffectBasisPoints=5),
        (
            "True",
            "Underpowered",
            "a test sees the minDetectableEffectBasisPoints of 10 in 0 of 100 cases; "
            "neither more items nor more decodes alone would see it in 80: change both and the screen, or plan with a larger effect",
        ),
    ),
    "an effect that is no greater than the least one": (
        with_primary(minDetectableEffectBasisPoints=50, minEffectBasisPoints=50),
        (
            "True",
            "Underpowered",
            "a test sees the minDetectableEffectBasisPoints of 50 in 0 of 100 cases; "
            "minEffectBasisPoints is 50, and no number of items shows an effect beyond it that is not: lower it",
        ),
    ),
    "a policy that wants to see nothing": (
        with_primary(minDetectableEffectBasisPoints=0),
        ("False", "AsExpected", "the policy names no minDetectableEffectBasisPoints that its tests should see"),
    ),
    "a fixed file": (
        with_primary(items={"uri": "suites/target.jsonl", "digest": digest("target")}),
        (
            "Unknown",
            "Underpowered",
            "the items of a fixed file are not counted in the policy; kubectl gatevalve gate power --items tells what they see",
        ),
    ),
}


@pytest.mark.parametrize("sentence", TOLD)
def test_the_channel_tells_of(sentence: str) -> None:
    rules, told = TOLD[sentence]
    world = World(policy=rules)
    world.run()
    found = condition(world)
    assert (found.status, found.reason, found.message) == told


def test_it_stops_nothing() -> None:
    world = World()
    world.apply("one")
    world.run()
    assert condition(world).status == "True"
    assert world.story()[-1].startswith("Promote")
    assert next(found for found in world.channel_status.conditions if found.type == "Ready").status == "True"


def test_what_is_measured_does_not_move_it() -> None:
    world = World()
    world.run()
    before = condition(world)
    world.apply("one")
    world.run()
    assert condition(world) == before


def test_it_is_told_of_the_policy_in_force_and_not_of_one_that_waits_for_approval() -> None:
    world = World()
    world.run()
    before = condition(world).message
    world.policy = with_primary(minEffectBasisPoints=0, items={"generator": "word-problems", "count": 600})
    world.run()
    assert condition(world).message == before
