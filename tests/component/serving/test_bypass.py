"""What somebody smuggled into the engine or tried past the aliases: nothing of it answers, and every report tells."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from starlette.types import Message

from gatevalve.contracts.serving import AdapterOnPod, PodReport
from gatevalve_serving.bypass import Bypass
from gatevalve_serving.fetch import local_path
from support.serving import QUICK, PodRig, RunningPod, eventually, lora_config, lora_tensors, write_peft

pytestmark = pytest.mark.component


def smuggle(rig: PodRig, *names: str) -> str:
    """Register a stranger's adapter under some names, as `--lora-modules` or a resolver plug-in does; returns its path."""
    path = rig.root / "stranger"
    if not path.exists():
        write_peft(path, lora_tensors(99), lora_config())
    rig.engine.adapters |= dict.fromkeys(names, str(path))
    return str(path)


def own_path(rig: PodRig, adapter: AdapterOnPod) -> str:
    return str(local_path(rig.root / "cache" / "adapters", "support", adapter))


def states(report: PodReport) -> dict[str, str]:
    return {adapter.name: adapter.state.value for adapter in report.adapters}


def counted(how: str) -> float:
    return REGISTRY.get_sample_value("gatevalve_serving_refused_total", {"reason": how}) or 0.0


async def first_token(pod: RunningPod, **body: Any) -> int:
    reply = await pod.chat(return_token_ids=True, **body)
    assert reply.status == 200, reply.body
    return int(reply.json["choices"][0]["token_ids"][0])


async def test_an_adapter_from_the_engines_command_line_is_in_every_report_and_blocks_nothing_of_ours(rig: PodRig) -> None:
    smuggle(rig, "smuggled")
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
        await pod.settled(rig.signed((1, 0), channel="sales"), "sales")
        for channel in ("support", "sales", "unknown"):
            await pod.until(lambda report: report.foreign_adapters == ("smuggled",), channel)
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000001"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
async def test_a_request_that_names_a_foreign_adapter_is_refused_and_told(rig: PodRig, path: str) -> None:
    smuggle(rig, "smuggled")
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        await pod.until(lambda report: report.foreign_adapters == ("smuggled",))
        answer = await pod.ask("POST", path, {"model": "smuggled", "messages": [], "prompt": "x"})
        report = await pod.report()
    assert (answer.status, answer.json["error"]["param"]) == (404, "model")
    assert "smuggled" not in {body["model"] for body in rig.engine.asked}
    assert report.refused is not None
    assert report.refused.message == f"POST {path}: an adapter's own name as model"


async def test_an_adapter_that_comes_and_goes_while_the_pod_runs_wakes_a_long_poll_each_time(rig: PodRig) -> None:
    async with rig.running() as pod:
        report = await pod.settled(rig.signed((0, 0)))
        for change, expected in ((lambda: smuggle(rig, "late"), ("late",)), (rig.engine.adapters.clear, ())):
            asked = asyncio.create_task(pod.ask("GET", "/gatevalve/v1/channels/support", query=f"after={report.progress}&wait=20"))
            await asyncio.sleep(0.15)
            assert not asked.done()
            change()
            report = (await asyncio.wait_for(asked, 5)).report
            assert report.foreign_adapters == expected


async def test_however_many_and_however_named_foreign_adapters_are_the_report_stays_a_report(rig: PodRig) -> None:
    smuggle(rig, *(f"n{number:03d}" for number in range(40)), "\u202eodd\n" + "x" * 500)
    async with rig.running() as pod:
        report = await pod.until(lambda report: len(report.foreign_adapters) == 16)
    assert report.foreign_adapters[0] == "n000"
    rig.engine.adapters.clear()
    smuggle(rig, "\u202eodd\n" + "x" * 500)
    async with rig.running() as pod:
        report = await pod.until(lambda report: len(report.foreign_adapters) == 1)
    assert report.foreign_adapters == ("?odd?" + "x" * 195 + "...",)


async def test_loads_drains_and_unloads_of_our_own_never_look_foreign(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, timing=replace(QUICK, registry=0.002))
    adapters, seen = [rig.adapter(seed) for seed in (1, 2, 3)], set[tuple[str, ...]]()
    rig.engine.script.load_seconds, rig.engine.script.step_seconds = 0.02, 0.005
    async with rig.running() as pod:

        async def watch() -> None:
            while True:
                seen.add((await pod.report()).foreign_adapters)
                await asyncio.sleep(0.001)

        async def ask() -> None:
            while True:
                await pod.chat(stream=True, max_tokens=5)

        await pod.settled(rig.signed((0, 0)))
        tasks = [asyncio.create_task(work()) for work in (watch, ask, ask)]
        for swap in range(1, 10):
            await pod.settled(rig.signed((swap, 0), (adapters[swap % 3],), adapters[swap % 3]))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(line.startswith("unload") for line in rig.engine.log) > 5
    assert seen == {()}


async def test_a_load_that_was_given_up_and_arrives_all_the_same_is_ours_and_goes_with_its_document(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, timing=replace(QUICK, load=0.05, retry_first=60, retry_longest=60))
    adapter = rig.adapter(1)
    rig.engine.script.load_seconds, rig.engine.script.load_outlives_its_caller = 0.3, True
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        await pod.until(lambda report: states(report) == {adapter.name: "Failed"})
        await eventually(lambda: adapter.name in rig.engine.adapters)
        await asyncio.sleep(0.2)
        assert (await pod.report()).foreign_adapters == ()
        await pod.put(rig.signed((2, 0)))
        await pod.until(lambda report: not report.adapters)
    assert rig.engine.adapters == {}


async def test_an_engine_full_of_foreign_adapters_has_places_for_ours(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, max_cpu_loras=2)
    smuggle(rig, "one", "two", "three")
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))


async def test_a_foreign_adapter_under_our_name_fails_our_load_and_never_answers(rig: PodRig) -> None:
    live, taken = rig.adapter(1), rig.adapter(2)
    stranger = smuggle(rig, taken.name)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await pod.put(rig.signed((2, 0), (live, taken), taken))
        report = await pod.until(lambda report: states(report).get(taken.name) == "Failed" and bool(report.foreign_adapters))
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000001"
        assert (report.committed, report.reason, report.foreign_adapters) == (False, "LoadFailed", (taken.name,))
        assert f"the engine has another adapter named {taken.name}, from {stranger}" in (report.message or "")
        assert (rig.engine.log, rig.engine.adapters[taken.name]) == ([f"load {live.name}"], stranger)
        del rig.engine.adapters[taken.name]
        await pod.until(lambda report: report.committed and report.foreign_adapters == ())
    assert taken.name not in {body["model"] for body in rig.engine.asked}


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced by a foreign one", "unloaded"])
async def test_an_adapter_that_somebody_takes_away_from_under_the_alias_is_loaded_anew(tmp_path: Path, replaced: bool) -> None:
    """One that was replaced does not wait for the next probe."""
    rig = PodRig(tmp_path, timing=replace(QUICK, probe=60) if replaced else QUICK)
    live = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        before = await first_token(pod)
        if replaced:
            smuggle(rig, live.name)
        else:
            del rig.engine.adapters[live.name]
        await eventually(lambda: rig.engine.log.count(f"load {live.name}") == 2)
        await pod.until(lambda report: states(report) == {live.name: "Verified"} and report.foreign_adapters == ())
        assert await first_token(pod) == before
    assert rig.engine.adapters == {live.name: own_path(rig, live)}


async def test_a_foreign_adapter_named_like_the_alias_does_not_answer_it(rig: PodRig) -> None:
    live = rig.adapter(1)
    smuggle(rig, "support")
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await pod.chat()
    assert rig.engine.asked[-1]["model"] == live.name


def parts(kind: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": kind, "uuid": "u", "tool_reference": 1, "name": "x"}]}]


@pytest.mark.parametrize("suffix", ["", "_url"])
async def test_a_content_part_does_not_choose_an_adapter_where_the_base_serves(rig: PodRig, suffix: str) -> None:
    """vLLM lets the type of a content part choose an adapter when the base is asked."""
    beside = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0), (beside,)))
        base = await first_token(pod)
        answer = await pod.chat(messages=parts(beside.name + suffix))
        report = await pod.report()
        assert (await pod.chat(messages=parts("support-3f2a9c1d"))).status == 400, "one that may be loaded the next moment"
        assert await first_token(pod, messages=parts("image_url")) == base
    assert (answer.status, answer.json["error"]["param"]) == (400, "messages")
    assert report.refused is not None
    assert "content part" in report.refused.message


async def test_a_foreign_adapter_named_like_a_content_type_answers_nobody(rig: PodRig) -> None:
    smuggle(rig, "text")
    live = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        await pod.settled(rig.signed((0, 0), channel="sales"), "sales")
        await pod.until(lambda report: report.foreign_adapters == ("text",))
        assert (await pod.chat("sales", messages=parts("image_url"))).status == 400
        plain = await pod.chat("sales")
        assert (plain.status, plain.headers["x-gatevalve-release"]) == (200, "sales-000000")
        assert (await pod.chat(messages=parts("image_url"))).headers["x-gatevalve-release"] == "support-000001"


SECRET = "nobody-may-read-this"
TRIES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "a load": ("POST", "/v1/load_lora_adapter", {}, "adapter_route"),
    "an unload": ("POST", "/v1/unload_lora_adapter", {}, "adapter_route"),
    "a load with another method": ("PUT", "/v1/load_lora_adapter", {}, "adapter_route"),
    "SageMaker's load": ("POST", "/adapters", {}, "adapter_route"),
    "SageMaker's unload": ("DELETE", "/adapters/support-3f2a9c1d", {}, "adapter_route"),
    "SageMaker's invocation": ("POST", "/invocations", {}, "adapter_route"),
    "a call to the engine's workers": ("POST", "/collective_rpc", {}, "adapter_route"),
    "a load behind doubled slashes": ("POST", "//v1//load_lora_adapter/", {}, "adapter_route"),
    "a load in capitals": ("POST", "/V1/LOAD_LORA_ADAPTER", {}, "adapter_route"),
    "a load that is encoded twice": ("POST", "/v1/%6Coad_lora_adapter", {}, "adapter_route"),
    "a load behind dots": ("POST", "/health/../v1/load_lora_adapter", {}, "adapter_route"),
    "a load in absolute form": ("POST", "http://x/v1/load_lora_adapter", {}, "adapter_route"),
    "a load below a prefix": ("POST", "/prefix/v1/load_lora_adapter", {}, "adapter_route"),
    "SageMaker's header": ("POST", "/v1/chat/completions", {"x-amzn-sagemaker-adapter-identifier": "a"}, "adapter_header"),
    "SageMaker's header on health": ("GET", "/health", {"x-amzn-sagemaker-adapter-alias": "a"}, "adapter_header"),
    "SageMaker's header on an unknown path": ("POST", "/v1/responses", {"x-amzn-sagemaker-adapter-alias": "a"}, "adapter_header"),
}


@pytest.mark.parametrize(("method", "path", "headers", "reason"), TRIES.values(), ids=TRIES.keys())
async def test_what_tries_to_get_at_adapters_is_refused_counted_and_in_every_report(
    rig: PodRig, method: str, path: str, headers: dict[str, str], reason: str
) -> None:
    before = counted(reason)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        answer = await pod.ask(method, path, {"model": "support", "lora_name": SECRET, "lora_path": SECRET}, headers, query=SECRET)
        reports = [await pod.report(), await pod.report("sales")]
        assert (await pod.chat()).headers["x-gatevalve-release"] == "support-000000"
    assert answer.status in (400, 404)
    assert counted(reason) == before + 1
    assert reports[0].refused is not None
    assert reports[0].refused == reports[1].refused
    assert reports[0].refused.message.startswith(f"{method} {path}: ")
    assert SECRET not in reports[0].refused.message
    assert rig.engine.log == []


NO_TRIES: dict[str, tuple[str, str, Any]] = {
    "an unknown path": ("POST", "/v1/embeddings", {"model": "support"}),
    "an unknown model": ("POST", "/v1/chat/completions", {"model": "gpt-4", "messages": []}),
    "the base's name": ("POST", "/v1/chat/completions", {"model": "tiny", "messages": []}),
    "no model": ("POST", "/v1/completions", {"prompt": "x"}),
    "a model that is no text": ("POST", "/v1/completions", {"model": ["support-3f2a9c1d"]}),
    "a chat": ("POST", "/v1/chat/completions", {"model": "support", "messages": []}),
    "a channel named like a route": ("GET", "/gatevalve/v1/channels/adapters", None),
}


@pytest.mark.parametrize(("method", "path", "body"), NO_TRIES.values(), ids=NO_TRIES.keys())
async def test_ordinary_mistakes_are_nobodys_attempt(rig: PodRig, method: str, path: str, body: Any) -> None:
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        await pod.ask(method, path, body)
        assert (await pod.report()).refused is None


@pytest.mark.parametrize("name", ["THE ADAPTER", "support-3f2a9c1d"], ids=["one on the pod", "one that a channel might have"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
async def test_an_adapters_own_name_as_model_is_an_attempt(rig: PodRig, path: str, name: str) -> None:
    live, before = rig.adapter(1), counted("adapter_name")
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (live,), live))
        asked = {"model": live.name if name == "THE ADAPTER" else name, "messages": [], "prompt": "x"}
        assert (await pod.ask("POST", path, asked)).status == 404
        report = await pod.report()
    assert report.refused is not None
    assert report.refused.message == f"POST {path}: an adapter's own name as model"
    assert counted("adapter_name") == before + 1


async def test_a_websocket_is_an_attempt(rig: PodRig) -> None:
    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        assert message["type"] == "websocket.close"

    async with rig.running() as pod:
        await pod.client.app({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send)
        report = await pod.report()
    assert report.refused is not None
    assert report.refused.message == "WEBSOCKET /v1/realtime: a websocket"


@pytest.mark.parametrize(("given", "told"), [("key", True), ("another", False), (None, False)])
async def test_where_a_key_is_asked_for_only_the_attempt_of_somebody_who_has_it_is_told(
    tmp_path: Path, given: str | None, told: bool
) -> None:
    rig, before = PodRig(tmp_path, api_key="key"), counted(Bypass.ROUTE)
    async with rig.running() as pod:
        headers = {"authorization": f"Bearer {given}"} if given else {}
        assert (await pod.client.ask("POST", "/v1/load_lora_adapter", {}, headers)).status == 404
        assert ((await pod.report()).refused is not None) is told
    assert counted(Bypass.ROUTE) == before + 1


async def test_long_and_odd_paths_are_cut_and_printable(rig: PodRig) -> None:
    async with rig.running() as pod:
        await pod.ask("P\x1b" * 50, "/adapters/\n\u202e\ud800é\x00" + "x" * 10_000, None)
        report = await pod.report()
    assert report.refused is not None
    assert report.refused.message == (
        "P?" * 8 + "... /adapters/?????" + "x" * (120 - len("/adapters/?????")) + "...: a route that loads, unloads or chooses adapters"
    )


async def test_a_flood_of_attempts_changes_the_reports_once_and_is_counted_in_full(rig: PodRig) -> None:
    before = counted(Bypass.ROUTE)
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        await pod.until(lambda report: report.base_digest is not None)
        await asyncio.sleep(0.2)
        progress = (await pod.report()).progress
        for number in range(200):
            await pod.ask("POST", f"/adapters/{number}")
        await asyncio.sleep(0.2)
        report = await pod.report()
    assert report.progress == progress + 1
    assert report.refused is not None
    assert report.refused.message.startswith("POST /adapters/199: ")
    assert counted(Bypass.ROUTE) == before + 200


async def test_what_was_not_told_at_once_is_told_when_its_time_comes(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, timing=replace(QUICK, tell_refused=0.5))
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0)))
        await pod.until(lambda report: report.base_digest is not None)
        await asyncio.sleep(0.2)
        await pod.ask("POST", "/adapters")
        report = await pod.report()
        await pod.ask("POST", "/invocations")
        answer = await pod.ask("GET", "/gatevalve/v1/channels/support", query=f"after={report.progress}&wait=10")
    assert answer.report.progress == report.progress + 1
    assert answer.report.refused is not None
    assert answer.report.refused.message.startswith("POST /invocations: ")
