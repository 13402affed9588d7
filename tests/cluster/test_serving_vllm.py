"""The middleware in a real vLLM on this machine's CPU: every answer is compared with Hugging Face and PEFT on the same weights."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import pytest
import torch
import zstandard
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from gatevalve.contracts.files import Probe, TrafficRecord
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.kinds import Capture
from gatevalve.contracts.metrics import SERVING_METRICS
from gatevalve.contracts.names import HEADER_RELEASE, entry_name
from gatevalve.contracts.serving import AdapterOnPod, AdapterRole, ChannelDocument, PodReport, Route
from gatevalve_serving.allow_list import ALLOWED
from support.serving import SigningKey, publish
from support.vllm_process import VllmProcess

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.timeout(600)]

BASE = Path(__file__).parents[2] / "demo/base/tiny-words"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ENGINE_FLAGS = [
    *("--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "64", "--max-num-batched-tokens", "2048"),
    *("--kv-cache-memory-bytes", "134217728", "--enforce-eager", "--shutdown-timeout", "20", "--logprobs-mode", "processed_logprobs"),
    *("--enable-lora", "--max-loras", "4", "--max-lora-rank", "16", "--max-cpu-loras", "8"),
]
KEY, UID, ALIAS = "key-of-the-test", "uid-of-the-test", "support"
SMUGGLED = "smuggled"
"""An adapter on the engine's own command line: no document put it there."""
PROMPTS = ("2 plus 3", "seven plus one", "nine minus four", "what is 5 plus 5?", "one two three", "say four")
NEW_TOKENS = 24
CLIENTS, SWAPS = 4, 20

Tokens = tuple[int, ...]
Live = tuple[str, str | None]
"""An entry's name, and the adapter it serves (None = the base)."""


class Reference:
    """Hugging Face and PEFT on the base and its adapters: what the engine must answer."""

    def __init__(self, directory: Path, adapters: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(BASE)
        self.model = self._with_adapters(directory, adapters)
        self.paths = {f"a{number}": directory / f"a{number}" for number in range(adapters)}
        self.prompts = {text: self._chat(text) for text in PROMPTS}
        self.answers = {name: {text: self._greedy(name, ids) for text, ids in self.prompts.items()} for name in (None, *self.paths)}

    def _with_adapters(self, directory: Path, adapters: int) -> PeftModel:
        torch.manual_seed(0)
        config = LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS), task_type="CAUSAL_LM")
        model: Any = None
        for number in range(adapters):
            name = f"a{number}"
            if model is None:
                model = get_peft_model(AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32), config, adapter_name=name)
            else:
                model.add_adapter(name, config)
            for parameter_name, parameter in model.named_parameters():
                if f".{name}." in parameter_name:
                    torch.nn.init.normal_(parameter, std=0.12)
            model.save_pretrained(directory, selected_adapters=[name])
        assert isinstance(model, PeftModel)
        return model.eval()

    def _chat(self, text: str) -> Tokens:
        ids = self.tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False)
        return tuple(ids)

    @torch.no_grad()
    def logprobs(self, name: str | None, ids: Tokens) -> torch.Tensor:
        """Log-probabilities of every next token, (positions, vocabulary); None is the base."""
        with self.model.disable_adapter() if name is None else contextlib.nullcontext():
            if name is not None:
                self.model.set_adapter(name)
            logits: torch.Tensor = self.model(torch.tensor([ids]), use_cache=False).logits[0]
        return logits.float().log_softmax(-1)

    def _greedy(self, name: str | None, prompt: Tokens) -> Tokens:
        answer: list[int] = []
        while len(answer) < NEW_TOKENS:
            answer.append(int(self.logprobs(name, (*prompt, *answer))[-1].argmax()))
            if answer[-1] == self.tokenizer.eos_token_id:
                break
        return tuple(answer)

    def probes(self, name: str) -> tuple[Probe, ...]:
        """What a trainer records: the adapter's likely next tokens, under adapter and base."""
        found = []
        for prompt in list(self.prompts.values())[:3]:
            adapter, base = self.logprobs(name, prompt)[-1], self.logprobs(None, prompt)[-1]
            top = adapter.topk(5).indices
            found.append(
                Probe(
                    prompt_token_ids=prompt,
                    token_ids=tuple(int(token) for token in top),
                    adapter_logprobs=tuple(f"{float(value):.6f}" for value in adapter[top]),
                    base_logprobs=tuple(f"{float(value):.6f}" for value in base[top]),
                )
            )
        return tuple(found)


class RealPod:
    """A vLLM process with the middleware, and the directories that its Pod would mount."""

    def __init__(self, root: Path, smuggled: Path) -> None:
        self.root, self.key = root, SigningKey()
        for name in ("pool", "keys", "cache", "data"):
            (root / name).mkdir()
        (root / "keys/tls.crt").write_bytes(self.key.certificate)
        arguments = ("--middleware", "gatevalve_serving.middleware.Gatevalve", *ENGINE_FLAGS, "--lora-modules", f"{SMUGGLED}={smuggled}")
        self._engine = VllmProcess(root / "engine.log", arguments, self._environment(), ready="/gatevalve/readyz")

    @property
    def url(self) -> str:
        return self._engine.url

    @property
    def log(self) -> str:
        return self._engine.log.read_text(errors="replace")

    def start(self) -> float:
        """Start the engine and wait for readiness; returns seconds."""
        started = time.monotonic()
        self._engine.start()
        return time.monotonic() - started

    def kill(self) -> None:
        """End the engine and its workers at once."""
        self._engine.kill()

    def _environment(self) -> dict[str, str]:
        return {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_API_KEY": KEY,
            "GATEVALVE_NAMESPACE": "shop",
            "GATEVALVE_POOL": "pool-a",
            "GATEVALVE_POD_NAME": "pool-a-0",
            "GATEVALVE_POD_UID": "pod-uid",
            "GATEVALVE_KEY_SHA256": self.key.key_id,
            "GATEVALVE_DATA_URL": f"file://{self.root}/data",
            "GATEVALVE_POOL_PATH": f"{self.root}/pool",
            "GATEVALVE_KEYS_PATH": f"{self.root}/keys",
            "GATEVALVE_CACHE_PATH": f"{self.root}/cache",
        }


@dataclass
class World:
    """The reference, the pod, and the adapters as documents name them."""

    reference: Reference
    pod: RealPod
    adapters: dict[str, AdapterOnPod]
    base_digest: str

    def document(self, revision: tuple[int, int], live: Live, *beside: str) -> ChannelDocument:
        """Channel `support` answered by an entry, other adapters loaded beside it."""
        entry, routed = live
        names = [name for name in (routed, *beside) if name is not None]
        roles = itertools.chain([AdapterRole.LIVE] if routed else [], itertools.repeat(AdapterRole.PRELOAD))
        adapters = tuple(self.adapters[name].model_copy(update={"role": role}) for name, role in zip(names, roles, strict=False))
        route = Route(adapter=self.adapters[routed].name if routed else None, entry=entry)
        return ChannelDocument(
            namespace="shop",
            pool="pool-a",
            channel=ALIAS,
            uid=UID,
            base_name="tiny-words",
            base_digest=self.base_digest,
            key_id=self.pod.key.key_id,
            revision=revision,
            alias=ALIAS,
            adapters=adapters,
            routes=(route,),
            drain_seconds=30,
            capture=Capture(segment_seconds=2),
        )

    def commit(self, document: ChannelDocument) -> None:
        """Write the ConfigMap's file as the kubelet does: the name changes what it leads to, in one step."""
        temporary = self.pod.root / "pool" / "..tmp"
        temporary.write_bytes(self.pod.key.sign(document).canonical())
        temporary.rename(self.pod.root / "pool" / ALIAS)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("serving")
    root_of_pod = root / "pod"
    root_of_pod.mkdir()
    reference = Reference(root / "peft", 3)
    pod = RealPod(root_of_pod, reference.paths["a1"])
    base_digest = directory_digest(BASE)
    adapters = {
        name: publish(root_of_pod / "data", path, base_digest, reference.probes(name), UID, rank=8, alpha=16, targets=TARGETS)
        for name, path in reference.paths.items()
    }
    try:
        print(f"first start: {pod.start():.1f} s")
        yield World(reference, pod, adapters, base_digest)
    finally:
        pod.kill()


def session_to(world: World) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(world.pod.url, headers={"Authorization": f"Bearer {KEY}"})


async def push(session: aiohttp.ClientSession, world: World, document: ChannelDocument) -> PodReport:
    async with session.put(f"/gatevalve/v1/channels/{ALIAS}", data=world.pod.key.sign(document).canonical()) as answer:
        body = await answer.read()
        assert answer.status == 202, body
    return PodReport.parse_json(body)


async def until_verified(session: aiohttp.ClientSession, report: PodReport, name: str) -> PodReport:
    """Long-poll until an adapter is verified."""
    while {adapter.name: adapter.state for adapter in report.adapters}.get(name) != "Verified":
        assert not any(adapter.state == "Failed" for adapter in report.adapters), report
        async with session.get(f"/gatevalve/v1/channels/{ALIAS}", params={"after": report.progress, "wait": 20}) as answer:
            report = PodReport.parse_json(await answer.read())
    return report


async def chat(session: aiohttp.ClientSession, text: str, **body: Any) -> tuple[str, dict[str, Any]]:
    """The entry in the header, and the reply."""
    asked = {"model": ALIAS, "messages": [{"role": "user", "content": text}], "max_tokens": NEW_TOKENS, "return_token_ids": True, **body}
    async with session.post("/v1/chat/completions", json=asked) as answer:
        reply = await answer.json()
        assert answer.status == 200, reply
        return answer.headers[HEADER_RELEASE], reply


async def milliseconds_until_answered(session: aiohttp.ClientSession, entry: str, since: float) -> float:
    """Ask one token through the alias until the entry answers, as the operator does."""
    while (await chat(session, PROMPTS[0], max_tokens=1))[0] != entry:  # noqa: ASYNC110 -- seen from outside
        await asyncio.sleep(0.005)
    return (time.monotonic() - since) * 1000


@dataclass
class Outcome:
    """What the streaming clients saw."""

    entries: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


async def stream_for_ever(
    session: aiohttp.ClientSession, world: World, served: dict[str, str | None], outcome: Outcome, client: int
) -> None:
    """Ask in a stream, again and again, and compare token ids with those of the entry named in the header."""
    for turn in itertools.count(client):
        text = PROMPTS[turn % len(PROMPTS)]
        body = {"model": ALIAS, "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": NEW_TOKENS}
        try:
            async with session.post("/v1/chat/completions", json=body | {"stream": True, "return_token_ids": True}) as answer:
                raw, status, entry = await answer.read(), answer.status, answer.headers.get(HEADER_RELEASE, "")
        except aiohttp.ClientError as error:
            outcome.failed.append(repr(error))
            continue
        if status != 200 or not raw.endswith(b"data: [DONE]\n\n"):
            outcome.failed.append(f"{status} {raw[-300:]!r}")
            continue
        chunks = [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]
        tokens = tuple(token for chunk in chunks for choice in chunk["choices"] for token in choice.get("token_ids") or [])
        outcome.entries[entry] += 1
        if tokens != world.reference.answers[served[entry]][text] or {chunk["model"] for chunk in chunks} != {ALIAS}:
            outcome.wrong.append(f"{entry} {text}: {tokens}")


async def test_twenty_swaps_under_four_streams_fail_no_request_and_every_answer_is_of_the_entry_in_its_header(world: World) -> None:
    live: Live = (entry_name(ALIAS, 0), None)
    served, outcome, flips, preloads = dict([live]), Outcome(), list[float](), list[float]()
    async with session_to(world) as session:
        await push(session, world, world.document((0, 0), live))
        clients = [asyncio.create_task(stream_for_ever(session, world, served, outcome, client)) for client in range(CLIENTS)]
        for swap, name in zip(range(1, SWAPS + 1), itertools.cycle(world.adapters)):
            started = time.monotonic()
            report = await push(session, world, world.document((swap, 0), live, name))
            await until_verified(session, report, world.adapters[name].name)
            preloads.append((time.monotonic() - started) * 1000)
            before, live = live, (entry_name(ALIAS, swap), name)
            served[live[0]], committed = name, time.monotonic()
            flip = world.document((swap, 1), live, *([before[1]] if before[1] else []))
            world.commit(flip)
            await push(session, world, flip)
            flips.append(await milliseconds_until_answered(session, live[0], committed))
            await asyncio.sleep(0.5)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    answered = sum(outcome.entries.values())
    print(
        f"{answered} answers, ms (median, max): flip {median(flips):.0f} {max(flips):.0f}, load {median(preloads):.0f} {max(preloads):.0f}"
    )
    assert outcome.failed == []
    assert outcome.wrong == []
    assert len(outcome.entries) > SWAPS * 0.9
    assert max(flips) < 10_000


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def engine_routes(log: str) -> set[tuple[str, str]]:
    """(method, path) of every route that vLLM says it has, as it logs them at its start, and of the same paths with every other method."""
    found = {(method, path) for path, methods in re.findall(r"Route: (\S+), Methods: ([A-Z, ]+)", log) for method in methods.split(", ")}
    paths = {path for _, path in found} | set(re.findall(r"Route: (\S+), Endpoint: ", log))
    return found | {(method, path) for path in paths for method in METHODS}


async def test_every_route_of_the_engine_that_is_not_on_the_allow_list_is_refused_with_every_method(world: World) -> None:
    routes = engine_routes(world.pod.log) - ALLOWED.keys()
    assert {("POST", "/v1/load_lora_adapter"), ("POST", "/adapters"), ("POST", "/invocations"), ("POST", "/v1/responses")} <= routes
    async with session_to(world) as session:
        answers = {}
        for method, path in routes:
            async with session.request(method, re.sub(r"{.*?}", "x", path), json={"model": ALIAS, "name": "x", "src": "/tmp"}) as answer:
                answers[method, path] = answer.status
    assert len(routes) > 25 * len(METHODS)
    assert {route: status for route, status in answers.items() if status != 404} == {}


async def report_now(session: aiohttp.ClientSession) -> PodReport:
    async with session.get(f"/gatevalve/v1/channels/{ALIAS}") as answer:
        return PodReport.parse_json(await answer.read())


async def test_an_adapter_of_the_engines_command_line_is_told_and_answers_nobody(world: World) -> None:
    async with session_to(world) as session:
        async with session.post("/v1/completions", json={"model": SMUGGLED, "prompt": "1"}) as answer:
            assert answer.status == 404
        report = await report_now(session)
    assert report.foreign_adapters == (SMUGGLED,)
    assert report.refused is not None
    assert report.refused.message == "POST /v1/completions: an adapter's own name as model"


async def test_a_content_part_does_not_choose_an_adapter_where_the_base_serves(world: World) -> None:
    """vLLM answers a request for the base with the adapter that the type of a content part names; with a uuid any type will do."""
    parts = [{"type": SMUGGLED, "uuid": "u", "tool_reference": 1, "name": PROMPTS[3]}]
    asked = {"model": ALIAS, "messages": [{"role": "user", "content": parts}], "temperature": 0, "return_token_ids": True}
    async with session_to(world) as session:
        await push(session, world, world.document((40, 0), (entry_name(ALIAS, 40), None)))
        await milliseconds_until_answered(session, entry_name(ALIAS, 40), time.monotonic())
        async with session.post("/v1/chat/completions", json=asked) as answer:
            assert answer.status == 400, await answer.text()
        asked["messages"] = [{"role": "user", "content": [{"type": "text", "text": PROMPTS[3]}]}]
        async with session.post("/v1/chat/completions", json=asked | {"max_tokens": NEW_TOKENS}) as answer:
            reply = await answer.json()
        report = await report_now(session)
    assert tuple(reply["choices"][0]["token_ids"]) == world.reference.answers[None][PROMPTS[3]]
    assert report.refused is not None
    assert report.refused.message == "POST /v1/chat/completions: an adapter's own name as the type of a content part"


@pytest.mark.parametrize("model", ["tiny-words", "the adapter itself", None, ["support"], "no-such-model"])
async def test_only_an_alias_is_a_model(world: World, model: Any) -> None:
    name = world.adapters["a0"].name if model == "the adapter itself" else model
    async with session_to(world) as session, session.post("/v1/completions", json={"model": name, "prompt": "1"}) as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["param"] == "model"


async def test_the_engines_metrics_show_ours_too(world: World) -> None:
    async with session_to(world) as session, session.get("/metrics") as answer:
        text = await answer.text()
    assert all(f"# TYPE {metric.full_name.removesuffix('_total')}" in text for metric in SERVING_METRICS)
    assert "vllm:num_requests_running" in text


async def test_captured_log_probabilities_are_those_of_the_adapter_that_answered_and_the_client_sees_none_of_it(world: World) -> None:
    async with session_to(world) as session:
        report = await push(session, world, world.document((50, 0), (entry_name(ALIAS, 50), "a1")))
        await until_verified(session, report, world.adapters["a1"].name)
        body = {"model": ALIAS, "messages": [{"role": "user", "content": PROMPTS[1]}], "max_tokens": NEW_TOKENS, "n": 3}
        async with session.post("/v1/chat/completions", json=body) as answer:
            reply = await answer.json()
        async with session.post("/v1/feedback", json={"id": reply["id"], "score": 0.5}) as answer:
            assert answer.status == 202
        records = await records_of(world, reply["id"])
    assert reply["model"] == ALIAS
    assert reply["prompt_token_ids"] is None
    assert [(choice["token_ids"], choice["logprobs"]) for choice in reply["choices"]] == [(None, None)] * 3
    assert [(record.choice, record.text) for record in records] == [
        (i, choice["message"]["content"]) for i, choice in enumerate(reply["choices"])
    ]
    for record in records:
        prompt, answered = tuple(record.prompt_token_ids), tuple(record.token_ids)
        rows = world.reference.logprobs("a1", prompt + answered)[len(prompt) - 1 : -1]
        expected = rows.gather(1, torch.tensor(answered)[:, None])[:, 0]
        assert record.exact
        assert record.adapter_digest == world.adapters["a1"].digest
        assert (expected - torch.tensor(record.logprobs)).abs().max() < 1e-3


async def records_of(world: World, reply_id: str) -> list[TrafficRecord]:
    """The reply's records, from closed segments, once its feedback is closed too."""
    async with asyncio.timeout(15):
        while True:
            lines = [line for path in (world.pod.root / "data" / UID / "traffic").rglob("*.zst") for line in lines_of(path)]
            mine = [line for line in lines if line["id"] == reply_id]
            if any(line["kind"] == "feedback" for line in mine):
                return [TrafficRecord.parse(line) for line in mine if line["kind"] == "reply"]
            await asyncio.sleep(0.2)


def lines_of(path: Path) -> list[dict[str, Any]]:
    with zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True) as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


async def test_a_killed_engine_comes_back_with_the_committed_adapter_by_itself(world: World) -> None:
    live = (entry_name(ALIAS, 60), "a2")
    async with session_to(world) as session:
        world.commit(world.document((60, 1), live, "a0"))
        await milliseconds_until_answered(session, live[0], time.monotonic())
    world.pod.kill()
    seconds = await asyncio.to_thread(world.pod.start)
    print(f"second start: {seconds:.1f} s")
    async with session_to(world) as session:
        entry, reply = await chat(session, PROMPTS[2], temperature=0)
    assert entry == live[0]
    assert tuple(reply["choices"][0]["token_ids"]) == world.reference.answers["a2"][PROMPTS[2]]
