"""Pods are followed: a change is told at once, silence is borne, and nobody is asked in a hot loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gatevalve.contracts.serving import PodReport
from gatevalve.decide.view import PodView
from gatevalve.engine.watch_pods import PodWatchers
from gatevalve.io.ports import PodAddress
from support.engine_world import FakePod, FakePods, VirtualClock, settle, signer


@dataclass
class Scene:
    clock: VirtualClock
    pods: FakePods
    pod: FakePod
    told: list[str] = field(default_factory=list)
    watchers: PodWatchers = field(init=False)

    def __post_init__(self) -> None:
        self.watchers = PodWatchers(self.pods, self.clock, self.told.append)

    def follow(self, known: bool = True, ip: str = "10.0.0.1") -> None:
        report = self.pod.report("support") if known else None
        self.watchers.follow("support", 8000, [PodView("pod", self.pod.uid, ip, running=True, ready=True, report=report)])


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock, pod = VirtualClock(), FakePod("pod", "10.0.0.1", "uid")
    scene = Scene(clock, FakePods(signer(tmp_path), clock, {pod.ip: pod}), pod)
    yield scene
    await scene.watchers.close()


async def test_a_change_of_the_report_is_told_once(scene: Scene) -> None:
    scene.follow()
    await settle()
    assert scene.told == []
    scene.pod.bump()
    await settle()
    assert scene.told == ["support"]


async def test_a_pod_whose_report_never_rests_is_told_a_few_times_a_second_and_a_change_after_a_rest_at_once(scene: Scene) -> None:
    scene.follow()
    for _ in range(100):
        scene.pod.bump()
        await scene.clock.advance(0.01)
    assert 4 <= len(scene.told) <= 6
    await scene.clock.advance(5)
    before = len(scene.told)
    scene.pod.bump()
    await settle()
    assert len(scene.told) == before + 1


async def test_a_change_between_the_gather_and_the_first_poll_is_told(scene: Scene) -> None:
    scene.follow()
    scene.pod.bump()
    await settle()
    assert scene.told == ["support"]


async def test_following_again_changes_nothing(scene: Scene) -> None:
    scene.follow()
    await settle()
    scene.follow()
    scene.pod.bump()
    await settle()
    assert scene.told == ["support"]


async def test_a_pod_that_answers_for_the_first_time_is_told(scene: Scene) -> None:
    scene.pod.down = True
    scene.follow(known=False)
    await scene.clock.advance(20)
    assert scene.told == []
    scene.pod.down = False
    await scene.clock.advance(5)
    assert scene.told == ["support"]


async def test_a_pod_that_restarts_is_told(scene: Scene) -> None:
    scene.pod.bump()
    scene.follow()
    await settle()
    scene.pod.restart()
    await scene.clock.advance(1)
    assert scene.told == ["support"]


async def test_a_pod_that_is_gone_is_not_followed_any_more(scene: Scene) -> None:
    scene.follow()
    await settle()
    scene.watchers.follow("support", 8000, [])
    scene.pod.bump()
    await settle()
    assert scene.told == []


async def test_the_pods_of_another_channel_stay_followed(scene: Scene) -> None:
    scene.follow()
    await settle()
    scene.watchers.follow("other", 8000, [])
    scene.pod.bump()
    await settle()
    assert scene.told == ["support"]


class ImpatientPods(FakePods):
    """Pods that do not wait when long-polled."""

    polls = 0

    async def next_report(self, pod: PodAddress, channel: str, after: int) -> PodReport:
        self.polls += 1
        return await self.report(pod, channel, 5.0)


async def test_a_pod_that_does_not_wait_is_asked_once_a_second(tmp_path: Path) -> None:
    clock, pod = VirtualClock(), FakePod("pod", "10.0.0.1", "uid")
    pods = ImpatientPods(signer(tmp_path), clock, {pod.ip: pod})
    scene = Scene(clock, pods, pod)
    scene.follow()
    await clock.advance(10)
    assert 9 <= pods.polls <= 12
    await scene.watchers.close()


async def test_a_pod_that_is_down_is_asked_less_and_less_often(scene: Scene) -> None:
    scene.pod.down = True
    asked = 0
    reached = scene.pods._reached

    async def counted(address: PodAddress, seconds: float) -> FakePod:
        nonlocal asked
        asked += 1
        return await reached(address, seconds)

    scene.pods._reached = counted  # type: ignore[method-assign]
    scene.follow(known=False)
    await scene.clock.advance(60)
    assert asked < 20
