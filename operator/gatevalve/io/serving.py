"""Serving pods over HTTP by address: documents in, reports out, and one token through the alias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from gatevalve.contracts.errors import ContractError, ServingError
from gatevalve.contracts.names import HEADER_PROBE, HEADER_RELEASE
from gatevalve.contracts.serving import PodReport, SignedDocument
from gatevalve.io.ports import PodAddress

CONNECT_SECONDS = 1.0
PUT_SECONDS = 5.0
ASK_SECONDS = 10.0
WAIT_SECONDS = 20
ANSWER_BYTES = 1 << 20
PROBE_PROMPT = "a"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    release: str | None
    body: bytes

    @property
    def text(self) -> str:
        return self.body[:200].decode(errors="replace")


class HttpServingPods:
    """Pods reached by IP address and port. Implements `ports.ServingPods`."""

    def __init__(self, session: aiohttp.ClientSession, api_key: str | None = None) -> None:
        """Take a session (its owner closes it) and the pools' API key where they ask for one."""
        self._session = session
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def put_document(self, pod: PodAddress, signed: SignedDocument) -> PodReport:
        """Hand a pod its desired state of one channel; it answers at once with what it holds, also when it refuses."""
        url = _channel_url(pod, signed.document.channel)
        return _report(url, await self._call("PUT", url, PUT_SECONDS, {"Content-Type": "application/json"}, signed.canonical()))

    async def report(self, pod: PodAddress, channel: str, seconds: float) -> PodReport:
        """What a pod holds of one channel, now."""
        url = _channel_url(pod, channel)
        return _report(url, await self._call("GET", url, seconds))

    async def next_report(self, pod: PodAddress, channel: str, after: int) -> PodReport:
        """The pod's report once its progress has passed `after`, or the same one after WAIT_SECONDS."""
        url = f"{_channel_url(pod, channel)}?after={after}&wait={WAIT_SECONDS}"
        return _report(url, await self._call("GET", url, WAIT_SECONDS + 5))

    async def ask_alias(self, pod: PodAddress, alias: str) -> str | None:
        """The entry named in the reply to one token asked through the alias."""
        url = f"{_root(pod)}/v1/completions"
        body = f'{{"model":"{alias}","prompt":"{PROBE_PROMPT}","max_tokens":1,"temperature":0}}'.encode()
        answer = await self._call("POST", url, ASK_SECONDS, {"Content-Type": "application/json", HEADER_PROBE: "1"}, body)
        if answer.status != 200:
            raise ServingError(f"{url} as {alias}: {answer.status}: {answer.text}")
        return answer.release

    async def _call(
        self, method: str, url: str, seconds: float, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> _Answer:
        timeout = aiohttp.ClientTimeout(total=seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            async with self._session.request(
                method, url, timeout=timeout, headers={**self._headers, **(headers or {})}, data=body, allow_redirects=False
            ) as answer:
                return _Answer(answer.status, answer.headers.get(HEADER_RELEASE), await _read(answer))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServingError(f"{method} {url}: no answer: {str(error) or type(error).__name__}") from error


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """The whole body, as long as it is no longer than a report may be: a pod is not trusted with our memory."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES:
            raise ServingError(f"{answer.url}: the answer is longer than {ANSWER_BYTES} bytes")
    return bytes(body)


def _report(url: str, answer: _Answer) -> PodReport:
    try:
        return PodReport.parse_json(answer.body)
    except ContractError as error:
        why = str(error) if answer.status == 200 else answer.text
        raise ServingError(f"{url}: {answer.status}: no report of a gatevalve pod: {why}") from error


def _channel_url(pod: PodAddress, channel: str) -> str:
    return f"{_root(pod)}/gatevalve/v1/channels/{channel}"


def _root(pod: PodAddress) -> str:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"http://{host}:{pod.port}"
