"""When a pod may get traffic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gatevalve.contracts.errors import ContractError
from support.serving import PodRig, RunningPod, SigningKey

pytestmark = pytest.mark.component


async def readiness(pod: RunningPod) -> tuple[int, Any]:
    answer = await pod.client.ask("GET", "/gatevalve/readyz")
    assert answer.json["ready"] is (answer.status == 200)
    return answer.status, answer.json["reasons"]


async def until_ready(pod: RunningPod) -> Any:
    async with asyncio.timeout(5):
        while True:
            status, reasons = await readiness(pod)
            if status == 200:
                return reasons
            await asyncio.sleep(0.01)


async def test_a_pod_without_channels_is_ready_and_says_so(rig: PodRig) -> None:
    async with rig.running() as pod:
        assert await until_ready(pod) == ["no channel document has arrived: no alias is served"]


async def test_a_pod_is_not_ready_before_its_first_token(rig: PodRig) -> None:
    rig.engine.script.generation_status = 503
    async with rig.running() as pod:
        await asyncio.sleep(0.1)
        assert await readiness(pod) == (503, ["the engine has not generated its first token"])
        rig.engine.script.generation_status = 200
        await until_ready(pod)


async def test_a_booting_pod_waits_for_every_channel_in_the_configmap(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    rig.engine.script.load_seconds = 0.3
    (rig.root / "pool" / "support").write_bytes(rig.signed((1, 0), (adapter,), adapter).canonical())
    async with rig.running() as pod:
        await asyncio.sleep(0.15)
        assert await readiness(pod) == (503, ["channel support: its first document is being applied"])
        assert await until_ready(pod) == []
        assert (await pod.chat()).status == 200


async def test_a_booting_pod_with_a_document_it_must_not_believe_is_not_ready(rig: PodRig) -> None:
    (rig.root / "pool" / "support").write_bytes(SigningKey().sign(rig.document((1, 0))).canonical())
    async with rig.running() as pod:
        await asyncio.sleep(0.2)
        status, reasons = await readiness(pod)
    assert (status, [reason.split(":")[1].strip() for reason in reasons]) == (503, ["Unsigned"])


async def test_a_booting_pod_whose_adapter_fails_is_not_ready_and_says_why(rig: PodRig) -> None:
    adapter = rig.adapter(1)
    (rig.data / adapter.uri).rename(rig.root / "away")
    (rig.root / "pool" / "support").write_bytes(rig.signed((1, 0), (adapter,), adapter).canonical())
    async with rig.running() as pod:
        await pod.until(lambda report: report.reason is not None)
        status, reasons = await readiness(pod)
    assert (status, reasons[0].startswith("channel support: AdapterMissing: ")) == (503, True)


async def test_a_failed_promotion_leaves_the_pod_ready_on_the_old_release(rig: PodRig) -> None:
    live, bad = rig.adapter(1), rig.adapter(2)
    rig.engine.script.without_effect = {bad.name}
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await until_ready(pod)
        await pod.put(rig.signed((2, 0), (live, bad), bad))
        await pod.until(lambda report: report.reason == "ProbeFailed")
        assert await readiness(pod) == (200, [])


async def test_a_failed_way_back_makes_the_pod_not_ready_until_it_is_mended(rig: PodRig) -> None:
    old, live = rig.adapter(1), rig.adapter(2)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (old,), old))
        await pod.settled(rig.signed((2, 0), (live, old), live))
        await until_ready(pod)
        rig.engine.script.without_effect = {old.name}
        await pod.until(lambda report: any(adapter.state == "Failed" for adapter in report.adapters))
        await pod.put(rig.signed((3, 0), (old, live), old))
        status, reasons = await readiness(pod)
        assert (status, reasons[0].startswith("channel support: ProbeFailed: ")) == (503, True)
        rig.engine.script.without_effect = set()
        await until_ready(pod)
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000003"


async def test_a_channel_that_joins_later_does_not_take_the_others_away(rig: PodRig) -> None:
    slow = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0), channel="sales", alias="sales"), "sales")
        await until_ready(pod)
        rig.engine.script.load_hangs = True
        await pod.put(rig.signed((1, 0), (slow,), slow))
        await asyncio.sleep(0.1)
        assert await readiness(pod) == (200, [])


async def test_an_engine_that_is_not_healthy_is_not_ready(rig: PodRig) -> None:
    async with rig.running() as pod:
        await until_ready(pod)
        rig.engine.script.healthy = False
        assert await readiness(pod) == (503, ["the engine does not answer its health check"])


async def test_a_base_that_cannot_be_read_is_said_where_people_look(rig: PodRig) -> None:
    rig.engine.state.vllm_config.model_config.model = "org/model-on-a-hub"
    (rig.root / "pool" / "support").write_bytes(rig.signed((0, 0)).canonical())
    async with rig.running() as pod:
        report = await pod.until(lambda report: report.reason is not None)
        status, _ = await readiness(pod)
    assert (status, report.reason) == (503, "BaseMismatch")
    assert "is not a directory of this Pod" in (report.message or "")


async def test_a_data_area_that_takes_no_traffic_stops_the_start_with_the_remedy(rig: PodRig) -> None:
    with pytest.raises(ContractError, match="mount the data area"):
        async with rig.running(data_url="memory://data"):
            pass
