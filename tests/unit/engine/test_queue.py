"""The queue: each key once at a time, never lost, later and later after failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gatevalve.contracts.errors import ClusterError, ConflictError
from gatevalve.engine.queue import CONFLICTS_TOLD, FREE_TURNS, Backoff, KeyQueue
from support.engine_world import VirtualClock, settle


@asynccontextmanager
async def running(
    work: Callable[[str], Awaitable[float | None]],
    clock: VirtualClock,
    workers: int = 4,
    on_error: Callable[[str], None] = lambda key: None,
) -> AsyncIterator[KeyQueue]:
    queue = KeyQueue(work, clock, workers=workers, jitter=lambda: 1.0, on_error=on_error)
    task = asyncio.create_task(queue.run())
    await settle()
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Gate:
    """Work that takes as long as the test wants."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: set[str] = set()
        self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, key: str) -> float | None:
        assert key not in self.running, f"{key} is worked on twice at a time"
        self.running.add(key)
        self.most = max(self.most, len(self.running))
        self.started.append(key)
        await self.open.wait()
        self.running.discard(key)
        return None


async def test_a_key_added_many_times_is_worked_on_once() -> None:
    gate, clock = Gate(), VirtualClock()
    gate.open.set()
    async with running(gate, clock) as queue:
        for _ in range(5):
            queue.add("a")
        await settle()
        assert gate.started == ["a"]
        assert queue.depth == 0


async def test_a_key_added_while_it_is_worked_on_is_worked_on_once_more_afterwards() -> None:
    gate, clock = Gate(), VirtualClock()
    async with running(gate, clock) as queue:
        queue.add("a")
        await settle()
        queue.add("a")
        queue.add("a")
        await settle()
        assert gate.started == ["a"]
        gate.open.set()
        await settle()
        assert gate.started == ["a", "a"]


async def test_no_more_keys_are_worked_on_at_a_time_than_there_are_workers() -> None:
    gate, clock = Gate(), VirtualClock()
    async with running(gate, clock, workers=2) as queue:
        for key in "abc":
            queue.add(key)
        await settle()
        assert gate.started == ["a", "b"]
        gate.open.set()
        await settle()
        assert sorted(gate.started) == ["a", "b", "c"]
        assert gate.most == 2


async def test_a_failing_key_comes_back_later_and_later_and_starts_over_after_a_success() -> None:
    clock = VirtualClock()
    at: list[float] = []
    failing = True

    async def work(_: str) -> float | None:
        at.append(clock.monotonic())
        if failing:
            raise ClusterError("down")
        return None

    async with running(work, clock) as queue:
        queue.add("a")
        await clock.advance(1.5)
        assert at == pytest.approx([0, 0.1, 0.3, 0.7, 1.5])
        failing = False
        await clock.advance(2)
        failing = True
        queue.add("a")
        await clock.advance(0.1)
        assert at[-2:] == pytest.approx([3.5, 3.6])


def _conflicts(times: int, *then: Exception | None) -> list[Exception | None]:
    return [*[ConflictError("it changed")] * times, *then]


ENDINGS: dict[str, tuple[list[Exception | None], int]] = {
    "four in a row are chance": (_conflicts(CONFLICTS_TOLD - 1, None), 0),
    "the fifth in a row and those after it count": (_conflicts(CONFLICTS_TOLD + 1, None), 2),
    "a success begins the count anew": (_conflicts(CONFLICTS_TOLD - 1, None, *_conflicts(CONFLICTS_TOLD - 1), None), 0),
    "another failure counts as such and begins the count anew": (
        _conflicts(CONFLICTS_TOLD - 1, ClusterError("503"), *_conflicts(CONFLICTS_TOLD - 1), None),
        1,
    ),
}


@pytest.mark.parametrize("sentence", ENDINGS)
async def test_conflicts_count_as_failures_when_they_do_not_end(sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    endings, expected = ENDINGS[sentence]
    left, failed, clock = list(endings), list[str](), VirtualClock()

    async def work(key: str) -> float | None:
        ending = left.pop(0)
        if ending is not None:
            raise ending
        return 0.1 if left else None

    async with running(work, clock, on_error=failed.append) as queue:
        queue.add("a")
        await clock.advance(300)
    assert not left
    assert failed == ["a"] * expected
    assert len([record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]) == expected


async def test_one_failing_key_does_not_stop_another() -> None:
    clock = VirtualClock()
    done: list[str] = []

    async def work(key: str) -> float | None:
        if key == "bad":
            raise RuntimeError("a bug")
        done.append(key)
        return None

    async with running(work, clock) as queue:
        queue.add("bad")
        queue.add("good")
        await settle()
        assert done == ["good"]


@pytest.mark.parametrize(("asked", "expected"), [(5.0, [0, 5, 10]), (None, [0])], ids=["it asks to come back", "it asks for nothing"])
async def test_a_key_comes_back_when_its_work_asks_for_it(asked: float | None, expected: list[float]) -> None:
    clock = VirtualClock()
    at: list[float] = []

    async def work(_: str) -> float | None:
        at.append(clock.monotonic())
        return asked

    async with running(work, clock) as queue:
        queue.add("a")
        await clock.advance(10)
        assert at == expected


async def test_an_added_key_does_not_wait_for_its_later_appointment() -> None:
    clock = VirtualClock()
    at: list[float] = []

    async def work(_: str) -> float | None:
        at.append(clock.monotonic())
        return None

    async with running(work, clock) as queue:
        queue.add_after("a", 60)
        await clock.advance(1)
        queue.add("a")
        await clock.advance(100)
        assert at == [1]


async def test_a_later_appointment_does_not_put_off_an_earlier_one() -> None:
    clock = VirtualClock()
    at: list[float] = []

    async def work(_: str) -> float | None:
        at.append(clock.monotonic())
        return None

    async with running(work, clock) as queue:
        queue.add_after("a", 5)
        queue.add_after("a", 60)
        await clock.advance(100)
        assert at == [5]


async def test_a_key_that_asks_to_come_back_at_once_for_ever_is_slowed_down() -> None:
    clock = VirtualClock()
    turns = 0

    async def work(_: str) -> float | None:
        nonlocal turns
        turns += 1
        return 0

    async with running(work, clock) as queue:
        queue.add("a")
        await settle()
        assert turns == FREE_TURNS + 1
        await clock.advance(60)
        assert turns < FREE_TURNS + 45


async def test_a_key_that_is_stuck_shows_in_the_longest_wait() -> None:
    gate, clock = Gate(), VirtualClock()
    async with running(gate, clock) as queue:
        queue.add_after("later", 300)
        assert queue.longest_wait() == 0
        queue.add("a")
        await clock.advance(130)
        assert queue.longest_wait() == 130


def test_a_pause_is_at_least_half_of_its_bound_and_never_beyond_the_longest() -> None:
    backoff = Backoff(first=0.1, longest=60)
    assert backoff.seconds(1, 0.0) == pytest.approx(0.05)
    assert backoff.seconds(10_000, 0.999) <= 60
