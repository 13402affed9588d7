"""A scriptable stand-in for vLLM's application, in process: as much of its state and routes as the middleware uses, for faults at will.

Its models answer token `(n + shift) % VOCABULARY` at step n; an adapter's shift comes from its weights' bytes, the base's is 0.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.types import Receive, Scope, Send

VOCABULARY = 32
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def shift_of(path: Path) -> int:
    """An adapter's shift: 1..VOCABULARY-1, from its weights."""
    return 1 + hashlib.sha256((path / ADAPTER_WEIGHTS).read_bytes()).digest()[0] % (VOCABULARY - 1)


def logprob(shift: int, token: int) -> float:
    """What a model with this shift says of a token."""
    return -1.0 - ((token + shift) % VOCABULARY) / 8


@dataclass
class Script:
    """Faults, changed by a test while the engine runs."""

    load_seconds: float = 0.0
    load_status: int = 200
    load_hangs: bool = False
    load_outlives_its_caller: bool = False
    unload_status: int = 200
    without_effect: set[str] = field(default_factory=set)
    mute_probes: bool = False
    raise_on_models: bool = False
    step_seconds: float = 0.0
    healthy: bool = True
    generation_status: int = 200


class ScriptedVllm:
    """The application object: what Starlette would put into `scope["app"]`, and the app that the middleware wraps."""

    def __init__(self, base_path: Path, api_key: str | None = None, runtime_lora: bool = True, max_cpu_loras: int = 4) -> None:
        self.script = Script()
        self.api_key, self.runtime_lora = api_key, runtime_lora
        self.adapters: dict[str, str] = {}
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.log: list[str] = []
        lora = SimpleNamespace(max_loras=2, max_lora_rank=16, max_cpu_loras=max_cpu_loras)
        model = SimpleNamespace(
            model=str(base_path),
            max_logprobs=20,
            logprobs_mode="processed_logprobs",
            logits_processors=None,
            get_diff_sampling_param=lambda: {"temperature": 0.7, "top_k": 20},
        )
        self.state = SimpleNamespace(
            args=SimpleNamespace(served_model_name=["tiny"], model=str(base_path), api_key=[api_key] if api_key else None),
            vllm_config=SimpleNamespace(model_config=model, lora_config=lora),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        assert scope["app"] is self, "vLLM's routes need the application in the scope"
        body = await self._body(receive)
        handler = getattr(self, "_" + scope["method"].lower() + scope["path"].replace("/", "_"), None)
        if handler is None:
            await self._answer(send, 404, {"detail": "Not Found"})
        elif self._unauthorised(scope):
            await self._answer(send, 401, {"error": "Unauthorized"})
        else:
            self.headers.append({key.decode(): value.decode() for key, value in reversed(scope["headers"])})  # the first one counts
            await handler(body, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _body(self, receive: Receive) -> dict[str, Any]:
        raw = bytearray()
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        body: dict[str, Any] = json.loads(raw) if raw else {}
        return body

    def _unauthorised(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        return scope["path"].startswith("/v1") and self.api_key is not None and given != f"Bearer {self.api_key}"

    async def _answer(self, send: Send, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": raw})

    async def _get_health(self, body: dict[str, Any], send: Send) -> None:
        await self._answer(send, 200 if self.script.healthy else 503, None)

    async def _get_metrics(self, body: dict[str, Any], send: Send) -> None:
        await self._answer(send, 200, "vllm:metrics")

    async def _post_tokenize(self, body: dict[str, Any], send: Send) -> None:
        self.asked.append(body)
        await self._answer(send, 200, {"count": 3, "tokens": [1, 2, 3]})

    async def _get_v1_models(self, body: dict[str, Any], send: Send) -> None:
        if self.script.raise_on_models:
            raise RuntimeError("the engine is broken")
        cards: list[dict[str, Any]] = [{"id": "tiny", "root": "/base", "parent": None}]
        cards += [{"id": name, "root": path, "parent": "tiny"} for name, path in self.adapters.items()]
        await self._answer(send, 200, {"object": "list", "data": cards})

    async def _post_v1_load_lora_adapter(self, body: dict[str, Any], send: Send) -> None:
        self.log.append(f"load {body['lora_name']}")
        if self.script.load_hangs:
            await asyncio.Event().wait()
        work = asyncio.ensure_future(self._load(body["lora_name"], body["lora_path"]))
        status = await (asyncio.shield(work) if self.script.load_outlives_its_caller else work)
        await self._answer(send, status, "Success" if status == 200 else "no")

    async def _load(self, name: str, path: str) -> int:
        await asyncio.sleep(self.script.load_seconds)
        if name in self.adapters:
            return 400
        if self.script.load_status == 200:
            self.adapters[name] = path
        return self.script.load_status

    async def _post_v1_unload_lora_adapter(self, body: dict[str, Any], send: Send) -> None:
        files = "there" if os.path.isdir(self.adapters.get(body["lora_name"], "/none")) else "gone"  # noqa: PTH112, ASYNC240 -- now, before anything else runs
        self.log.append(f"unload {body['lora_name']} with its files {files}")
        if self.script.unload_status == 200:
            self.adapters.pop(body["lora_name"], None)
        await self._answer(send, self.script.unload_status, "")

    async def _post_v1_chat_completions(self, body: dict[str, Any], send: Send) -> None:
        await self._generate(body, send, chat=True)

    async def _post_v1_completions(self, body: dict[str, Any], send: Send) -> None:
        if body.get("logprobs") == 20:
            await self._probe(body, send)
        else:
            await self._generate(body, send, chat=False)

    def _answering(self, body: dict[str, Any]) -> str:
        """vLLM's adapter per modality: asked for the base, one that is named as the type of a content part answers."""
        contents = [message["content"] for message in body.get("messages", []) if isinstance(message.get("content"), list)]
        types = [part["type"].split("_")[0] for content in contents for part in content if "type" in part]
        named = [kind for kind in types if kind in self.adapters]
        return named[0] if named and body["model"] not in self.adapters else str(body["model"])

    def _shift(self, model: str) -> int:
        if model == "tiny" or model in self.script.without_effect:
            return 0
        return shift_of(Path(self.adapters[model]))

    async def _probe(self, body: dict[str, Any], send: Send) -> None:
        if self.script.mute_probes:
            await self._answer(send, 503, {"error": {"message": "busy"}})
            return
        top = {f"token_id:{token}": logprob(self._shift(body["model"]), token) for token in range(VOCABULARY)}
        await self._answer(send, 200, {"choices": [{"index": 0, "text": "", "logprobs": {"top_logprobs": [top]}}]})

    async def _generate(self, body: dict[str, Any], send: Send, chat: bool) -> None:
        self.asked.append(body)
        body = {**body, "model": self._answering(body)}
        if self.script.generation_status != 200 or (body["model"] != "tiny" and body["model"] not in self.adapters):
            status = self.script.generation_status if self.script.generation_status != 200 else 404
            await self._answer(send, status, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": status}})
            return
        reply = Reply(body, self.headers[-1].get("x-request-id", "own"), self._shift(body["model"]), chat)
        if not body.get("stream"):
            await asyncio.sleep(self.script.step_seconds * reply.steps)
            await self._answer(send, 200, reply.whole())
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream; charset=utf-8")]})
        async for event in reply.events(self.script):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Reply:
    """One reply, in the form that vLLM 0.32 gives it: null for what was not asked for."""

    def __init__(self, body: dict[str, Any], request_id: str, shift: int, chat: bool) -> None:
        self.body, self.chat, self.shift = body, chat, shift
        self.steps, self.choices = body.get("max_tokens") or 4, body.get("n") or 1
        kind = ("chatcmpl", "chat.completion") if chat else ("cmpl", "text_completion")
        self.head = {"id": f"{kind[0]}-{request_id}", "object": kind[1], "created": 1, "model": body["model"]}
        self.ids = bool(body.get("return_token_ids"))
        self.wants_logprobs = bool(body.get("logprobs")) if chat else body.get("logprobs") is not None

    def token(self, step: int, choice: int) -> int:
        return (step + self.shift + choice) % VOCABULARY

    def whole(self) -> dict[str, Any]:
        """The reply of a request that does not stream."""
        prompt = {"prompt_token_ids": [7, 8, 9] if self.ids else None}
        choices = [self._choice(index) | ({} if self.chat else prompt) for index in range(self.choices)]
        usage = {"prompt_tokens": 3, "completion_tokens": self.steps * self.choices}
        return self.head | {"choices": choices, "usage": usage} | (prompt if self.chat else {})

    async def events(self, script: Script) -> AsyncIterator[bytes]:
        """The events of a stream; every second one arrives in two pieces."""
        for number, chunk in enumerate([*self._first_chunks(), *self._chunks()]):
            await asyncio.sleep(script.step_seconds)
            raw = b"data: " + json.dumps(self.head | chunk, ensure_ascii=False).encode() + b"\n\n"
            for piece in [raw[:9], raw[9:]] if number % 2 else [raw]:
                yield piece
        yield b"data: [DONE]\n\n"

    def _first_chunks(self) -> list[dict[str, Any]]:
        if not self.chat:
            return []
        first: dict[str, Any] = {"prompt_token_ids": [7, 8, 9] if self.ids else None, "prompt_text": None}
        return [
            first | {"choices": [{"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]}
            for index in range(self.choices)
        ]

    def _chunks(self) -> list[dict[str, Any]]:
        return [{"choices": [self._part(index, step)]} for step in range(self.steps) for index in range(self.choices)]

    def _part(self, index: int, step: int) -> dict[str, Any]:
        token = self.token(step, index)
        text: dict[str, Any] = {"delta": {"content": f"é{token} "}} if self.chat else {"text": f"é{token} "}
        prompt = {} if self.chat else {"prompt_token_ids": [7, 8, 9] if self.ids and step == 0 else None}
        return (
            {"index": index, "logprobs": self._logprobs([token]), "token_ids": [token] if self.ids else None}
            | text
            | prompt
            | {"finish_reason": "length" if step == self.steps - 1 else None}
        )

    def _choice(self, index: int) -> dict[str, Any]:
        tokens = [self.token(step, index) for step in range(self.steps)]
        text = "".join(f"é{token} " for token in tokens)
        return {
            "index": index,
            "logprobs": self._logprobs(tokens),
            "token_ids": tokens if self.ids else None,
            "finish_reason": "length",
        } | ({"message": {"role": "assistant", "content": text}} if self.chat else {"text": text})

    def _logprobs(self, tokens: list[int]) -> dict[str, Any] | None:
        if not self.wants_logprobs:
            return None
        values = [logprob(self.shift, token) for token in tokens]
        if self.chat:
            return {
                "content": [
                    {"token": f"é{token} ", "logprob": value, "top_logprobs": []} for token, value in zip(tokens, values, strict=True)
                ]
            }
        return {"tokens": [str(token) for token in tokens], "token_logprobs": values, "top_logprobs": [{} for _ in tokens]}
