"""The few ASGI moves the middleware needs: read a body, answer JSON or an OpenAI-style error, hand a body on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from starlette.types import Message, Receive, Scope, Send

Headers = Iterable[tuple[bytes, bytes]]


class BodyTooLarge(Exception):
    """The request's body is longer than the route takes."""


class ClientGone(Exception):
    """The client closed the connection before its body was complete."""


async def read_body(receive: Receive, limit: int | None = None) -> bytes:
    """The whole request body; raises BodyTooLarge beyond `limit` bytes and ClientGone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if limit is not None and len(body) > limit:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives `body` first and then whatever the connection says, such as its end."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def header(scope: Scope, name: bytes) -> str | None:
    """The first value of a request header (name in lower case)."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def to_json(value: Any) -> bytes:
    """Compact JSON as UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


async def answer(send: Send, status: int, body: bytes, headers: Headers = (), content_type: bytes = b"application/json") -> None:
    """A complete response."""
    base = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*base, *headers]})
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, status: int, value: Any, headers: Headers = ()) -> None:
    """A complete JSON response."""
    await answer(send, status, to_json(value), headers)


async def answer_error(send: Send, status: int, message: str, param: str | None = None, headers: Headers = ()) -> None:
    """An error in the form that OpenAI clients and vLLM use."""
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    await answer_json(send, status, {"error": {"message": message, "type": kind, "param": param, "code": status}}, headers)
