"""What clients may ask, and that they see the engine's own answer under the alias."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from gatevalve.contracts.kinds import Capture
from support.serving import Answer, PodRig, RunningPod

pytestmark = pytest.mark.component

CAPTURED = Capture(enabled=True, segment_seconds=60)


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[RunningPod]:
    """A pod whose alias `support` answers from an adapter, captured."""
    rig = PodRig(tmp_path)
    adapter = rig.adapter(1)
    async with rig.running() as running:
        await running.settled(rig.signed((1, 0), (adapter,), adapter, capture=CAPTURED))
        yield running


def engine_of(pod: RunningPod) -> Any:
    return pod.client.app.app  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/v1/unload_lora_adapter"),
        ("GET", "/v1/load_lora_adapter"),
        ("POST", "/adapters"),
        ("POST", "/invocations"),
        ("GET", "/v1/models/"),
        ("DELETE", "/gatevalve/v1/channels/support"),
    ],
)
async def test_what_is_not_on_the_list_never_reaches_the_engine(pod: RunningPod, method: str, path: str) -> None:
    before = list(engine_of(pod).log)
    answer = await pod.ask(method, path, {"model": "support", "lora_name": "x", "lora_path": "/tmp"})
    assert (answer.status, answer.json["error"]["code"], answer.json["error"]["type"]) == (404, 404, "NotFoundError")
    assert engine_of(pod).log == before


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
@pytest.mark.parametrize("model", ["tiny", "ADAPTER", "no-such", "", None, ["support"], {"a": 1}, 7], ids=str)
async def test_only_an_alias_is_a_model(pod: RunningPod, path: str, model: Any) -> None:
    name = next(iter(engine_of(pod).adapters)) if model == "ADAPTER" else model
    answer = await pod.ask("POST", path, {"model": name, "messages": [], "prompt": "x"})
    assert (answer.status, answer.json["error"]["param"]) == (404, "model")
    assert "valid: support" in answer.json["error"]["message"]


async def test_a_missing_model_is_not_guessed(pod: RunningPod) -> None:
    assert (await pod.ask("POST", "/v1/chat/completions", {"messages": []})).status == 404


async def test_of_two_models_in_one_body_the_engine_sees_none_but_ours(pod: RunningPod) -> None:
    raw = b'{"model": "tiny", "messages": [], "model": "support"}'
    assert (await pod.ask("POST", "/v1/chat/completions", raw)).status == 200
    assert engine_of(pod).asked[-1]["model"] == next(iter(engine_of(pod).adapters))


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000, b'{"a":' * 50_000, b'{"a":' + b"9" * 5000 + b"}"], ids=range(8)
)
async def test_a_body_that_is_no_object_is_a_bad_request(pod: RunningPod, raw: bytes) -> None:
    assert (await pod.ask("POST", "/v1/completions", raw)).status == 400


@pytest.mark.parametrize("name", ["x-amzn-sagemaker-adapter-identifier", "x-amzn-sagemaker-adapter-alias"])
async def test_sagemakers_adapter_header_is_refused(pod: RunningPod, name: str) -> None:
    assert (await pod.ask("POST", "/v1/chat/completions", {"model": "support"}, {name: "a"})).status == 400


async def test_websockets_are_closed_before_they_open(pod: RunningPod) -> None:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        said.append(message)

    await pod.client.app({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send)
    assert [message["type"] for message in said] == ["websocket.close"]


async def test_models_are_the_aliases(pod: RunningPod) -> None:
    listed = (await pod.ask("GET", "/v1/models")).json
    assert (listed["object"], [card["id"] for card in listed["data"]]) == ("list", ["support"])


async def test_health_and_metrics_are_the_engines(pod: RunningPod) -> None:
    assert (await pod.ask("GET", "/health")).status == 200
    assert (await pod.ask("GET", "/metrics")).json == "vllm:metrics"


async def test_tokenize_is_asked_of_what_serves_the_alias(pod: RunningPod) -> None:
    answer = await pod.ask("POST", "/tokenize", {"model": "support", "prompt": "x"})
    assert answer.json == {"count": 3, "tokens": [1, 2, 3]}
    assert engine_of(pod).asked[-1] == {"model": next(iter(engine_of(pod).adapters)), "prompt": "x"}


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "a chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "two chats at once": ("/v1/chat/completions", {"messages": [], "n": 2}),
    "a chat with log-probabilities": ("/v1/chat/completions", {"messages": [], "logprobs": True}),
    "a chat with token ids": ("/v1/chat/completions", {"messages": [], "return_token_ids": True}),
    "a completion": ("/v1/completions", {"prompt": "x", "temperature": 0}),
    "a completion with no log-probabilities but the sampled": ("/v1/completions", {"prompt": "x", "logprobs": 0}),
    "two completions with everything": ("/v1/completions", {"prompt": "x", "n": 2, "logprobs": 2, "return_token_ids": True}),
}


def without_id(answer: Answer, stream: bool) -> Any:
    payloads = answer.events if stream else [answer.json]
    return [{key: value for key, value in payload.items() if key != "id"} for payload in payloads]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "body"), ASKED.values(), ids=ASKED.keys())
async def test_captured_or_not_the_client_sees_what_the_engine_says_without_us_but_for_the_alias(
    pod: RunningPod, path: str, body: dict[str, Any], stream: bool
) -> None:
    asked = {"model": "support", "stream": stream, **body}
    captured = await pod.ask("POST", path, asked)
    plain = await pod.ask("POST", path, asked, {"x-gatevalve-probe": "1"})
    assert {payload["model"] for payload in without_id(captured, stream)} == {"support"}
    assert without_id(captured, stream) == without_id(plain, stream)
    assert captured.headers["x-gatevalve-release"] == plain.headers["x-gatevalve-release"] == "support-000001"
    assert int(captured.headers.get("content-length", len(captured.body))) == len(captured.body)


async def test_a_stream_comes_event_by_event_not_all_at_its_end(pod: RunningPod) -> None:
    answer = await pod.chat(stream=True, max_tokens=6)
    assert len(answer.chunks) == len(answer.events) + 1


async def test_an_error_of_the_engine_names_the_alias_and_not_the_adapter(pod: RunningPod) -> None:
    engine = engine_of(pod)
    engine.script.generation_status = 400
    answer = await pod.chat()
    assert (answer.status, answer.json["error"]["message"]) == (400, "The model `support` does not exist.")


async def test_a_client_cannot_choose_the_id_of_its_reply(pod: RunningPod) -> None:
    body = {"model": "support", "messages": [], "request_id": "mine"}
    answers = [await pod.ask("POST", "/v1/chat/completions", body, {"x-request-id": "mine"}) for _ in range(2)]
    ids = {answer.json["id"] for answer in answers}
    assert len(ids) == 2
    assert not any("mine" in name for name in ids)


async def test_a_client_that_hangs_up_is_no_longer_in_flight(pod: RunningPod) -> None:
    engine_of(pod).script.step_seconds = 0.02
    with contextlib.suppress(OSError):
        await pod.ask("POST", "/v1/chat/completions", {"model": "support", "messages": [], "stream": True, "max_tokens": 20}, gone_after=3)
    assert sum(adapter.in_flight for adapter in (await pod.report()).adapters) == 0


async def test_an_alias_that_is_being_brought_up_asks_for_patience(tmp_path: Path) -> None:
    rig = PodRig(tmp_path)
    adapter = rig.adapter(1)
    rig.engine.script.load_seconds = 1
    async with rig.running() as pod:
        await pod.put(rig.signed((1, 0), (adapter,), adapter))
        answer = await pod.chat()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


LOCKED = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("GET", "/v1/models"),
    ("POST", "/v1/feedback"),
    ("GET", "/gatevalve/v1/channels"),
    ("GET", "/gatevalve/v1/channels/support"),
    ("PUT", "/gatevalve/v1/channels/support"),
]


@pytest.mark.parametrize(("method", "path"), LOCKED)
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer", "Basic key"], ids=str)
async def test_with_an_api_key_nothing_of_value_opens_without_it(tmp_path: Path, method: str, path: str, given: str | None) -> None:
    rig = PodRig(tmp_path, api_key="key")
    async with rig.running() as pod:
        headers = {"authorization": given} if given else {}
        assert (await pod.client.ask(method, path, {"model": "support"}, headers)).status == 401


async def test_inner_calls_carry_the_key_and_so_do_clients(tmp_path: Path) -> None:
    rig = PodRig(tmp_path, api_key="key")
    adapter = rig.adapter(1)
    async with rig.running() as pod:
        await pod.settled(rig.signed((1, 0), (adapter,), adapter))
        assert (await pod.chat()).status == 200
        assert (await pod.client.ask("GET", "/gatevalve/readyz")).status == 200
        assert (await pod.client.ask("GET", "/health")).status == 200


FIELDS: dict[str, Any] = {
    "lora_request": {"lora_name": "x", "lora_int_id": 1, "lora_path": "/tmp/x"},
    "lora_name": "x",
    "lora_path": "/tmp/x",
    "adapter": "x",
    "adapter_id": "x",
    "served_model_name": "tiny",
    "extra_body": {"model": "tiny"},
    "vllm_xargs": {"model": "tiny"},
    "Model": "tiny",
    "model ": "tiny",
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_no_other_field_chooses_what_answers(pod: RunningPod, path: str, field: str) -> None:
    plain, odd = [
        await pod.ask("POST", path, {"model": "support", "messages": [], "prompt": "x", **more}) for more in ({}, {field: FIELDS[field]})
    ]
    assert engine_of(pod).asked[-1]["model"] == next(iter(engine_of(pod).adapters))
    assert odd.json["choices"] == plain.json["choices"]


async def test_feedback_is_taken_for_ids_served_and_lands_with_their_channel_whatever_alias_it_names(pod: RunningPod) -> None:
    reply = (await pod.chat()).json["id"]
    assert (await pod.ask("POST", "/v1/feedback", {"id": reply, "score": 1, "model": "sales"})).status == 422
    assert (await pod.ask("POST", "/v1/feedback", {"id": reply[:-1] + "x", "score": 1})).status == 404
    assert (await pod.ask("POST", "/v1/feedback", {"id": reply, "score": 1})).status == 202


async def test_an_oversized_document_is_cut_off(pod: RunningPod) -> None:
    assert (await pod.ask("PUT", "/gatevalve/v1/channels/support", b" " * (2 << 20))).status == 413


async def test_a_server_without_its_lifespan_serves_nothing(tmp_path: Path) -> None:
    rig = PodRig(tmp_path)
    async with rig.running() as running:
        app = running.client.app
        app.pod, kept = None, app.pod  # type: ignore[attr-defined]
        try:
            assert (await running.client.ask("POST", "/v1/chat/completions", {"model": "tiny"})).status == 503
        finally:
            app.pod = kept  # type: ignore[attr-defined]


async def test_twenty_swaps_under_streaming_clients_mix_no_answer_and_fail_none(tmp_path: Path) -> None:
    rig = PodRig(tmp_path)
    adapters = [rig.adapter(seed) for seed in (1, 2, 3)]
    rig.engine.script.step_seconds = 0.002
    answers: list[Answer] = []
    async with rig.running() as pod:
        await pod.settled(rig.signed((0, 0), (adapters[0],), adapters[0]))

        async def client() -> None:
            while True:
                answers.append(await pod.chat(stream=True, max_tokens=12, return_token_ids=True))

        clients = [asyncio.create_task(client()) for _ in range(4)]
        for swap in range(1, 21):
            old, new = adapters[(swap - 1) % 3], adapters[swap % 3]
            await pod.settled(rig.signed((swap, 0), (old, new), old))
            await pod.settled(rig.signed((swap, 1), (old, new), new))
            await asyncio.sleep(0.01)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    served: dict[str, list[int]] = {}
    for answer in answers:
        tokens = [event["choices"][0]["token_ids"][0] for event in answer.events[1:]]
        assert answer.status == 200
        assert tokens == [(tokens[0] + step) % 32 for step in range(12)]
        assert served.setdefault(answer.headers["x-gatevalve-release"], tokens) == tokens
    assert len(served) > 10
