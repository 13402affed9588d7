"""The ASGI middleware: `vllm serve ... --middleware gatevalve_serving.middleware.Gatevalve`.

It stands outside everything of vLLM's, the API key check included: what it does not let through, the engine never sees.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gatevalve_serving import answers
from gatevalve_serving.allow_list import Allowed, Target, find
from gatevalve_serving.api_key import ApiKeys
from gatevalve_serving.asgi import BodyTooLarge, ClientGone, answer_error
from gatevalve_serving.bypass import Bypass, carries_an_adapter_header, tries_an_adapter_route
from gatevalve_serving.config import Settings
from gatevalve_serving.engine import engine_facts
from gatevalve_serving.inner import Engine
from gatevalve_serving.metrics import REFUSED
from gatevalve_serving.pod import Pod
from gatevalve_serving.serve import serve_generation, serve_tokenize

LOG = logging.getLogger("gatevalve.serving")
POLICY_VIOLATION = 1008


class Gatevalve:
    """The middleware class that vLLM instantiates around its application; settings come from the Pod's environment."""

    def __init__(self, app: ASGIApp, settings: Settings | None = None) -> None:
        self.app = app
        self.settings = settings or Settings.from_environment(os.environ)
        self.pod: Pod | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        elif scope["type"] == "websocket":
            self._note(Bypass.WEBSOCKET, scope)
            await _refuse_websocket(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_and_stop() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self.pod is not None:
                await self.pod.stop()
            return message

        async def start_and_send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                await self._start(scope["app"])
            await send(message)

        await self.app(scope, receive_and_stop, start_and_send)

    async def _start(self, app: Any) -> None:
        speak_up()
        facts = engine_facts(app, os.environ)
        keys = ApiKeys(facts.api_keys)
        self.pod = Pod(self.settings, Engine(self.app, app, facts.base_name, keys.bearer), facts, keys)
        settings = self.settings
        LOG.info("pod %s of pool %s, boot %s, trusts key %s", settings.pod, settings.pool, settings.boot, settings.key_digest)
        await self.pod.start()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = find(scope["method"], scope["path"])
        attempt = _bypass(allowed, scope)
        self._note(attempt, scope)
        if allowed is None:
            message = f"{scope['method']} {scope['path']} is not served here; clients use an alias of GET /v1/models in "
            await _refuse(send, attempt or "not_allowed", 404, message + "POST /v1/chat/completions or /v1/completions")
        elif attempt is not None:
            await _refuse(send, attempt, 400, "SageMaker's adapter headers are not served here; name an alias as model")
        elif self.pod is None:
            await answer_error(send, 503, "the server is starting")
        elif allowed.needs_key and not self.pod.keys.admit(scope):
            await _refuse(send, "unauthorized", 401, "send the API key as Authorization: Bearer <key>")
        else:
            await self._dispatch(self.pod, allowed, scope, receive, send)

    def _note(self, attempt: Bypass | None, scope: Scope) -> None:
        """Where a key is asked for, what a stranger without it tries is counted, not told: the alarm is not theirs to ring."""
        if attempt is not None and self.pod is not None and self.pod.keys.admit(scope):
            self.pod.desk.attempts.note(attempt, scope.get("method", "WEBSOCKET"), scope["path"])

    async def _dispatch(self, pod: Pod, allowed: Allowed, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            match allowed.target:
                case Target.CHAT:
                    await serve_generation("chat", pod, self.app, scope, receive, send)
                case Target.COMPLETIONS:
                    await serve_generation("completions", pod, self.app, scope, receive, send)
                case Target.TOKENIZE:
                    await serve_tokenize(pod, self.app, scope, receive, send)
                case Target.ENGINE:
                    await self.app(scope, receive, send)
                case _:
                    await answers.OURS[allowed.target](pod, allowed.channel, scope, receive, send)
        except BodyTooLarge:
            await answer_error(send, 413, "the request's body is too long for this route")
        except ClientGone:
            return


def _bypass(allowed: Allowed | None, scope: Scope) -> Bypass | None:
    if allowed is None and tries_an_adapter_route(scope["path"]):
        return Bypass.ROUTE
    return Bypass.HEADER if carries_an_adapter_header(scope) else None


def speak_up() -> None:
    """Show this package's log lines on standard error: vLLM sets up its own logger only."""
    if not LOG.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [%(name)s] %(message)s", "%m-%d %H:%M:%S"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
        LOG.propagate = False


async def _refuse(send: Send, reason: str, status: int, message: str) -> None:
    REFUSED.labels(reason).inc()
    await answer_error(send, status, message)


async def _refuse_websocket(receive: Receive, send: Send) -> None:
    await receive()
    REFUSED.labels(Bypass.WEBSOCKET).inc()
    await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "websockets are not served here"})
