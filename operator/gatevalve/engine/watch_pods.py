"""A watcher for each Pod of a pool: it long-polls the Pod's report and has the channel looked at again when that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from gatevalve.contracts.errors import ServingError
from gatevalve.contracts.serving import PodReport
from gatevalve.decide.view import PodView
from gatevalve.io.clock import Clock
from gatevalve.io.ports import PodAddress, ServingPods

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.3, 5.0
REPORT_SECONDS = 5.0
QUICK_SECONDS, CALM_SECONDS = 0.2, 1.0
"""An unchanged report that comes sooner than QUICK_SECONDS comes from a pod that does not wait: then we do, CALM_SECONDS."""

REQUEUE_SECONDS = 0.2
"""Changes of one pod that come faster are told together: a report that never rests must not make the operator reconcile without rest."""

Key = tuple[str, str]
"""(channel, pod uid)."""


class PodWatchers:
    """Follows every Pod of every channel's pool."""

    def __init__(self, serving: ServingPods, clock: Clock, changed: Callable[[str], None]) -> None:
        """`changed(channel)` is told when a Pod's report changed, or when a Pod answers again."""
        self._serving, self._clock, self._changed = serving, clock, changed
        self._tasks: dict[Key, tuple[PodAddress, asyncio.Task[None]]] = {}

    def follow(self, channel: str, port: int, pods: Iterable[PodView]) -> None:
        """Follow exactly these Pods of a channel from now on."""
        wanted = {(channel, pod.uid): pod for pod in pods if pod.running and pod.ip is not None}
        for key in [key for key in self._tasks if key[0] == channel and key not in wanted]:
            self._stop(key)
        for key, pod in wanted.items():
            self._start(key, PodAddress(pod.ip or "", port), pod.report)

    async def close(self) -> None:
        """Follow no Pod any more."""
        tasks = [task for _, task in self._tasks.values()]
        for key in list(self._tasks):
            self._stop(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Key, address: PodAddress, report: PodReport | None) -> None:
        known = self._tasks.get(key)
        if known is not None and known[0] == address and not known[1].done():
            return
        self._stop(key)
        self._tasks[key] = (address, asyncio.create_task(self._watch(key[0], address, report), name=f"watch {key[0]} on {address.ip}"))

    def _stop(self, key: Key) -> None:
        known = self._tasks.pop(key, None)
        if known is not None:
            known[1].cancel()

    async def _watch(self, channel: str, address: PodAddress, known: PodReport | None) -> None:
        pause, told = FIRST_PAUSE_SECONDS, -REQUEUE_SECONDS
        while True:
            try:
                before, known = known, await self._next(channel, address, known)
                pause = FIRST_PAUSE_SECONDS
                if is_news(before, known):
                    told = await self._tell(channel, told)
            except ServingError as error:
                log.debug("%s on %s: %s", channel, address.ip, error)
                known = None
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _next(self, channel: str, address: PodAddress, known: PodReport | None) -> PodReport:
        """The next report: now when none is known, otherwise once it has changed or the Pod has waited long enough."""
        if known is None:
            return await self._serving.report(address, channel, REPORT_SECONDS)
        started = self._clock.monotonic()
        report = await self._serving.next_report(address, channel, known.progress)
        if not is_news(known, report) and self._clock.monotonic() - started < QUICK_SECONDS:
            await self._clock.sleep(CALM_SECONDS)
        return report

    async def _tell(self, channel: str, told: float) -> float:
        """Have the channel looked at again: at once after a rest, otherwise REQUEUE_SECONDS after it was `told` last. Answers when."""
        rest = told + REQUEUE_SECONDS - self._clock.monotonic()
        if rest > 0:
            await self._clock.sleep(rest)
        self._changed(channel)
        return self._clock.monotonic()


def is_news(before: PodReport | None, report: PodReport) -> bool:
    """The report tells of a change; any does from a Pod that did not answer before."""
    return before is None or (report.boot, report.progress) != (before.boot, before.progress)
