"""Which entry a pod answers the alias from: asked in the background whenever the pod's routes change, until it is the one they name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gatevalve.contracts.errors import ServingError
from gatevalve.contracts.serving import PodReport, Route
from gatevalve.io.clock import Clock
from gatevalve.io.ports import PodAddress, ServingPods

log = logging.getLogger(__name__)

FIRST_SECONDS = 0.5
RETRY_SECONDS = 0.3
LONGEST_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Question:
    """What an answer is valid for: a process of a pod with these routes in force."""

    pod_uid: str
    boot: str
    routes: tuple[Route, ...]


class AliasAnswers:
    """Remembers confirmed answers; asks for the missing ones without making anybody wait."""

    def __init__(self, pods: ServingPods, clock: Clock, confirmed: Callable[[str, str, str], None]) -> None:
        """`confirmed(channel, entry, pod uid)` is told of every new answer that the pod's routes name."""
        self._pods, self._clock, self._confirmed = pods, clock, confirmed
        self._answers: dict[tuple[str, str], tuple[_Question, str]] = {}
        self._asking: dict[tuple[str, str], tuple[_Question, asyncio.Task[None]]] = {}

    def known(self, channel: str, alias: str, address: PodAddress, report: PodReport) -> str | None:
        """The entry that this pod is confirmed to answer from; when that is unknown, asking starts."""
        if not report.routes:
            return None
        key, question = (channel, report.pod_uid), _Question(report.pod_uid, report.boot, report.routes)
        answer = self._answers.get(key)
        if answer is not None and answer[0] == question:
            return answer[1]
        self._ask(key, question, alias, address)
        return None

    async def heard(self, channel: str, alias: str, address: PodAddress, report: PodReport) -> str | None:
        """As `known`, but with a moment's patience for a pod that was never asked.

        An operator that has just started knows no answer, and that must not show as a change of what serves.
        """
        key = (channel, report.pod_uid)
        is_new = key not in self._answers and key not in self._asking
        answer = self.known(channel, alias, address, report)
        if answer is not None or not is_new or key not in self._asking:
            return answer
        await asyncio.wait({self._asking[key][1]}, timeout=FIRST_SECONDS)
        return self.known(channel, alias, address, report)

    def keep_only(self, channel: str, pod_uids: frozenset[str]) -> None:
        """Forget pods that are gone."""
        for key in [key for key in (*self._answers, *self._asking) if key[0] == channel and key[1] not in pod_uids]:
            self._answers.pop(key, None)
            self._stop(key)

    async def close(self) -> None:
        """Stop asking."""
        tasks = [task for _, task in self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, key: tuple[str, str], question: _Question, alias: str, address: PodAddress) -> None:
        asking = self._asking.get(key)
        if asking is not None and asking[0] == question and not asking[1].done():
            return
        self._stop(key)
        self._asking[key] = (question, asyncio.create_task(self._until_confirmed(key, question, alias, address)))

    def _stop(self, key: tuple[str, str]) -> None:
        asking = self._asking.pop(key, None)
        if asking is not None:
            asking[1].cancel()

    async def _until_confirmed(self, key: tuple[str, str], question: _Question, alias: str, address: PodAddress) -> None:
        pause = RETRY_SECONDS
        named = {route.entry for route in question.routes}
        while (entry := await self._one_answer(address, alias)) not in named or entry is None:
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_RETRY_SECONDS)
        self._answers[key] = (question, entry)
        self._confirmed(key[0], entry, question.pod_uid)

    async def _one_answer(self, address: PodAddress, alias: str) -> str | None:
        try:
            return await self._pods.ask_alias(address, alias)
        except ServingError as error:
            log.info("asking %s through %s: %s", address.ip, alias, error)
            return None
