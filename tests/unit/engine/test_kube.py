"""Answers of an API server as typed errors."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from gatevalve.contracts.errors import AlreadyExistsError, ClusterError, ConflictError, InvalidError, NotFoundError
from gatevalve.io.kube import KubeCluster
from gatevalve.io.ports import JOBS

ANSWERS: dict[str, tuple[int, str, type[ClusterError]]] = {
    "a body that cannot be read as a Job": (400, "BadRequest", InvalidError),
    "a quota or a policy": (403, "Forbidden", ClusterError),
    "a missing object": (404, "NotFound", NotFoundError),
    "a name that is taken": (409, "AlreadyExists", AlreadyExistsError),
    "an object that changed": (409, "Conflict", ConflictError),
    "a field that validation refuses": (422, "Invalid", InvalidError),
    "an API server in trouble": (500, "InternalError", ClusterError),
}


@pytest.mark.parametrize("sentence", ANSWERS)
async def test_the_type_tells_of(sentence: str) -> None:
    code, reason, kind = ANSWERS[sentence]

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "reason": reason, "message": "why"}, status=code)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        cluster = KubeCluster(Configuration(host=str(server.make_url(""))), "team")
        try:
            with pytest.raises(ClusterError, match=f"{code} {reason}: why") as refusal:
                await cluster.create(JOBS, {"metadata": {"name": "j"}})
        finally:
            await cluster.close()
    assert type(refusal.value) is kind
