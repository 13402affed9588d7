"""The evaluation engine: vLLM's OpenAI-compatible server beside us in the Pod."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.evaluate.patience import Patience, heed_stop
from gatevalve_trainer.evaluate.schedule import Question
from gatevalve_trainer.phases import log

TOO_MANY_REQUESTS = 429
HEALTH_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Reply:
    """One decode."""

    text: str
    tokens: int
    finish: str | None


Replies = tuple[Reply | None, ...]
"""One entry a decode; None where the engine gave no usable reply."""


class Unusable(Exception):
    """The engine answered with something that is no set of replies; asking again may help."""


class Engine:
    """Asks one engine; raises BackendUnavailable when it is gone, while a single reply that stays missing is None."""

    def __init__(self, session: aiohttp.ClientSession, url: str, patience: Patience) -> None:
        self._session, self._url, self._patience = session, url.rstrip("/"), patience

    async def wait_until_healthy(self) -> None:
        """Return once /health answers 200; raises BackendUnavailable when that takes longer than `patience.engine`."""
        started = time.monotonic()
        while not await self._healthy():
            heed_stop()
            if time.monotonic() - started > self._patience.engine:
                raise BackendUnavailable(f"{self._url}/health did not answer 200 within {self._patience.engine:.0f} s")
            await asyncio.sleep(self._patience.poll)
        log("engine healthy", seconds=round(time.monotonic() - started, 1))

    async def models(self) -> frozenset[str]:
        """The model names that the engine serves."""
        body = await self._get("/v1/models")
        return frozenset(str(card.get("id")) for card in body.get("data", []))

    async def name(self) -> str:
        """Engine and version, for the report."""
        return f"vllm {(await self._get('/version')).get('version', 'unknown')}"

    async def ask(self, question: Question) -> Replies:
        """The decodes of one question; a request that a healthy engine keeps failing gives only None."""
        gone = False
        for attempt in range(self._patience.tries):
            try:
                return await self._post(question)
            except (aiohttp.ClientError, TimeoutError, Unusable) as error:
                gone = isinstance(error, aiohttp.ClientConnectionError) and not isinstance(error, TimeoutError)
            if attempt + 1 < self._patience.tries:
                await asyncio.sleep(self._patience.first_pause * 2**attempt)
        if gone or not await self._healthy():
            raise BackendUnavailable(f"{self._url} stopped answering; the next attempt goes on from the journal")
        return (None,) * question.suite.decodes

    async def _healthy(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/health", timeout=aiohttp.ClientTimeout(HEALTH_SECONDS)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            async with self._session.get(self._url + path, raise_for_status=True) as response:
                body = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise BackendUnavailable(f"{self._url}{path}: {error!r}") from error
        return body if isinstance(body, dict) else {}

    async def _post(self, question: Question) -> Replies:
        timeout = aiohttp.ClientTimeout(self._patience.request)
        async with self._session.post(f"{self._url}/v1/chat/completions", json=request_body(question), timeout=timeout) as response:
            if response.status >= 500 or response.status == TOO_MANY_REQUESTS:
                raise Unusable(f"HTTP {response.status}")
            if response.status != 200:  # the engine refuses this very request: it will refuse it again
                return (None,) * question.suite.decodes
            return replies_of(await _json(response), question.suite.decodes)


async def _json(response: aiohttp.ClientResponse) -> Any:
    try:
        return await response.json()
    except ValueError as error:
        raise Unusable("the body is not JSON") from error


def request_body(question: Question) -> dict[str, Any]:
    """The chat completion request; filters are switched off by name, because an engine takes defaults from the model's own files."""
    sampling = question.suite.sampling
    return {
        "model": question.model,
        "messages": list(question.item.messages),
        "n": question.suite.decodes,
        "temperature": float(sampling.temperature),
        "max_tokens": sampling.max_tokens,
        "seed": question.seed,
        "return_token_ids": True,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "repetition_penalty": 1,
    }


def replies_of(body: Any, decodes: int) -> Replies:
    """The decodes of a chat completion in their order; raises Unusable unless each has text, token ids and its own index."""
    try:
        choices = {int(choice["index"]): _reply(choice) for choice in body["choices"]}
        if len(body["choices"]) != decodes or set(choices) != set(range(decodes)):
            raise Unusable("the choices are not the decodes asked for")
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"the completion lacks {error}") from error
    return tuple(choices[index] for index in range(decodes))


def _reply(choice: Any) -> Reply:
    text, token_ids, finish = choice["message"]["content"], choice["token_ids"], choice["finish_reason"]
    if not isinstance(text, str) or not isinstance(token_ids, list) or not (finish is None or isinstance(finish, str)):
        raise Unusable("a choice has no text or no token ids")
    return Reply(text, len(token_ids), finish)
