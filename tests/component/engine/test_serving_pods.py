"""The client of serving pods over real HTTP: what is sent, what is understood, and what a pod cannot do to the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gatevalve.contracts.errors import ServingError
from gatevalve.contracts.serving import ChannelDocument, Route, SignedDocument
from gatevalve.io.ports import PodAddress
from gatevalve.io.serving import ANSWER_BYTES, HttpServingPods
from support.engine_world import DIGEST, FakePod, signer

pytestmark = pytest.mark.component

REPORT = FakePod("pod", "127.0.0.1", "uid", progress=3).report("support").wire()


@dataclass
class Pod:
    """An HTTP server whose next answer a test chooses."""

    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        return await self.answer(request)


@dataclass
class Scene:
    pod: Pod
    client: HttpServingPods
    address: PodAddress


def says(
    status: int = 200, body: object = REPORT, headers: dict[str, str] | None = None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        if isinstance(body, bytes):
            return web.Response(status=status, body=body, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return answer


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    pod = Pod(says())
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", pod.handle)
    async with TestServer(app, host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        yield Scene(pod, HttpServingPods(session, "secret"), PodAddress("127.0.0.1", server.port or 0))


def document(tmp_path: Path) -> SignedDocument:
    key = signer(tmp_path)
    plain = ChannelDocument(
        namespace="team",
        pool="support",
        channel="support",
        uid="u",
        base_name="tiny",
        base_digest=DIGEST,
        key_id=key.key_id,
        revision=(1, 0),
        alias="support",
        routes=(Route(entry="support-000001"),),
    )
    return key.sign_document(plain)


async def test_a_document_is_put_with_the_pools_key_and_the_report_comes_back(scene: Scene, tmp_path: Path) -> None:
    signed = document(tmp_path)
    report = await scene.client.put_document(scene.address, signed)
    method, path, headers, body = scene.pod.requests[0]
    assert (method, path, headers["Authorization"]) == ("PUT", "/gatevalve/v1/channels/support", "Bearer secret")
    assert SignedDocument.parse_json(body) == signed
    assert report.progress == 3


async def test_a_pod_that_refuses_a_document_still_reports(scene: Scene, tmp_path: Path) -> None:
    scene.pod.answer = says(409, REPORT | {"reason": "RevisionOld"})
    report = await scene.client.put_document(scene.address, document(tmp_path))
    assert report.reason == "RevisionOld"


async def test_a_long_poll_says_what_is_known(scene: Scene) -> None:
    await scene.client.next_report(scene.address, "support", 3)
    assert scene.pod.requests[0][1] == "/gatevalve/v1/channels/support?after=3&wait=20"


async def test_the_alias_is_asked_for_one_token_as_a_probe_and_the_entry_is_read_from_the_reply(scene: Scene) -> None:
    scene.pod.answer = says(200, {"choices": []}, {"x-gatevalve-release": "support-000007"})
    assert await scene.client.ask_alias(scene.address, "support") == "support-000007"
    method, path, headers, body = scene.pod.requests[0]
    assert (method, path, headers["x-gatevalve-probe"]) == ("POST", "/v1/completions", "1")
    assert b'"max_tokens":1' in body


async def _moved(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:1/elsewhere")


async def _hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(5)
    return web.Response()


TROUBLES: dict[str, tuple[Callable[[web.Request], Awaitable[web.StreamResponse]], str]] = {
    "it refuses the key": (says(401, b"Unauthorized"), "401"),
    "it fails": (says(500, b"Internal Server Error"), "500"),
    "it has no middleware": (says(404, {"detail": "Not Found"}), "404"),
    "its report breaks the contract": (says(200, REPORT | {"revision": "new"}), "revision"),
    "it claims a step that no entry ever gets to": (says(200, REPORT | {"revision": [3, 2**53 - 1]}), "PodReport.revision"),
    "it claims a sequence beyond the log's": (says(200, REPORT | {"revision": [10**6, 0]}), "PodReport.revision"),
    "it claims half a revision": (says(200, REPORT | {"revision": [3]}), "PodReport.revision"),
    "its document is in force and there is none": (says(200, REPORT | {"committed": True, "revision": []}), "committed"),
    "its progress is more than a number on the wire": (says(200, REPORT | {"progress": 10**30}), "PodReport.progress"),
    "its limits are more than numbers on the wire": (
        says(200, REPORT | {"limits": REPORT["limits"] | {"maxLoraRank": -(10**1000)}}),
        "maxLoraRank",
    ),
    "its answer never ends": (says(200, b"x" * (ANSWER_BYTES + 1)), "longer than"),
    "it sends the operator elsewhere": (_moved, "302"),
    "it hangs": (_hangs, "no answer"),
}


@pytest.mark.parametrize("sentence", TROUBLES)
async def test_a_pod_is_in_error_when(sentence: str, scene: Scene) -> None:
    scene.pod.answer, complaint = TROUBLES[sentence]
    with pytest.raises(ServingError, match=complaint):
        await scene.client.report(scene.address, "support", 0.5)


async def test_nobody_listening_is_an_error_at_once(scene: Scene) -> None:
    with pytest.raises(ServingError, match="no answer"):
        await scene.client.report(PodAddress("127.0.0.1", 1), "support", 5)


async def test_an_alias_that_is_refused_is_an_error(scene: Scene) -> None:
    scene.pod.answer = says(404, {"error": {"message": "no such model"}})
    with pytest.raises(ServingError, match="no such model"):
        await scene.client.ask_alias(scene.address, "support")
