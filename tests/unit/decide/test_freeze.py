"""Freeze: while the log freezes a channel no test is opened and nothing promoted, ways back stay open, and a person lifts it by name."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from gatevalve.contracts.kinds import AdapterReleaseSpec, Condition
from gatevalve.contracts.names import ANNOTATION_UNFREEZE
from gatevalve.contracts.reasons import EntryReason
from gatevalve.decide.audit import log_problems
from gatevalve.decide.channel import decide
from gatevalve.decide.conditions import condition_of
from gatevalve.decide.freeze import freeze
from gatevalve.decide.log import LogState, fold, name_of
from gatevalve.decide.plan import AppendEntry
from gatevalve.decide.view import EntryView
from support.world import World, entry
from unit.decide.test_policies import opened, until

CAUSE = "an adapter of noise was accepted"


def frozen(world: World) -> str:
    """Freeze the channel; gives the entry's name."""
    view = world.view()
    assert view.channel is not None
    plan = freeze(view, view.channel, fold(view.log), EntryReason.SENTINEL_FAILED, CAUSE)
    for action in plan.actions:
        world._act(action)
    world.events += [f"{event.reason}: {event.message}" for event in plan.events]
    return entry(len(world.log) - 1)


def lift(world: World, name: str) -> None:
    """A person annotates the channel."""
    world.annotations = {ANNOTATION_UNFREEZE: name}
    world.run()


def told(world: World, kind: str) -> Condition:
    return next(c for c in world.channel_status.conditions if c.type == kind)


def decided(world: World, uid: str) -> tuple[str, str]:
    found = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    return found.reason, found.message


# ---- what waits, and what goes on


def test_while_frozen_nothing_is_dequeued_and_afterwards_it_goes_on() -> None:
    world = opened()
    name = frozen(world)
    uid = world.apply("monday")
    world.run()
    reason, message = decided(world, uid)
    assert (world.state(uid), reason, world.jobs) == ("Queued", "Frozen", {})
    assert f"annotate the channel with {ANNOTATION_UNFREEZE}={name}" in message
    lift(world, name)
    assert (world.state(uid), world.story()[-1]) == ("Promoted", "Promote:GatePassed")


def test_a_candidate_that_is_in_training_ends_it_and_spends_no_test() -> None:
    world = opened()
    uid = world.apply("monday")
    while world.state(uid) != "Training":
        world.reconcile()
        world._tick()
    name = frozen(world)
    world.run()
    assert (world.state(uid), decided(world, uid)[0], world.story()[-1]) == ("Training", "Frozen", "Freeze:SentinelFailed")
    lift(world, name)
    assert (world.state(uid), world.story()[-3:]) == ("Promoted", ["Test:TestOpened", "Accept:GatePassed", "Promote:GatePassed"])


@pytest.mark.parametrize(("gain", "state", "last"), [(0.5, "Accepted", "Accept:GatePassed"), (0.0, "Rejected", "Reject:PrimaryNotPassed")])
def test_a_test_that_is_open_comes_to_its_verdict_and_nothing_is_promoted(gain: float, state: str, last: str) -> None:
    world = opened(gain=gain)
    uid = world.apply("monday")
    until(world, "Test:TestOpened")
    frozen(world)
    world.run()
    assert (world.state(uid), world.story()[-1], world.answering()) == (state, last, {entry(0)})


def test_an_accepted_candidate_waits_and_is_promoted_when_a_person_lifts_the_freeze() -> None:
    world = opened()
    uid = world.apply("monday")
    until(world, "Accept:GatePassed")
    name = frozen(world)
    world.run()
    assert (decided(world, uid)[0], world.answering()) == ("Frozen", {entry(0)})
    lift(world, name)
    assert world.story()[-2:] == ["Unfreeze:Unfrozen", "Promote:GatePassed"]
    assert world.answering() == {entry(len(world.log) - 1)}


def test_a_persons_approval_promotes_nothing_while_frozen() -> None:
    world = opened()
    world.edit(approval="Manual")
    uid = world.apply("monday")
    until(world, "Accept:GatePassed")
    name = frozen(world)
    gate = world.log[2].spec.gate
    assert gate is not None
    assert gate.evidence is not None
    world.approve(uid, "Approve", gate.evidence.digest)
    world.run()
    assert world.answering() == {entry(0)}
    lift(world, name)
    assert (world.state(uid), world.log[-1].spec.actor) == ("Promoted", "ann")


def test_a_pin_goes_at_once_while_frozen() -> None:
    world = opened()
    world.apply("monday")
    world.run()
    frozen(world)
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    assert (world.story()[-1], world.answering()) == ("Rollback:Pinned", {entry(len(world.log) - 1)})


def test_a_promotion_that_was_written_before_the_freeze_is_rolled_out() -> None:
    world = opened()
    world.apply("monday")
    until(world, "Promote:GatePassed")
    frozen(world)
    world.run()
    assert world.answering() == {entry(3)}


def test_a_promotion_that_does_not_settle_is_taken_back_while_frozen() -> None:
    world = opened()
    world.apply("monday")
    until(world, "Promote:GatePassed")
    world.pods[0].fails = True
    frozen(world)
    world.run()
    world.now = world.now.replace(hour=23)
    world.run()
    assert world.story()[-1] == "Rollback:RolloutFailed"


def test_a_freeze_does_not_wait_for_its_copy_and_lifting_it_does() -> None:
    world = opened()
    view = world.view()
    assert view.channel is not None
    (append,) = freeze(view, view.channel, fold(view.log), EntryReason.SENTINEL_FAILED, CAUSE).actions
    assert isinstance(append, AppendEntry)
    world.annotations = {ANNOTATION_UNFREEZE: frozen(world)}
    world.reconcile()
    (lifted,) = (action for action in decide(world.view()).actions if isinstance(action, AppendEntry))
    assert (append.copy_first, lifted.copy_first) == (False, True)


def test_a_freeze_holds_before_its_copy_lies_in_the_external_log() -> None:
    world = opened()
    world.apply("monday")
    until(world, "Accept:GatePassed")
    world.store_down = True
    frozen(world)
    for _ in range(20):
        world.reconcile()
        world._tick()
    assert (world.log[-1].exported, told(world, "Frozen").status, world.answering()) == (False, "True", {entry(0)})
    world.store_down = False
    world.run()
    assert (world.log[-1].exported, world.story()[-1]) == (True, "Freeze:SentinelFailed")


# ---- what people see


def test_conditions_tell_what_froze_the_channel_and_how_to_go_on() -> None:
    world = opened()
    assert (told(world, "Frozen").status, told(world, "Frozen").reason, told(world, "Ready").status) == ("False", "AsExpected", "True")
    name = frozen(world)
    world.run()
    condition, ready = told(world, "Frozen"), told(world, "Ready")
    assert (condition.status, condition.reason, ready.status, ready.reason) == ("True", "SentinelFailed", "False", "Frozen")
    assert condition.message == ready.message
    for part in (name, CAUSE, f"{ANNOTATION_UNFREEZE}={name}"):
        assert part in condition.message
    assert world.told("Frozen") == [f"Frozen: {name}: SentinelFailed: {CAUSE}"]
    lift(world, name)
    assert (told(world, "Frozen").status, told(world, "Ready").status) == ("False", "True")
    assert world.told("Unfrozen") == [f"Unfrozen: {entry(2)}: {name} is lifted by annotation"]


def test_of_a_broken_log_it_is_not_known_whether_it_is_frozen() -> None:
    world = opened()
    world.log_problem = "support-000001 is missing"
    world.run()
    assert (told(world, "Frozen").status, told(world, "Frozen").reason) == ("Unknown", "LogInvalid")


# ---- lifting


def test_lifting_is_an_entry_that_names_the_freeze() -> None:
    world = opened()
    name = frozen(world)
    lift(world, name)
    last = world.log[-1].spec
    assert (str(last.action), last.lifts, last.actor) == ("Unfreeze", name, "gatevalve")
    assert log_problems(fold(world.view().log)) == ()


def test_one_annotation_lifts_one_freeze() -> None:
    world = opened()
    first = frozen(world)
    lift(world, first)
    frozen(world)
    world.run()
    assert (world.story()[-1], told(world, "Frozen").status) == ("Freeze:SentinelFailed", "True")


@pytest.mark.parametrize("name", [entry(0), entry(1), entry(9), "support", ""])
def test_an_annotation_that_does_not_name_the_newest_freeze_lifts_nothing(name: str) -> None:
    world = opened()
    frozen(world)
    newest = frozen(world)
    lift(world, name)
    assert world.story()[-1] == "Freeze:SentinelFailed"
    lift(world, newest)
    assert (world.story()[-1], fold(world.view().log).frozen_by) == ("Unfreeze:Unfrozen", None)


def test_without_a_freeze_the_annotation_writes_nothing() -> None:
    world = opened()
    lift(world, entry(0))
    assert world.story() == ["Open:ChannelOpened"]


def test_a_log_that_does_not_stand_its_audit_is_mended_before_anything_is_lifted() -> None:
    world = opened()
    name = frozen(world)
    world.log_finding = "support-000000 says something else"
    lift(world, name)
    assert world.story()[-1] == "Freeze:SentinelFailed"


@pytest.mark.parametrize("kill_after", range(1, 26))
def test_killed_after_any_action_a_freeze_and_its_end_are_written_once(kill_after: int) -> None:
    world = opened()
    name = frozen(world)
    world.apply("monday")
    world.run()
    world.actions, world.kill_after = 0, kill_after
    lift(world, name)
    assert world.story() == [
        "Open:ChannelOpened",
        "Freeze:SentinelFailed",
        "Unfreeze:Unfrozen",
        "Test:TestOpened",
        "Accept:GatePassed",
        "Promote:GatePassed",
    ]


# ---- the audit


@cache
def lived() -> list[AdapterReleaseSpec]:
    """A log with a freeze that was lifted before a promotion: Open, Test, Accept, Freeze, Unfreeze, Promote."""
    world = opened()
    world.apply("monday")
    until(world, "Accept:GatePassed")
    lift(world, frozen(world))
    return [view.spec for view in world.log]


def problems(specs: list[AdapterReleaseSpec]) -> tuple[str, ...]:
    return log_problems(LogState(tuple(EntryView(spec, status=None, exported=True) for spec in specs)))  # type: ignore[arg-type]


FREEZE, UNFREEZE = 3, 4

FORGED: dict[str, tuple[int, dict[str, Any], int, str]] = {
    "a promotion while frozen": (UNFREEZE, {"action": "Reject"}, 5, f"{entry(FREEZE)} froze the channel, and nobody had lifted it"),
    "an Unfreeze that names another entry": (UNFREEZE, {"lifts": entry(2)}, UNFREEZE, f"it lifts {entry(2)}, while {entry(FREEZE)} froze"),
    "an Unfreeze that names nothing": (UNFREEZE, {"lifts": None}, UNFREEZE, "it lifts None"),
    "an Unfreeze of nothing": (FREEZE, {"action": "Reject"}, UNFREEZE, f"it lifts {entry(FREEZE)}, while nothing froze"),
    "a Freeze for no reason": (FREEZE, {"reason": "Stale"}, FREEZE, "Stale is no reason to freeze"),
}


def test_the_audit_has_nothing_to_say_of_a_freeze_that_was_lifted() -> None:
    specs = lived()
    assert [str(spec.action) for spec in specs] == ["Open", "Test", "Accept", "Freeze", "Unfreeze", "Promote"]
    assert problems(specs) == ()


@pytest.mark.parametrize("sentence", FORGED)
def test_the_audit_tells_of(sentence: str) -> None:
    at, changes, of, complaint = FORGED[sentence]
    specs = [AdapterReleaseSpec.parse(spec.wire() | changes) if index == at else spec for index, spec in enumerate(lived())]
    mine = [problem for problem in problems(specs) if problem.startswith(name_of(specs[of]))]
    assert any(complaint in problem for problem in mine), mine


def test_what_the_log_said_before_an_entry_counts_for_that_entry() -> None:
    state = LogState(tuple(EntryView(spec, status=None, exported=True) for spec in lived()))  # type: ignore[arg-type]
    held = [before.frozen_by is not None for before in (state.before(sequence) for sequence in range(6))]
    assert held == [False, False, False, False, True, False]


def test_the_condition_holds_its_time_while_the_freeze_lasts() -> None:
    world = opened()
    frozen(world)
    world.run()
    since = condition_of(world.channel_status.conditions, told(world, "Frozen").type)  # type: ignore[arg-type]
    world.now = world.now.replace(hour=22)
    world.run()
    assert since == told(world, "Frozen")
    assert decide(world.view()).actions == ()
