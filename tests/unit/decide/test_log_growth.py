"""A log is kept for good: what is asked of it, and its audit, grow with its length and not with the square of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import pytest

from gatevalve.contracts.reasons import CandidateState
from gatevalve.decide.audit import given_verdicts, log_problems
from gatevalve.decide.channel import decide
from gatevalve.decide.log import LogState, fold
from gatevalve.decide.view import EntryView, LogView, View
from support.world import SimPod, World

SHORT, LONG = 101, 401
GROWTH = 6
"""Four times the entries take about four times the work; with its square it would be sixteen times."""


@pytest.fixture(scope="module")
def world() -> World:
    """A channel whose candidate was rejected."""
    world = World(pods=[SimPod("pod-a")], gain=-0.5)
    world.run()
    world.apply("worse")
    world.run()
    assert world.story() == ["Open:ChannelOpened", "Test:TestOpened", "Reject:PrimaryNotPassed"]
    return world


def long_log(world: World, length: int) -> tuple[EntryView, ...]:
    """The world's log, with its test and its verdict again and again, each of another candidate."""
    entries = world.log[:1]
    while len(entries) < length:
        entries += [_again(entry, len(entries) + more, f"uid-{len(entries)}") for more, entry in enumerate(world.log[1:])]
    return tuple(entries)


def _again(view: EntryView, sequence: int, uid: str) -> EntryView:
    candidate = view.spec.candidate
    assert candidate is not None
    changes = {"sequence": sequence, "candidate": candidate.model_copy(update={"uid": uid})}
    return replace(view, spec=view.spec.model_copy(update=changes))


def long_view(world: World, length: int) -> View:
    """What is gathered of a channel with a long log, and with candidates that have their verdicts in it."""
    candidate = next(iter(world.candidates.values()))
    many = [replace(candidate, meta=replace(candidate.meta, name=f"c{n}", uid=f"uid-{n}")) for n in range(1, length, 2)]
    return replace(world.view(), log=LogView(long_log(world, length)), candidates=tuple(many), evidence=None)


def steps(work: Callable[[], object]) -> int:
    """The bytecode instructions that a piece of work takes: its cost whatever the machine does beside it."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _reconcile(world: World, length: int) -> Callable[[], object]:
    return partial(decide, long_view(world, length))


def _refusal(world: World, length: int) -> Callable[[], object]:
    return partial(decide, replace(long_view(world, length), policy=None))


def _problems(world: World, length: int) -> Callable[[], object]:
    return partial(log_problems, LogState(long_log(world, length)))


def _verdicts(world: World, length: int) -> Callable[[], object]:
    return partial(list, given_verdicts(LogState(long_log(world, length))))


QUESTIONS: dict[str, Callable[[World, int], Callable[[], object]]] = {
    "one reconcile": _reconcile,
    "one reconcile that takes no candidate": _refusal,
    "the problems of a log": _problems,
    "the verdicts of a log": _verdicts,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_cost_grows_with_the_log_and_not_with_its_square(question: str, world: World) -> None:
    short, long = (steps(QUESTIONS[question](world, length)) for length in (SHORT, LONG))
    assert SHORT < short < long <= short * GROWTH, (short, long)


def test_what_a_log_said_before_an_entry_is_what_the_log_up_to_it_says(world: World) -> None:
    log = LogState(long_log(world, 21))
    for length in range(22):
        before, alone = log.before(length), LogState(log.entries[:length])
        assert _told(before) == _told(alone)


def _told(log: LogState) -> tuple[object, ...]:
    uids = [f"uid-{n}" for n in range(22)]
    return (
        (log.entries, log.specs, log.next_sequence, log.live, log.serving, log.channel_uid, log.store_uid, log.incumbent_digest),
        (log.policy, log.policy_digest, log.unapproved, log.open_tests, log.quarantine, log.opening),
        [log.of_candidate(uid, action) for uid in uids for action in type(log.specs[0].action)] if log.specs else [],
        log.next_test(log.policy, log.policy_digest or "", None) if log.policy else None,
        log.serving_entry("support-000000"),
    )


def test_the_same_entries_are_folded_once(world: World) -> None:
    view = LogView(tuple(world.log))
    assert fold(view) is fold(replace(view, external_error="silent"))
    assert fold(view) is not fold(LogView(tuple(world.log)))


def test_candidates_that_wait_are_told_so_once_and_not_again_whenever_another_goes_first() -> None:
    world = World(pods=[SimPod("pod-a")])
    world.run()
    uids = [world.apply(name) for name in ("a", "b", "c", "d")]
    world.reconcile()
    waiting = {uid: world.candidates[uid].status for uid in uids[2:]}
    assert {status.state for status in waiting.values()} == {CandidateState.QUEUED}
    world.delete(uids[0])
    world.reconcile()
    assert {uid: world.candidates[uid].status for uid in uids[2:]} == waiting
