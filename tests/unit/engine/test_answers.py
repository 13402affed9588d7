"""Answers through the alias: asked in the background when routes change, remembered while they stay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gatevalve.contracts.serving import ChannelDocument, Route
from gatevalve.engine.answers import AliasAnswers
from gatevalve.io.ports import PodAddress
from gatevalve.io.signing import Signer
from support.engine_world import DIGEST, FakePod, FakePods, VirtualClock, settle, signer

ADDRESS = PodAddress("10.0.0.1", 8000)


@dataclass
class Scene:
    clock: VirtualClock
    key: Signer
    pods: FakePods
    pod: FakePod
    confirmed: list[tuple[str, str, str]] = field(default_factory=list)
    answers: AliasAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.answers = AliasAnswers(self.pods, self.clock, lambda *told: self.confirmed.append(told))

    def known(self) -> str | None:
        return self.answers.known("support", "support", ADDRESS, self.pod.report("support"))

    def hold(self, entry: str, sequence: int) -> None:
        document = ChannelDocument(
            namespace="team",
            pool="support",
            channel="support",
            uid="u",
            base_name="tiny",
            base_digest=DIGEST,
            key_id=self.key.key_id,
            revision=(sequence, 0),
            alias="support",
            routes=(Route(entry=entry),),
        )
        self.pod.held = self.key.sign_document(document)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock, key, pod = VirtualClock(), signer(tmp_path), FakePod("pod", "10.0.0.1", "uid")
    scene = Scene(clock, key, FakePods(key, clock, {pod.ip: pod}), pod)
    scene.hold("support-000001", 1)
    yield scene
    await scene.answers.close()


async def test_an_answer_is_unknown_until_the_pod_has_been_asked_and_then_remembered(scene: Scene) -> None:
    assert scene.known() is None
    await settle()
    assert scene.known() == "support-000001"
    assert scene.known() == "support-000001"
    assert scene.pods.asked == ["pod"]
    assert scene.confirmed == [("support", "support-000001", "uid")]


async def test_nobody_waits_for_an_engine_that_is_busy_and_it_is_asked_again(scene: Scene) -> None:
    scene.pod.answers = False
    assert scene.known() is None
    await scene.clock.advance(1)
    assert scene.known() is None
    scene.pod.answers = True
    await scene.clock.advance(5)
    assert scene.known() == "support-000001"


async def test_other_routes_are_asked_for_anew(scene: Scene) -> None:
    scene.known()
    await settle()
    scene.hold("support-000002", 2)
    assert scene.known() is None
    await settle()
    assert scene.known() == "support-000002"


async def test_a_restarted_process_is_asked_anew(scene: Scene) -> None:
    scene.known()
    await settle()
    scene.pod.boot = "boot-2"
    assert scene.known() is None


async def test_a_pod_without_routes_is_not_asked(scene: Scene) -> None:
    scene.pod.held = None
    assert scene.known() is None
    await settle()
    assert scene.pods.asked == []


async def test_an_answer_that_the_routes_do_not_name_is_no_answer(scene: Scene) -> None:
    report = scene.pod.report("support")
    scene.hold("support-000009", 9)
    assert scene.answers.known("support", "support", ADDRESS, report) is None
    await settle()
    assert scene.confirmed == []


async def test_a_pod_that_is_gone_is_forgotten(scene: Scene) -> None:
    scene.known()
    await settle()
    scene.answers.keep_only("support", frozenset())
    assert scene.known() is None
