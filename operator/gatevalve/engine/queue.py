"""A queue of keys: each waits at most once, is worked on by one worker at a time, and comes back after failures, later and later."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gatevalve.contracts.errors import ConflictError
from gatevalve.io.clock import Clock

log = logging.getLogger(__name__)

Reconcile = Callable[[str], Awaitable[float | None]]
"""Works on a key; answers after how many seconds to look again (0 = at once, None = when something happens)."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential pauses in seconds, each drawn between a half and the whole of its bound."""

    first: float = 0.1
    longest: float = 60.0

    def seconds(self, failures: int, jitter: float) -> float:
        """The pause after some failures in a row; jitter in [0, 1)."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 32)) * (0.5 + jitter / 2)


HOT = Backoff(first=0.05, longest=2.0)
CONFLICTS_TOLD = 5
"""From so many in a row on, conflicts are no chance: somebody or something keeps what is decided from being done."""

FREE_TURNS = 5
"""Requeues at once that a key gets in a row before it has to pause: a plan that never settles must not take the whole CPU."""


class KeyQueue:
    """Keys that are due, now or later. An added key that is being worked on is worked on once more afterwards."""

    def __init__(
        self,
        reconcile: Reconcile,
        clock: Clock,
        workers: int = 4,
        backoff: Backoff | None = None,
        jitter: Callable[[], float] = random.random,
        on_error: Callable[[str], None] = lambda key: None,
    ) -> None:
        """Take the work and the clock; `run` starts it. `on_error` is told of failures, and of conflicts when they do not end."""
        self._reconcile, self._clock, self._workers, self._jitter, self._on_error = reconcile, clock, workers, jitter, on_error
        self._backoff = backoff or Backoff()
        self._due: dict[str, float] = {}
        self._active: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._conflicts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()

    def add(self, key: str) -> None:
        """The key is due now."""
        self.add_after(key, 0)

    def add_after(self, key: str, seconds: float) -> None:
        """The key is due in some seconds, or sooner if it was already."""
        due = self._clock.monotonic() + seconds
        self._due[key] = min(due, self._due.get(key, due))
        self._wake.set()

    @property
    def depth(self) -> int:
        """Keys that are due now or being worked on."""
        now = self._clock.monotonic()
        return sum(due <= now for due in self._due.values()) + len(self._active)

    def longest_wait(self) -> float:
        """Seconds since the oldest key that is due or being worked on became so; 0 when there is none."""
        now = self._clock.monotonic()
        return max([0.0, *(now - since for since in (*self._due.values(), *self._active.values()))])

    async def run(self) -> None:
        """Work until cancelled; then the running work is cancelled too."""
        try:
            while True:
                self._wake.clear()
                self._start_due()
                await self._wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        ready = sorted((due, key) for key, due in self._due.items() if due <= now and key not in self._active)
        for _, key in ready[: self._workers - len(self._active)]:
            del self._due[key]
            self._active[key] = now
            task = asyncio.create_task(self._work(key), name=f"reconcile {key}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _wait(self) -> None:
        """Until something is added or finishes, or the next key becomes due."""
        now = self._clock.monotonic()
        later = [due - now for key, due in self._due.items() if key not in self._active and due > now]
        waits: set[asyncio.Task[Any]] = {asyncio.create_task(self._wake.wait())}
        if later:
            waits.add(asyncio.create_task(self._clock.sleep(min(later))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()

    async def _work(self, key: str) -> None:
        try:
            again = await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 - one failing key must not stop the others; it is logged and counted
            self._failed(key, error)
        else:
            self._failures.pop(key, None)
            self._conflicts.pop(key, None)
            self._come_back(key, again)
        finally:
            del self._active[key]
            self._wake.set()

    def _failed(self, key: str, error: Exception) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = self._backoff.seconds(failures, self._jitter())
        if isinstance(error, ConflictError):
            self._met_conflict(key, pause, error)
        else:
            self._conflicts.pop(key, None)
            self._on_error(key)
            log.error("%s: failed %d times, looking again in %.1f s: %s", key, failures, pause, error, exc_info=error)
        self.add_after(key, pause)

    def _met_conflict(self, key: str, pause: float, error: ConflictError) -> None:
        conflicts = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        if conflicts < CONFLICTS_TOLD:
            log.info("%s: something changed meanwhile, looking again in %.2f s: %s", key, pause, error)
            return
        self._on_error(key)
        log.warning("%s: something changed meanwhile %d times in a row, looking again in %.2f s: %s", key, conflicts, pause, error)

    def _come_back(self, key: str, again: float | None) -> None:
        if again is None or again > 0:
            self._turns.pop(key, None)
        if again is None:
            return
        self.add_after(key, again or self._hot_pause(key))

    def _hot_pause(self, key: str) -> float:
        turns = self._turns[key] = self._turns.get(key, 0) + 1
        return HOT.seconds(turns - FREE_TURNS, self._jitter()) if turns > FREE_TURNS else 0.0
