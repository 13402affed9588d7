"""Findings of an audit: with a sound chain nothing new is decided or rolled out, and every way back stays open."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gatevalve.contracts.kinds import AdapterChannelStatus, AdapterReleaseStatus
from gatevalve.decide.channel import decide
from gatevalve.decide.plan import CommitDocument, CopyEntry
from support.world import SimPod, World, entry, policy
from unit.decide.test_tampering import earlier, live, steps

FINDING = "support-000002 rests on evidence that is gone: evidence/support-000001 holds none"
ROLLOUT = timedelta(seconds=90)
"""Longer than a rollout may take."""


def found() -> World:
    """A world whose first promotion serves, and whose log does not stand its audit."""
    world = live()
    world.log_finding = FINDING
    steps(world)
    return world


def pin(world: World, sequence: int) -> None:
    world.edit(pin={"entry": entry(sequence), "reason": "complaints", "by": "ann"})


def message(world: World, kind: str) -> str:
    return next(condition.message for condition in world.channel_status.conditions if condition.type == kind)


def promoting() -> World:
    """A world in which a promotion has begun to be rolled out."""
    world = live()
    world.apply("tuesday")
    for pod in world.pods:
        pod.fails = True
    while world.story().count("Promote:GatePassed") < 2:
        steps(world, 1)
    steps(world, 3)
    return world


# ---- a sound chain with a finding


def test_it_is_told_as_an_invalid_log() -> None:
    world = found()
    assert (world.condition("LogValid"), world.condition("Ready")) == (("False", "LogInvalid"), ("False", "LogInvalid"))
    assert FINDING in message(world, "LogValid")
    assert "wait, a pin or rollback does not" in message(world, "Ready")
    assert len(world.told("LogInvalid")) == 1
    assert world.condition("GateReady") == ("True", "AsExpected")
    assert world.condition("Serving") == ("True", "AsExpected")


def test_no_candidate_is_taken_tested_or_promoted() -> None:
    world = found()
    uid = world.apply("tuesday")
    world.run()
    assert (world.state(uid), world.story()[-1], world.jobs.keys()) == ("Queued", "Promote:GatePassed", live().jobs.keys())


@pytest.mark.parametrize("until", ["Test:TestOpened", "Accept:GatePassed"])
def test_a_candidate_on_its_way_waits_and_goes_on_when_the_finding_is_mended(until: str) -> None:
    world = live()
    world.apply("tuesday")
    while world.story()[-1] != until:
        world.reconcile()
        world._tick()
    world.log_finding = FINDING
    world.run()
    assert world.story()[-1] == until
    world.log_finding = None
    world.run()
    assert world.story()[-1] == "Promote:GatePassed"


def test_no_policy_takes_over() -> None:
    world = found()
    world.policy = policy(min_effect=100)
    world.run()
    assert world.story()[-1] == "Promote:GatePassed"


def test_a_pin_goes_at_once() -> None:
    world = found()
    pin(world, 0)
    steps(world, 3)
    assert (world.story()[-1], world.answering()) == ("Rollback:Pinned", {entry(4)})


def test_a_promotion_that_does_not_settle_gives_way() -> None:
    world = promoting()
    world.log_finding = FINDING
    world.now += ROLLOUT
    world.run()
    assert (world.story()[-1], world.answering()) == ("Rollback:RolloutFailed", {entry(len(world.log) - 1)})


def test_a_promotion_that_has_not_served_is_not_rolled_out() -> None:
    world = promoting()
    world.log_finding = FINDING
    for pod in world.pods:
        pod.fails = False
    steps(world, 10)
    assert (world.story()[-1], world.answering()) == ("Promote:GatePassed", {entry(3)})
    world.log_finding = None
    steps(world, 10)
    assert world.answering() == {entry(len(world.log) - 1)}


def test_what_has_served_is_rolled_out_to_a_pod_that_starts() -> None:
    world = found()
    world.pods.append(SimPod("pod-c"))
    steps(world)
    assert world.answering() == {entry(3)}


@pytest.mark.parametrize("promotion_waits", [False, True])
@pytest.mark.parametrize("problem", [None, "no JSON"], ids=["deleted", "edited"])
def test_the_document_and_the_keys_are_restored(promotion_waits: bool, problem: str | None) -> None:
    world = promoting() if promotion_waits else live()
    world.log_finding, world.keys_problem = FINDING, "it is gone"
    world.replay(None, problem)
    steps(world)
    assert world.committed is not None
    assert [route.entry for route in world.committed.document.routes] == [entry(3)]
    assert not [action for action in decide(world.view()).actions if isinstance(action, CommitDocument)]
    assert world.view().pool.keys_problem is None


def test_entries_are_copied_to_the_external_log() -> None:
    world = found()
    world.log[-1] = replace(world.log[-1], exported=False)
    assert CopyEntry(3) in decide(world.view()).actions


def test_no_channel_is_adopted() -> None:
    world = found()
    world.channel_uid, world.channel_status = "channel-2", AdapterChannelStatus()
    world.annotations = {"gatevalve.dev/adopt": "channel-1"}
    world.run()
    assert (world.story()[-1], world.condition("LogValid"), world.answering()) == (
        "Promote:GatePassed",
        ("False", "LogInvalid"),
        {entry(3)},
    )


# ---- a broken chain


def test_a_pin_to_a_broken_log_says_that_it_cannot_be_and_what_to_do() -> None:
    world = live()
    world.log_problem = "support-000002: its digest is wrong"
    pin(world, 0)
    steps(world)
    assert (world.story()[-1], world.answering()) == ("Promote:GatePassed", {entry(3)})
    assert "a pin included: restore the log, or serve from a new channel" in message(world, "Ready")


@pytest.mark.parametrize("replaced", [True, False], ids=["an older one put there", "deleted"])
def test_the_document_is_restored_although_the_log_is_broken(replaced: bool) -> None:
    world = live()
    world.log_problem = "000001.json differs"
    before = world.committed
    world.replay(earlier(world) if replaced else None)
    steps(world)
    assert world.committed == before
    assert world.answering() == {entry(3)}


@pytest.mark.parametrize("pods_answer", [True, False], ids=["pods answer from the release after it", "no pod answers"])
def test_the_sound_start_of_a_broken_log_leads_no_pod_back_to_what_served_earlier(pods_answer: bool) -> None:
    world = live()
    world.log_problem = "support-000002: its digest is wrong"
    del world.log[2:]
    for pod in world.pods:
        pod.reachable = pods_answer
    world.replay(None)
    steps(world)
    assert world.committed is None
    assert {pod.document.revision for pod in world.pods if pod.document} == {(3, 1)}


# ---- what a pin may restore


def given_up() -> World:
    world = promoting()
    world.now += ROLLOUT
    world.run()
    assert world.story()[-1] == "Rollback:RolloutFailed"
    return world


def test_a_pin_restores_no_promotion_that_was_given_up_before_it_served() -> None:
    world = given_up()
    promoted = len(world.log) - 2
    for pod in world.pods:
        pod.fails = False
    pin(world, promoted)
    world.run()
    assert (world.story()[-1], world.answering()) == ("Rollback:RolloutFailed", {entry(promoted + 1)})
    assert world.condition("Ready") == ("False", "SpecInvalid")
    assert f"{entry(promoted)} has never served: {entry(promoted + 1)} gave its rollout up" in message(world, "Ready")


def test_whether_it_served_is_read_from_the_log_and_not_from_its_status() -> None:
    world = given_up()
    promoted = len(world.log) - 2
    world.log[promoted] = replace(world.log[promoted], status=AdapterReleaseStatus(live_since="2026-01-01T00:00:00Z"))
    pin(world, promoted)
    world.run()
    assert world.story()[-1] == "Rollback:RolloutFailed"


@pytest.mark.parametrize("target", [0, 3, -1], ids=["the base", "a promotion that served", "the rollback itself"])
def test_a_pin_restores_what_served_before_it(target: int) -> None:
    world = given_up()
    sequence = target if target >= 0 else len(world.log) - 1
    pin(world, sequence)
    world.run()
    assert world.condition("Ready")[0] == "True"
    assert world.log[-1].spec.serves == world.log[sequence].spec.serves
