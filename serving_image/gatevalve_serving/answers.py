"""The routes that the middleware answers itself: channels, readiness, models, feedback."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.serving import Feedback, SignedDocument
from gatevalve_serving.allow_list import Target
from gatevalve_serving.asgi import answer_error, answer_json, read_body
from gatevalve_serving.pod import Pod
from gatevalve_serving.ready import readiness

LONGEST_WAIT = 25.0
SLICE = 0.5
"""Seconds until a long-poll notices that the server ends."""

LARGEST_DOCUMENT = 1 << 20
LARGEST_FEEDBACK = 1 << 14

Handler = Callable[[Pod, str, Scope, Receive, Send], Awaitable[None]]


async def put_channel(pod: Pod, channel: str, scope: Scope, receive: Receive, send: Send) -> None:
    """`PUT /gatevalve/v1/channels/<channel>`: 202 held, 409 refused; the report says why and what is held."""
    try:
        signed = SignedDocument.parse_json(await read_body(receive, LARGEST_DOCUMENT))
    except ContractError as error:
        await answer_error(send, 400, str(error), error.field)
        return
    problem, report = pod.take(channel, signed)
    await answer_json(send, 409 if problem else 202, report.wire())


async def get_channel(pod: Pod, channel: str, scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /gatevalve/v1/channels/<channel>[?after=<progress>&wait=<seconds>]`: the report, once its progress is not `after`."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    try:
        after = int(query["after"][0]) if "after" in query else None
        wait = min(float(query.get("wait", ["0"])[0]), LONGEST_WAIT)
    except ValueError:
        await answer_error(send, 400, "after is a number of progress, wait a number of seconds", "after")
        return
    if after is not None:
        await _wait_for_change(pod, after, wait)
    await answer_json(send, 200, pod.report(channel).wire())


async def _wait_for_change(pod: Pod, after: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while pod.desk.progress.value == after and not pod.bench.engine.ending and (left := deadline - time.monotonic()) > 0:
        await pod.desk.progress.past(after, min(left, SLICE))


async def get_channels(pod: Pod, channel: str, scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /gatevalve/v1/channels`: the reports of all channels."""
    await answer_json(send, 200, [pod.report(name).wire() for name in sorted(pod.channels)])


async def get_readyz(pod: Pod, channel: str, scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /gatevalve/readyz`: 200 or 503, with reasons."""
    ready, reasons = await readiness(pod)
    await answer_json(send, 200 if ready else 503, {"ready": ready, "reasons": reasons})


async def get_models(pod: Pod, channel: str, scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /v1/models`: the aliases; what stands behind them is nobody's business but the release log's."""
    created = int(time.time())
    cards = [{"id": alias, "object": "model", "created": created, "owned_by": "gatevalve"} for alias in pod.desk.table.aliases()]
    await answer_json(send, 200, {"object": "list", "data": cards})


async def post_feedback(pod: Pod, channel: str, scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /v1/feedback`: 202 taken, 404 unknown reply, 422 not a score, 503 the capture queue is full."""
    try:
        feedback = Feedback.parse_json(await read_body(receive, LARGEST_FEEDBACK))
    except ContractError as error:
        await answer_error(send, 422, str(error), error.field)
        return
    taken = pod.capture.feedback(feedback)
    if taken is None:
        await answer_error(
            send, 404, f"this pod has captured no reply {feedback.id}, or too long ago; send feedback to the pod that answered", "id"
        )
    elif not taken:
        await answer_error(send, 503, "capture is busy; send the feedback again", headers=[(b"retry-after", b"1")])
    else:
        await answer_json(send, 202, {"id": feedback.id, "score": feedback.score})


OURS: dict[Target, Handler] = {
    Target.CHANNEL_PUT: put_channel,
    Target.CHANNEL_GET: get_channel,
    Target.CHANNELS: get_channels,
    Target.READYZ: get_readyz,
    Target.MODELS: get_models,
    Target.FEEDBACK: post_feedback,
}
