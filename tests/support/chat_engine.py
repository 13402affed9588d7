"""A scriptable engine on loopback: as much of vLLM's HTTP interface as an evaluation uses, for faults a real one cannot be made to show."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Body = dict[str, Any]
PROMPT = [101, 102, 103]
"""What every prompt is in tokens."""

Script = Callable[[Body, int], Awaitable[web.StreamResponse]]
"""From a request's body and how often it was asked before, to the response."""


class ChatEngine:
    """Runs in a thread of its own; `asked` and `weighed` list the bodies of chat completions and completions in the order they came."""

    def __init__(self, models: tuple[str, ...], script: Script, healthy_after: int = 0, weigh: Script | None = None) -> None:
        self.asked: list[Body] = []
        self.weighed: list[Body] = []
        self._weigh = weigh or honest_weights
        self._models, self._script = models, script
        self._unhealthy_checks = healthy_after
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner = web.AppRunner(self._application(), shutdown_timeout=0.1)
        self._stopping = asyncio.Lock()
        self.url = ""

    def counts(self) -> Counter[tuple[str, str]]:
        """How often each (model, prompt) was asked."""
        return Counter(question_of(body) for body in self.asked)

    def stop(self) -> None:
        """Take the engine away: its port closes and open requests break. From any thread, any number of times."""
        self._wait(self._stop())

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._wait(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, step: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(timeout=30)

    def _application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._score)
        return app

    async def _start(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        async with self._stopping:  # aiohttp's own cleanup may not run twice at once
            await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        self._unhealthy_checks -= 1
        return web.Response(status=503 if self._unhealthy_checks >= 0 else 200)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": model} for model in self._models]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        before = self.counts()[question_of(body)]
        self.asked.append(body)
        return await self._script(body, before)

    async def _score(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        before = sum(other == body for other in self.weighed)
        self.weighed.append(body)
        return await self._weigh(body, before)


def question_of(body: Body) -> tuple[str, str]:
    """Model and prompt of a request."""
    return str(body["model"]), str(body["messages"][0]["content"])


def completion(texts: list[str]) -> web.Response:
    """A chat completion with these texts; a token is a word."""
    return web.json_response(
        {"object": "chat.completion", "prompt_token_ids": PROMPT, "choices": [_choice(index, text) for index, text in enumerate(texts)]}
    )


def _choice(index: int, text: str) -> dict[str, Any]:
    token_ids = list(range(len(text.split())))
    return {"index": index, "message": {"role": "assistant", "content": text}, "token_ids": token_ids, "finish_reason": "stop"}


async def honest(body: Body, before: int) -> web.StreamResponse:
    """Replies that depend on the request alone, as a seeded engine's do."""
    return completion([f"The answer is {(body['seed'] + decode) % 7}." for decode in range(body["n"])])


async def honest_weights(body: Body, before: int) -> web.StreamResponse:
    """The prompt's log-probabilities, in vLLM's form."""
    rows = [None, *({str(token): {"logprob": logprob(body["model"], token), "rank": 1}} for token in body["prompt"][1:])]
    return web.json_response({"object": "text_completion", "choices": [{"index": 0, "text": "x", "prompt_logprobs": rows}]})


def logprob(model: str, token: int) -> float:
    """What a model of this engine thinks of a token, whatever comes before it."""
    return -(token % 5 + 1 + sum(model.encode()) % 7) / 16
