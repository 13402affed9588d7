"""Calls to the engine in this process: the middleware asks the application it wraps, as a client with the API key would."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from gatevalve.contracts.errors import ServingError
from gatevalve_serving.asgi import to_json

LOG = logging.getLogger("gatevalve.serving")
WARM_UP_TOKEN = 1


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body of an answer."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The start of the body, for messages."""
        return self.body[:400].decode(errors="replace")

    def json(self) -> Any:
        """The decoded body; raises ServingError when it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ServingError(f"the engine answered {self.status} without JSON: {self.text}") from error


class Engine:
    """The wrapped application. `app` is the application object that Starlette puts into every scope: routes fail without it."""

    def __init__(self, wrapped: ASGIApp, app: Any, base_name: str, bearer: str | None) -> None:
        self._wrapped, self._app, self._base_name, self._bearer = wrapped, app, base_name, bearer

    @property
    def ending(self) -> bool:
        """The server has been told to stop: whoever waits on a connection keeps it from ending."""
        return bool(getattr(getattr(self._app.state, "server", None), "should_exit", False))

    async def healthy(self) -> bool:
        """The engine answers its health check."""
        return (await self.call("GET", "/health", seconds=10)).status == 200

    async def adapters(self) -> dict[str, str]:
        """Registered adapters: name to path."""
        reply = await self.call("GET", "/v1/models", seconds=10)
        if reply.status != 200:
            raise ServingError(f"GET /v1/models answered {reply.status}: {reply.text}")
        return {card["id"]: card["root"] for card in reply.json()["data"] if card.get("parent")}

    async def load(self, name: str, path: str, seconds: float) -> Reply:
        """Register an adapter under a name; a wrong adapter answers 4xx or 5xx, and 200 does not prove that it fits."""
        return await self.call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, seconds)

    async def unload(self, name: str) -> Reply:
        """Forget an adapter's name; requests in flight finish on it."""
        return await self.call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, 30)

    async def warm_up(self, seconds: float) -> bool:
        """Generate one token on the base: the first generation after a start takes seconds although the engine says healthy."""
        body = {"model": self._base_name, "prompt": [WARM_UP_TOKEN], "max_tokens": 1, "temperature": 0}
        return (await self.call("POST", "/v1/completions", body, seconds)).status == 200

    async def call(self, method: str, path: str, body: Any = None, seconds: float = 60) -> Reply:
        """One request; an exception in the engine is a 500, silence a ServingError."""
        raw = to_json(body) if body is not None else b""
        try:
            async with asyncio.timeout(seconds):  # not wait_for, which loses a cancellation in Python 3.11
                return await self._exchange(self._scope(method, path, len(raw)), raw)
        except TimeoutError as error:
            raise ServingError(f"{method} {path}: the engine did not answer within {seconds:g} s") from error

    async def _exchange(self, scope: dict[str, Any], raw: bytes) -> Reply:
        status, parts = 500, list[bytes]()
        pending, over = [raw], asyncio.Event()

        async def receive() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            parts.append(message.get("body", b""))

        try:
            await self._wrapped(scope, receive, send)
        except Exception as error:
            LOG.warning("%s %s failed in the engine", scope["method"], scope["path"], exc_info=True)
            return Reply(500, f"{type(error).__name__}: {error}".encode())
        finally:
            over.set()
        return Reply(status, b"".join(parts))

    def _scope(self, method: str, path: str, length: int) -> dict[str, Any]:
        headers = [(b"host", b"gatevalve"), (b"content-type", b"application/json"), (b"content-length", str(length).encode())]
        if self._bearer:
            headers.append((b"authorization", self._bearer.encode()))
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
            "state": {},
            "app": self._app,
        }
