"""A judge's OpenAI-compatible endpoint: asked patiently, and never quoted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Literal

import aiohttp

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import ENV_JUDGE_API_KEY, HEADER_RELEASE, JUDGE_KEY, JUDGE_SECRET
from gatevalve.contracts.policy import Judge
from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.evaluate.patience import Patience

CONCURRENCY = 32
"""Requests in flight at one judge."""

ANSWER_TOKENS = 1024
LONGEST_PAUSE = 60.0
"""Seconds that an endpoint may make us wait between two tries."""

HTTP_OK, INTERNAL_SERVER_ERROR = 200, 500
CLOSED, OVERLOADED = (401, 403), (429, 503)

Prompt = list[dict[str, str]]


Kind = Literal["Gone", "Failing", "Closed", "Refused"]
"""Of a try without answer: no connection or overload · 5xx, time-out, broken off · the key is refused · the request is refused."""

PASSING: tuple[Kind, ...] = ("Gone", "Failing")
"""What another try after a pause may mend."""


class _Failed(Exception):
    """A try without answer; its text is no more than a status or an error's type."""

    def __init__(self, what: str, kind: Kind, pause: float = 0.0) -> None:
        super().__init__(what)
        self.kind, self.pause = kind, pause


class JudgeEndpoint:
    """Asks one judge; raises BackendUnavailable when it is gone, while one request that it refuses has no answer.

    Gone is an endpoint that refuses connections, is overloaded, or fails on the `probe` as well, which it can answer when it is well.
    """

    def __init__(self, session: aiohttp.ClientSession, field: str, judge: Judge, patience: Patience, probe: Prompt) -> None:
        self._session, self._field, self._judge, self._patience, self._probe = session, field, judge, patience, probe
        self._root = judge.url.rstrip("/")
        self._headers = _headers()
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def models(self) -> list[dict[str, Any]]:
        """The model cards that the endpoint lists; raises BackendUnavailable, or ContractError when the url is no endpoint's root."""
        try:
            body = await self._patiently("GET", "/models", None)
        except _Failed as failed:
            if failed.kind == "Refused":
                problem, remedy = f"{self._root}/models answers {failed}", "give the endpoint's root, including /v1"
                raise ContractError(f"{self._field}.url", problem, remedy) from failed
            raise self._unavailable(failed) from failed
        cards = body.get("data") if isinstance(body, dict) else body
        return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []

    async def ask(self, prompt: Prompt) -> str | None:
        """The text of the answer, empty when the reply is no completion; None when the endpoint refuses this request and no other."""
        try:
            return _text(await self._patiently("POST", "/chat/completions", self._body(prompt)))
        except _Failed as failed:
            if failed.kind == "Gone" or not await self._answers():
                raise self._unavailable(failed) from failed
            return None

    async def _answers(self) -> bool:
        try:
            await self._try("POST", "/chat/completions", self._body(self._probe))
        except _Failed:
            return False
        return True

    async def _patiently(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        attempt = 1
        async with self._slots:
            while True:
                try:
                    return await self._try(method, path, body)
                except _Failed as failed:
                    if failed.kind not in PASSING or attempt == self._patience.tries:
                        raise
                    await asyncio.sleep(max(failed.pause, self._patience.first_pause * 2 ** (attempt - 1)))
                attempt += 1

    async def _try(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        timeout = aiohttp.ClientTimeout(self._patience.judge)
        request = self._session.request(
            method,
            self._root + path,
            json=body,
            headers=self._headers,
            timeout=timeout,
            allow_redirects=False,  # items and key go to no host that the policy does not name
        )
        try:
            async with request as response:
                self._check(response)
                return await _json(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _Failed(type(error).__name__, "Gone" if isinstance(error, aiohttp.ClientConnectorError) else "Failing") from error

    def _check(self, response: aiohttp.ClientResponse) -> None:
        if HEADER_RELEASE in response.headers:
            problem = f"{self._judge.model} is an alias that moves with releases, so the judge would change with what it judges"
            raise ContractError(f"{self._field}.model", problem, "name a model that stays")
        if response.status != HTTP_OK:
            raise _Failed(_told(response.status), _kind(response.status), _pause(response.headers))

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return {"model": self._judge.model, "messages": prompt, "temperature": 0, "max_tokens": ANSWER_TOKENS}

    def _unavailable(self, failed: _Failed) -> BackendUnavailable:
        return BackendUnavailable(f"judge {self._root}: {failed}; the next attempt goes on from the journal")


def _headers() -> dict[str, str]:
    key = os.environ.get(ENV_JUDGE_API_KEY, "").strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise ContractError(ENV_JUDGE_API_KEY, "holds what no HTTP header may hold", f"mend {JUDGE_KEY} in Secret {JUDGE_SECRET}")
    return {"Authorization": f"Bearer {key}"}


def _kind(status: int) -> Kind:
    if status in OVERLOADED:
        return "Gone"
    if status in CLOSED:
        return "Closed"
    return "Failing" if status >= INTERNAL_SERVER_ERROR else "Refused"


def _told(status: int) -> str:
    return f"HTTP {status}, mend {JUDGE_KEY} in Secret {JUDGE_SECRET}" if status in CLOSED else f"HTTP {status}"


def _pause(headers: Mapping[str, str]) -> float:
    """Seconds that the endpoint asks us to wait, where it gives them as a number."""
    asked = headers.get("Retry-After", "")
    return min(float(asked), LONGEST_PAUSE) if asked.isascii() and asked.isdigit() else 0.0


async def _json(response: aiohttp.ClientResponse) -> Any:
    try:
        return await response.json(content_type=None)
    except (ValueError, LookupError, RecursionError):  # no JSON, no known charset, nested too deep: an unreadable answer
        return None


def _text(body: Any) -> str:
    try:
        text = body["choices"][0]["message"]["content"]
    except (LookupError, TypeError):
        return ""
    return text if isinstance(text, str) else ""
