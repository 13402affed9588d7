"""Requests through an alias: read, route, send to the engine, relay the answer, capture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Receive, Scope, Send

from gatevalve.contracts.names import HEADER_PROBE
from gatevalve_serving.asgi import answer_error, header, read_body, replay, to_json
from gatevalve_serving.bypass import Bypass, content_names_an_adapter
from gatevalve_serving.capture import Origin
from gatevalve_serving.clock import timestamp
from gatevalve_serving.generation import LARGEST_CAPTURED, Job, Route, job
from gatevalve_serving.metrics import CAPTURE_DROPPED, IN_FLIGHT, REFUSED, REQUESTS
from gatevalve_serving.pod import Pod
from gatevalve_serving.relay import Relay
from gatevalve_serving.routes import ChannelRoutes
from gatevalve_serving.tally import records

REWRITTEN = (b"content-length", b"content-type", b"x-request-id", b"transfer-encoding")

OK = 200


async def serve_generation(route: Route, pod: Pod, engine: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /v1/chat/completions` and `/v1/completions`."""
    body = await read_body(receive)
    asked = await _asked(body, send)
    routes = await _routes(pod, asked, scope, send) if asked is not None else None
    if asked is None or routes is None:
        return
    work = job(route, routes, uuid4().hex, asked, _capturable(scope, body, routes))
    if work.target.adapter_digest is None and content_names_an_adapter(asked, pod.is_adapter):
        await _refuse_content(pod, scope, send)
        return
    relay = Relay(work, send, partial(pod.capture.know, origin=_origin(routes)))
    with pod.bench.in_flight.hold(work.target.model), IN_FLIGHT.labels(routes.channel).track_inprogress():
        try:
            await _to_engine(engine, scope, receive, relay.send, work.sent, work.request_id)
        finally:
            REQUESTS.labels(routes.channel, _outcome(relay)).inc()
            if work.captured and relay.status == OK:
                _capture(pod, work, relay)


async def serve_tokenize(pod: Pod, engine: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /tokenize`: counts tokens for an alias; needs one, like every route that names a model."""
    asked = await _asked(await read_body(receive), send)
    routes = await _routes(pod, asked, scope, send) if asked is not None else None
    if asked is None or routes is None:
        return
    request_id = uuid4().hex
    target = routes.pick(request_id)
    with pod.bench.in_flight.hold(target.model):
        await _to_engine(engine, scope, receive, send, {**asked, "model": target.model}, request_id)


async def _asked(body: bytes, send: Send) -> dict[str, Any] | None:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if isinstance(asked, dict):
        return asked
    await answer_error(send, 400, "the request's body must be a JSON object")
    return None


async def _routes(pod: Pod, asked: dict[str, Any], scope: Scope, send: Send) -> ChannelRoutes | None:
    """The routes behind the alias that the request names; everything else does not exist, the base and adapters included."""
    model = asked.get("model")
    if routes := pod.desk.table.of_alias(model):
        return routes
    if any(channel.document and channel.document.alias == model for channel in pod.channels.values()):
        await answer_error(send, 503, f"model {model} is being brought up on this pod", "model", [(b"retry-after", b"1")])
        return None
    _count_unserved(pod, model, scope)
    valid = ", ".join(pod.desk.table.aliases()) or "none yet"
    await answer_error(send, 404, f"model {model} is not served; valid: {valid}", "model")
    return None


def _count_unserved(pod: Pod, model: object, scope: Scope) -> None:
    if not pod.is_adapter(model):
        REFUSED.labels("no_such_model").inc()
        return
    REFUSED.labels(Bypass.MODEL).inc()
    pod.desk.attempts.note(Bypass.MODEL, scope["method"], scope["path"])


async def _refuse_content(pod: Pod, scope: Scope, send: Send) -> None:
    REFUSED.labels(Bypass.CONTENT).inc()
    pod.desk.attempts.note(Bypass.CONTENT, scope["method"], scope["path"])
    message = "a content part's type is the name of an adapter in the engine, which would answer in the base's place"
    await answer_error(send, 400, message, "messages")


async def _to_engine(engine: ASGIApp, scope: Scope, receive: Receive, send: Send, body: Mapping[str, Any], request_id: str) -> None:
    """The same request with another body, and an id of ours: with an id of its choice a client could score somebody else's reply."""
    raw = to_json(body)
    headers = [(key, value) for key, value in scope["headers"] if key not in REWRITTEN]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(raw)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    await engine({**scope, "headers": headers}, replay(raw, receive), send)


def _outcome(relay: Relay) -> str:
    if relay.status is None or not relay.complete:
        return "aborted"
    return "ok" if relay.status < 400 else "client_error" if relay.status < 500 else "server_error"


def _capturable(scope: Scope, body: bytes, routes: ChannelRoutes) -> bool:
    if not routes.capture.enabled or header(scope, HEADER_PROBE.encode()) is not None:
        return False
    if len(body) > LARGEST_CAPTURED:
        CAPTURE_DROPPED.labels(routes.channel, "too_large").inc()
        return False
    return True


def _capture(pod: Pod, work: Job, relay: Relay) -> None:
    if not relay.complete:
        CAPTURE_DROPPED.labels(work.routes.channel, "incomplete").inc()
        return
    facts = pod.bench.facts
    make = partial(records, work, relay.tally, timestamp(), facts.default_sampling, facts.samples_plainly)
    pod.capture.reply(_origin(work.routes), make)


def _origin(routes: ChannelRoutes) -> Origin:
    return Origin(routes.channel, routes.uid, routes.capture.segment_seconds)
