"""Two operators at once, in many interleavings, and one that sleeps while the other goes on: one log, no Job twice, no way back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gatevalve.contracts.serving import PodReport, SignedDocument
from gatevalve.engine.engine import Engine, Ports
from gatevalve.io.ports import ADAPTER_RELEASES, CONFIGMAPS, Cluster, KubeObject, Listing, PodAddress, Resource, ServingPods
from support.candidate_life import STORY, Life, is_quiet, until

pytestmark = pytest.mark.component

T = TypeVar("T")
SCHEDULES = range(25)
Delay = Callable[[str], Awaitable[None]]
"""Waits before and after a call; told which."""


@dataclass(frozen=True)
class SlowCluster:
    """The Kubernetes API on a way that takes its time. Implements `ports.Cluster`."""

    real: Cluster
    delay: Delay

    async def get(self, resource: Resource, name: str) -> KubeObject | None:
        return await self._slowly(f"get {resource.plural}", lambda: self.real.get(resource, name))

    async def list(self, resource: Resource, labels: str = "") -> Listing:
        return await self._slowly(f"list {resource.plural}", lambda: self.real.list(resource, labels))

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> KubeObject:
        return await self._slowly(f"create {resource.plural}", lambda: self.real.create(resource, body))

    async def delete(self, resource: Resource, name: str, uid: str | None = None) -> None:
        await self._slowly(f"delete {resource.plural}", lambda: self.real.delete(resource, name, uid))

    async def apply(self, resource: Resource, body: Mapping[str, Any], manager: str, subresource: str = "") -> KubeObject:
        return await self._slowly(f"apply {resource.plural}", lambda: self.real.apply(resource, body, manager, subresource))

    async def merge(self, resource: Resource, name: str, patch: Mapping[str, Any], subresource: str = "") -> KubeObject:
        return await self._slowly(f"merge {resource.plural}", lambda: self.real.merge(resource, name, patch, subresource))

    async def _slowly(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        await self.delay(what)
        answer = await call()
        await self.delay(f"answer to {what}")
        return answer


@dataclass(frozen=True)
class SlowPods:
    """Serving pods on such a way. Implements `ports.ServingPods`."""

    real: ServingPods
    delay: Delay

    async def put_document(self, pod: PodAddress, signed: SignedDocument) -> PodReport:
        await self.delay("put")
        return await self.real.put_document(pod, signed)

    async def report(self, pod: PodAddress, channel: str, seconds: float) -> PodReport:
        await self.delay("report")
        return await self.real.report(pod, channel, seconds)

    async def next_report(self, pod: PodAddress, channel: str, after: int) -> PodReport:
        return await self.real.next_report(pod, channel, after)

    async def ask_alias(self, pod: PodAddress, alias: str) -> str | None:
        return await self.real.ask_alias(pod, alias)


def slow(real: Ports, delay: Delay) -> Ports:
    """An operator's ports with a way of its own."""
    return replace(real, cluster=SlowCluster(real.cluster, delay), serving=SlowPods(real.serving, delay))


def drawn(seed: int) -> Delay:
    """Delays of up to three milliseconds; half of the calls have none."""
    chance = random.Random(seed)

    async def delay(what: str) -> None:
        await asyncio.sleep(chance.choice((0, 0, 0, 0.0005, 0.001, 0.003)))

    return delay


@pytest.mark.parametrize("seed", SCHEDULES)
async def test_two_operators_at_once_live_one_life(seed: int, tmp_path: Path) -> None:
    life = Life.begin(tmp_path)
    async with AsyncExitStack() as both:
        engines = [await both.enter_async_context(life.operator(slow(life.ports(), drawn(2 * seed + n)))) for n in (0, 1)]
        await life.people()
        await until(lambda: all(is_quiet(engine) for engine in engines), "both are done")
    assert life.actions == STORY
    assert (life.condition("Ready"), life.condition("LogValid")) == ("AsExpected", "AsExpected")
    life.must_be_sound()


# ---- one that sleeps


@dataclass
class Stop:
    """What SIGSTOP and SIGCONT do to one operator: from a certain call on it neither calls nor hears anything, until it wakes."""

    at: str
    armed: bool = False
    asleep: bool = False
    missed: list[tuple[Resource, str | None, KubeObject]] = field(default_factory=list)
    _awake: asyncio.Event = field(default_factory=asyncio.Event)

    async def delay(self, what: str) -> None:
        """Sleep from the call on at which it is to happen."""
        if self.armed and what == self.at:
            self.armed, self.asleep = False, True
        if self.asleep:
            await self._awake.wait()

    def wake(self) -> None:
        """SIGCONT."""
        self.asleep = False
        self._awake.set()


@asynccontextmanager
async def stopped_operator(life: Life, stop: Stop) -> AsyncIterator[Engine]:
    """An operator that this stop can put to sleep; what the watches told meanwhile reaches it when it wakes."""
    async with life.operator(slow(life.ports(), stop.delay)) as engine:
        life.cluster.watchers.remove(engine.saw)
        saw = engine.saw

        def told(resource: Resource, kind: str, thing: KubeObject) -> None:
            if stop.asleep:
                stop.missed.append((resource, kind, thing))
            else:
                saw(resource, kind, thing)

        life.cluster.watchers.append(told)
        try:
            yield engine
        finally:
            life.cluster.watchers.remove(told)
            life.cluster.watchers.append(engine.saw)


SLEEPS = {
    "before the commit of the promotion": "apply configmaps",
    "after it has gathered what it commits": "get configmaps",
    "before it hands the promotion to a pod": "put",
    "before it writes the next entry": "create adapterreleases",
    "before it writes a status": "apply adapterreleases",
}


@pytest.mark.parametrize("sentence", SLEEPS)
async def test_an_operator_that_wakes_after_a_newer_commit_changes_nothing_when_it_slept(sentence: str, tmp_path: Path) -> None:
    life, stop = Life.begin(tmp_path), Stop(SLEEPS[sentence])
    life.open_channel()
    async with stopped_operator(life, stop) as sleeper:
        await until(lambda: life.condition("Ready") == "AsExpected" and is_quiet(sleeper), "the channel is Ready")
        arm = "adapterreleases" if "create" in stop.at else "support-000003"
        life.apply_candidate()
        await until(lambda: arm == "adapterreleases" or (ADAPTER_RELEASES.plural, arm) in life.cluster.objects, "it is time")
        stop.armed = True
        await until(lambda: stop.asleep, "the operator sleeps")
        async with life.operator(life.ports()) as other:
            await until(lambda: life.is_live(3), "the other makes the promotion live")
            life.pin()
            await until(lambda: life.is_live(4) and is_quiet(other), "the other takes it back")
        before = life.cluster.objects[CONFIGMAPS.plural, "gatevalve-pool-support"]["data"]
        stop.wake()
        for missed in stop.missed:
            sleeper.saw(*missed)
        await until(lambda: is_quiet(sleeper), "the sleeper is done")
        await asyncio.sleep(0.05)
    assert life.cluster.objects[CONFIGMAPS.plural, "gatevalve-pool-support"]["data"] == before
    assert life.answering == {"support-000004"}
    assert life.actions == STORY
    life.must_be_sound()
