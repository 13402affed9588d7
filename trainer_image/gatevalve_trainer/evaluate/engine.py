"""The evaluation engine: vLLM's OpenAI-compatible server beside us in the Pod."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.evaluate.patience import Patience, heed_stop
from gatevalve_trainer.evaluate.schedule import Question
from gatevalve_trainer.phases import log

TOO_MANY_REQUESTS = 429
HEALTH_SECONDS = 10


Body = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """One decode, with the token ids of its prompt and its own."""

    text: str
    finish: str | None
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.token_ids)


Replies = tuple[Reply | None, ...]
"""One entry a decode; None where the engine gave no usable reply."""


class Unusable(Exception):
    """The engine answered with something that is not what was asked for; asking again may help."""


class Engine:
    """Asks one engine; raises BackendUnavailable when it is gone, while a single request that stays without answer gives None."""

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
        decodes = question.suite.decodes
        replies = await self._patiently("/v1/chat/completions", chat_body(question), lambda body: replies_of(body, decodes))
        return replies or (None,) * decodes

    async def logprobs(self, model: str, reply: Reply) -> tuple[float, ...] | None:
        """Log-probabilities, in nats at temperature 1, of a reply's tokens under a model's weights; None when the engine has none."""
        if not reply.token_ids:
            return ()
        return await self._patiently("/v1/completions", scoring_body(model, reply), lambda body: logprobs_of(body, reply))

    async def _patiently(self, path: str, request: Body, read: Callable[[Any], T]) -> T | None:
        """What one request is answered with, None when the engine refuses it or a healthy one keeps failing on it."""
        gone = False
        for attempt in range(self._patience.tries):
            try:
                return await self._post(path, request, read)
            except (aiohttp.ClientError, TimeoutError, Unusable) as error:
                gone = isinstance(error, aiohttp.ClientConnectionError) and not isinstance(error, TimeoutError)
            if attempt + 1 < self._patience.tries:
                await asyncio.sleep(self._patience.first_pause * 2**attempt)
        if gone or not await self._healthy():
            raise BackendUnavailable(f"{self._url} stopped answering; the next attempt goes on from the journal")
        return None

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

    async def _post(self, path: str, request: Body, read: Callable[[Any], T]) -> T | None:
        timeout = aiohttp.ClientTimeout(self._patience.request)
        async with self._session.post(self._url + path, json=request, timeout=timeout) as response:
            if response.status >= 500 or response.status == TOO_MANY_REQUESTS:
                raise Unusable(f"HTTP {response.status}")
            if response.status != 200:  # the engine refuses this very request: it will refuse it again
                return None
            return read(await _json(response))


async def _json(response: aiohttp.ClientResponse) -> Any:
    try:
        return await response.json()
    except ValueError as error:
        raise Unusable("the body is not JSON") from error


def chat_body(question: Question) -> Body:
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


def scoring_body(model: str, reply: Reply) -> Body:
    """The completion request whose prompt is a prompt with its reply; one more token is asked for because none cannot be."""
    prompt = [*reply.prompt_token_ids, *reply.token_ids]
    return {"model": model, "prompt": prompt, "prompt_logprobs": 0, "max_tokens": 1, "temperature": 0}


def replies_of(body: Any, decodes: int) -> Replies:
    """The decodes of a chat completion in their order; raises Unusable unless each has text, token ids and its own index."""
    try:
        prompt = _token_ids(body["prompt_token_ids"])
        choices = {int(choice["index"]): _reply(choice, prompt) for choice in body["choices"]}
        if len(body["choices"]) != decodes or set(choices) != set(range(decodes)):
            raise Unusable("the choices are not the decodes asked for")
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"the completion lacks {error}") from error
    return tuple(choices[index] for index in range(decodes))


def logprobs_of(body: Any, reply: Reply) -> tuple[float, ...]:
    """The log-probabilities of a reply's tokens at the end of a prompt; raises Unusable unless each token has a finite one, at most 0."""
    try:
        rows = body["choices"][0]["prompt_logprobs"]
        if len(rows) != len(reply.prompt_token_ids) + len(reply.token_ids):
            raise Unusable("the log-probabilities are not one a token")
        values = tuple(float(row[str(token)]["logprob"]) for row, token in zip(rows[-reply.tokens :], reply.token_ids, strict=True))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Unusable("the completion lacks log-probabilities of its prompt") from error
    if not all(math.isfinite(value) and value <= 0 for value in values):
        raise Unusable("a log-probability is not finite or above 0")
    return values


def _reply(choice: Any, prompt: tuple[int, ...]) -> Reply:
    text, finish = choice["message"]["content"], choice["finish_reason"]
    if not isinstance(text, str) or not (finish is None or isinstance(finish, str)):
        raise Unusable("a choice has no text")
    return Reply(text, finish, prompt, _token_ids(choice["token_ids"]))


def _token_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise Unusable("a prompt or a choice has no token ids")
    return tuple(value)
