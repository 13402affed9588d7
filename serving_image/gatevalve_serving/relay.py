"""Relay: the engine's answer to the client, rewritten on the way, whole or event by event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Send

from gatevalve.contracts.names import HEADER_RELEASE
from gatevalve_serving.asgi import to_json
from gatevalve_serving.generation import Job, to_client
from gatevalve_serving.tally import Tally

EVENT_END = b"\n\n"
DATA = b"data: "


class Relay:
    """An ASGI send that stands between the engine and the client. `complete`: the engine has sent its last byte.

    `know` is told the reply's id before the client can see it.
    """

    def __init__(self, job: Job, send: Send, know: Callable[[str], None]) -> None:
        self.status: int | None = None
        self.complete = False
        self.tally = Tally()
        self._job, self._send, self._know = job, send, know
        self._start: Message = {}
        self._streams = False
        self._pending = bytearray()

    async def send(self, message: Message) -> None:
        """Take one message of the engine."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await (self._stream if self._streams else self._collect)(message)
        else:
            await self._send(message)

    async def _begin(self, message: Message) -> None:
        self.status = message["status"]
        self._start = {**message, "headers": [*message["headers"], (HEADER_RELEASE.encode(), self._job.target.entry.encode())]}
        self._streams = any(key == b"content-type" and value.startswith(b"text/event-stream") for key, value in message["headers"])
        if self._streams:
            await self._send(self._start)

    async def _collect(self, message: Message) -> None:
        self._pending += message.get("body", b"")
        if message.get("more_body", False):
            return
        self.complete = True
        body = self._whole(bytes(self._pending))
        headers = [(key, value) for key, value in self._start["headers"] if key != b"content-length"]
        await self._send({**self._start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
        await self._send({"type": "http.response.body", "body": body})

    async def _stream(self, message: Message) -> None:
        self._pending += message.get("body", b"")
        *events, rest = bytes(self._pending).split(EVENT_END)
        out = b"".join(self._event(event) for event in events)
        more = message.get("more_body", False)
        if not more:
            out += self._without_adapter_name(rest)
            self.complete = True
        self._pending = bytearray(rest)
        if out or not more:
            await self._send({"type": "http.response.body", "body": out, "more_body": more})

    def _whole(self, body: bytes) -> bytes:
        payload = _object(body)
        if payload is None or self.status != 200:
            return self._without_adapter_name(body)
        self._tell(payload)
        to_client(self._job, payload)
        return to_json(payload)

    def _event(self, event: bytes) -> bytes:
        payload = _object(event.removeprefix(DATA)) if event.startswith(DATA) else None
        if payload is None or "error" in payload:
            return self._without_adapter_name(event) + EVENT_END
        self._tell(payload)
        return DATA + to_json(payload) + EVENT_END if to_client(self._job, payload) else b""

    def _tell(self, payload: dict[str, Any]) -> None:
        if not self._job.captured:
            return
        news = self.tally.id is None
        self.tally.add(payload)
        if news and self.tally.id is not None:
            self._know(self.tally.id)

    def _without_adapter_name(self, text: bytes) -> bytes:
        """Errors name the model: the client's name for it is the alias."""
        return text.replace(self._job.target.model.encode(), self._job.routes.alias.encode())


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
