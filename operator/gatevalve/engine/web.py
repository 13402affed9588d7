"""The operator's own HTTP: /metrics, /healthz (fails when reconciling stalls) and /readyz (everything was read once)."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from gatevalve.contracts import metrics as contracts
from gatevalve.engine.engine import Engine


def application(engine: Engine, registry: CollectorRegistry) -> web.Application:
    """The three routes."""

    async def metrics(_: web.Request) -> web.Response:
        engine.metrics.gauge(contracts.QUEUE_DEPTH).set(engine.queue.depth)
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        problem = engine.stalled()
        return web.Response(status=503 if problem else 200, text=problem or "ok")

    async def readyz(_: web.Request) -> web.Response:
        ready = engine.is_ready()
        return web.Response(status=200 if ready else 503, text="ok" if ready else "not everything is read yet")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app
