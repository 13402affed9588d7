"""The ratchet: a stricter policy takes over without asking, and whoever did not mean it sees that at once, and how to go back."""

from __future__ import annotations

from typing import Any

from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.decide.channel import decide
from gatevalve.decide.plan import Event
from support.world import World, entry, policy
from unit.decide.test_policies import FOUR_TESTS, LOOSER, A, approve, gate, name, opened

HOPELESS = policy(min_effect=10000, margin=1)


def changed(rules: GatePolicySpec, **world: Any) -> tuple[World, Event]:
    """A world that has just taken a policy over, and the event that told of it."""
    it = opened(**world)
    it.policy = rules
    plan = decide(it.view())
    it.run()
    return it, next(event for event in plan.events if event.reason == "PolicyChanged")


def test_a_stricter_policy_takes_over_with_a_warning_that_names_what_asks_for_more() -> None:
    world, event = changed(HOPELESS)
    assert event.warning
    assert "it asks for more: suite regression marginBasisPoints, suite target minEffectBasisPoints;" in event.message
    assert event.message.endswith("the one before comes back only with spec.gatePolicyApproval")
    assert len(world.told("PolicyChanged")) == 1


def test_a_policy_that_a_person_approved_takes_over_with_a_warning_too() -> None:
    world = opened()
    approve(world, LOOSER)
    world.policy = LOOSER
    (event,) = (event for event in decide(world.view()).events if event.reason == "PolicyChanged")
    assert (event.warning, event.message.endswith("approved by ann")) == (True, True)


def test_the_gate_says_which_policy_is_in_force_and_since_when() -> None:
    world = opened()
    opened_at = world.log[0].spec.decided_at
    assert gate(world)[2] == f"GatePolicy support-v1 with digest {A.digest_of()} is in force since {opened_at} ({entry(0)})"
    name(world, HOPELESS)
    since = world.log[1].spec.decided_at
    assert gate(world)[2] == f"GatePolicy support-v1 with digest {HOPELESS.digest_of()} is in force since {since} ({entry(1)})"


def test_the_policy_before_a_stricter_one_comes_back_with_an_approval_only() -> None:
    world, _ = changed(HOPELESS)
    name(world, A)
    status, reason, message = gate(world)
    assert (status, reason) == ("False", "PolicyUnapproved")
    assert f"set spec.gatePolicyApproval to {{digest: {A.digest_of()}, by: " in message
    approve(world, A)
    world.run()
    assert gate(world)[0] == "True"
    assert A.digest_of() in gate(world)[2]


def test_a_policy_with_more_tests_to_share_an_error_rate_says_so() -> None:
    _, event = changed(A, policy=FOUR_TESTS)
    assert "it asks for more: round.maxTests;" in event.message
