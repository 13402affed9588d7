"""Policies: a stricter one takes over at once; anything else waits for a person, and nobody gets tests back by changing to and fro."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve.contracts.kinds import AdapterChannelStatus
from gatevalve.contracts.policy import GatePolicySpec
from support.world import World, channel_spec, entry, policy

A, STRICTER, LOOSER = policy(), policy(min_effect=100), policy(min_effect=1)
INCOMPARABLE = policy(min_effect=100, margin=3000)
FOUR_TESTS = policy(max_tests=4)


def opened(**changes: Any) -> World:
    """A world in which the base serves under policy A."""
    world = World(policy=changes.pop("policy", A), **changes)
    world.run()
    return world


def approve(world: World, rules: GatePolicySpec, reason: str = "too strict for us") -> None:
    """A person consents to a policy."""
    world.edit(gatePolicyApproval={"digest": rules.digest_of(), "by": "ann", "reason": reason})


def name(world: World, rules: GatePolicySpec) -> None:
    """The channel names another policy; the operator looks at it."""
    world.policy = rules
    world.run()


def gate(world: World) -> tuple[str, str, str]:
    """Status, reason and message of GateReady."""
    found = next(c for c in world.channel_status.conditions if c.type == "GateReady")
    return found.status, found.reason, found.message


def until(world: World, last: str) -> None:
    while world.story()[-1] != last:
        world.reconcile()
        world._tick()


def in_force(world: World) -> int:
    """Tests that the policy in force pays for in a round."""
    assert world.channel_status.round is not None
    return world.channel_status.round.max_tests


# ---- taking over


def test_a_stricter_policy_is_in_force_at_once() -> None:
    world = opened()
    name(world, STRICTER)
    assert world.story()[-1] == "Policy:PolicyChanged"
    assert gate(world)[:2] == ("True", "AsExpected")


@pytest.mark.parametrize("rules", [LOOSER, INCOMPARABLE], ids=["looser", "incomparable"])
def test_a_policy_that_is_not_as_strict_is_written_down_and_waits(rules: GatePolicySpec) -> None:
    world = opened()
    name(world, rules)
    assert world.story() == ["Open:ChannelOpened", "Policy:PolicyUnapproved"]
    status, reason, message = gate(world)
    assert (status, reason, world.condition("Ready")) == ("False", "PolicyUnapproved", ("False", "PolicyUnapproved"))
    assert f"set spec.gatePolicyApproval to {{digest: {rules.digest_of()}, by: " in message
    assert len(world.told("PolicyUnapproved")) == 1


def test_what_is_looser_is_named() -> None:
    world = opened()
    name(world, INCOMPARABLE)
    assert "in force: suite regression marginBasisPoints;" in gate(world)[2]
    assert world.log[-1].spec.message.endswith("in force: suite regression marginBasisPoints")


def test_an_approved_policy_is_in_force_with_the_name_and_the_reason_of_who_approved() -> None:
    world = opened()
    name(world, LOOSER)
    approve(world, LOOSER)
    world.run()
    last = world.log[-1].spec
    assert (str(last.reason), last.actor, last.message, last.policy) == ("PolicyApproved", "ann", "too strict for us", LOOSER)
    assert gate(world)[:2] == ("True", "AsExpected")


def test_a_policy_that_is_approved_before_it_is_named_needs_one_entry() -> None:
    world = opened()
    approve(world, LOOSER)
    name(world, LOOSER)
    assert world.story() == ["Open:ChannelOpened", "Policy:PolicyApproved"]


def test_an_approval_of_another_policy_is_none() -> None:
    world = opened()
    approve(world, INCOMPARABLE)
    name(world, LOOSER)
    assert world.story()[-1] == "Policy:PolicyUnapproved"


def test_going_back_to_the_policy_in_force_needs_nothing() -> None:
    world = opened()
    name(world, LOOSER)
    name(world, A)
    assert world.story() == ["Open:ChannelOpened", "Policy:PolicyUnapproved"]
    assert gate(world)[:2] == ("True", "AsExpected")


def test_a_policy_deleted_and_made_anew_under_its_name_is_told_by_its_digest() -> None:
    world = opened()
    world.policy_deleted = True
    world.run()
    assert gate(world)[:2] == ("False", "PolicyMissing")
    world.policy_deleted = False
    name(world, LOOSER)
    assert gate(world)[:2] == ("False", "PolicyUnapproved")


def test_a_channel_made_anew_and_adopted_keeps_the_policy_in_force() -> None:
    world = opened()
    world.policy, world.channel_uid, world.channel_status = LOOSER, "channel-2", AdapterChannelStatus()
    world.annotations = {"gatevalve.dev/adopt": "channel-1"}
    world.run()
    assert world.story() == ["Open:ChannelOpened", "Open:ChannelAdopted", "Policy:PolicyUnapproved"]
    assert world.log[1].spec.policy == A


# ---- once


def test_flipping_writes_each_policy_once() -> None:
    world = opened()
    for _ in range(3):
        for rules in (LOOSER, INCOMPARABLE, A):
            name(world, rules)
    assert world.story() == ["Open:ChannelOpened", "Policy:PolicyUnapproved", "Policy:PolicyUnapproved"]


def test_what_was_not_approved_is_written_again_when_it_is_named_under_another_policy_in_force() -> None:
    world = opened()
    for rules in (LOOSER, STRICTER, LOOSER):
        name(world, rules)
    assert [line.split(":")[1] for line in world.story()[1:]] == ["PolicyUnapproved", "PolicyChanged", "PolicyUnapproved"]


def test_an_approval_is_good_for_one_change() -> None:
    world = opened()
    approve(world, LOOSER)
    for rules in (LOOSER, A, LOOSER):
        name(world, rules)
    assert [line.split(":")[1] for line in world.story()[1:]] == ["PolicyApproved", "PolicyChanged", "PolicyUnapproved"]
    assert f"was used for {entry(1)}; approve again with a reason of its own" in gate(world)[2]
    approve(world, LOOSER, "and once more")
    world.run()
    assert world.story()[-1] == "Policy:PolicyApproved"


@pytest.mark.parametrize("rules", [LOOSER, INCOMPARABLE], ids=["looser", "incomparable"])
def test_naming_another_policy_and_coming_back_gives_no_test_back(rules: GatePolicySpec) -> None:
    world = opened(gain=0.0)
    world.apply("monday")
    world.run()
    name(world, rules)
    name(world, A)
    world.apply("tuesday")
    world.run()
    tests = [view.spec.gate for view in world.log if str(view.spec.action) == "Test"]
    assert [(gate.round, gate.test) for gate in tests if gate] == [(1, 1), (1, 2)]


def test_a_stricter_policy_starts_a_round_and_the_way_back_from_it_needs_a_person() -> None:
    world = opened(policy=FOUR_TESTS, gain=0.0)
    world.apply("monday")
    world.run()
    name(world, policy(max_tests=5))
    assert in_force(world) == 5
    name(world, FOUR_TESTS)
    assert (in_force(world), gate(world)[1]) == (5, "PolicyUnapproved")


# ---- what waits, and what does not


@pytest.mark.parametrize("rules", [LOOSER, INCOMPARABLE], ids=["looser", "incomparable"])
def test_nothing_is_taken_from_the_queue_under_a_policy_that_nobody_approved(rules: GatePolicySpec) -> None:
    world = opened()
    name(world, rules)
    uid = world.apply("monday")
    world.run()
    assert (world.state(uid), world.jobs) == ("Queued", {})
    approve(world, rules)
    world.run()
    assert world.state(uid) == "Promoted"


def test_a_test_that_is_open_waits_and_goes_on_when_the_channel_comes_back_to_its_policy() -> None:
    world = opened()
    uid = world.apply("monday")
    until(world, "Test:TestOpened")
    name(world, LOOSER)
    assert (world.state(uid), world.story()[-1]) == ("Evaluating", "Policy:PolicyUnapproved")
    name(world, A)
    assert world.state(uid) == "Promoted"


@pytest.mark.parametrize("rules", [LOOSER, STRICTER], ids=["an approved one", "a stricter one"])
def test_a_test_that_was_paid_under_one_policy_proves_nothing_under_another(rules: GatePolicySpec) -> None:
    world = opened()
    approve(world, LOOSER)
    uid = world.apply("monday")
    until(world, "Test:TestOpened")
    name(world, rules)
    assert (world.state(uid), world.story()[-1], world.answering()) == ("Inconclusive", "Reject:Stale", {entry(0)})


def test_what_was_accepted_under_one_policy_is_not_promoted_under_another() -> None:
    world = opened(spec=channel_spec(approval="Manual"))
    uid = world.apply("monday")
    world.run()
    assert world.state(uid) == "Accepted"
    world.edit(approval="Automatic")
    name(world, STRICTER)
    assert (world.state(uid), world.answering()) == ("Aborted", {entry(0)})


def test_an_accepted_candidate_is_not_promoted_while_a_policy_waits_for_approval() -> None:
    world = opened(spec=channel_spec(approval="Manual"))
    uid = world.apply("monday")
    world.run()
    world.edit(approval="Automatic")
    name(world, LOOSER)
    assert (world.state(uid), world.story()[-1], world.answering()) == ("Accepted", "Policy:PolicyUnapproved", {entry(0)})


def test_a_way_back_and_a_rollout_go_on_without_an_approval() -> None:
    world = opened()
    world.apply("monday")
    until(world, "Promote:GatePassed")
    name(world, LOOSER)
    assert world.answering() == {entry(3)}
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    assert (world.story()[-1], world.answering()) == ("Rollback:Pinned", {entry(world.log[-1].spec.sequence)})


def test_a_candidate_that_has_ended_is_told_nothing_of_a_policy() -> None:
    world = opened(spec=channel_spec(approval="Manual"))
    uid = world.apply("monday")
    world.run()
    world.edit(pin={"entry": entry(0), "reason": "stop", "by": "ann"})
    world.run()
    world.edit(pin=None)
    world.run()
    told = world.candidates[uid].status
    assert world.state(uid) == "Aborted"
    name(world, LOOSER)
    assert world.candidates[uid].status == told


@pytest.mark.parametrize("kill_after", range(1, 8))
def test_killed_after_any_action_each_policy_is_written_once(kill_after: int) -> None:
    world = opened()
    world.actions, world.kill_after = 0, kill_after
    name(world, LOOSER)
    approve(world, LOOSER)
    world.run()
    name(world, STRICTER)
    assert [line.split(":")[1] for line in world.story()[1:]] == ["PolicyUnapproved", "PolicyApproved", "PolicyChanged"]
