"""The operator's entry point: reads the environment, connects the ports, and runs until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import kopf
from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from gatevalve.contracts.errors import GatevalveError
from gatevalve.decide.channel import decide
from gatevalve.engine.engine import Engine, Ports
from gatevalve.engine.handlers import operator_settings, quiet_kopf, registry_for
from gatevalve.engine.settings import Environment
from gatevalve.engine.web import application
from gatevalve.io.clock import SystemClock
from gatevalve.io.kube import KubeCluster, load_configuration
from gatevalve.io.serving import HttpServingPods
from gatevalve.io.signing import Signer
from gatevalve.io.store import Area, FileLog, SealedEvidence

log = logging.getLogger(__name__)


def main() -> None:
    """Run the operator of one namespace until SIGTERM or SIGINT; exits with 1 and one sentence when it cannot start or go on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quiet_kopf()
    try:
        asyncio.run(run(Environment.read(os.environ)))
    except GatevalveError as error:
        sys.exit(f"gatevalve-operator: {error}")


async def run(environment: Environment) -> None:
    """Connect, read everything once, then watch and reconcile. Raises GatevalveError when the start fails."""
    signer = Signer.from_directory(environment.signing_dir)
    async with connected(environment, signer) as ports:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        engine = Engine(ports, environment.settings(signer.key_id, ports.clock.now()), decide, registry)
        async with listening(application(engine, registry), environment.metrics_port):
            stop = told_to_stop()
            await engine.start()
            log.info("serving namespace %s with key %s", environment.place.namespace, signer.key_id)
            await _until_stopped(engine, environment.place.namespace, stop)


@asynccontextmanager
async def connected(environment: Environment, signer: Signer) -> AsyncIterator[Ports]:
    """The real ports, closed in the end."""
    cluster = KubeCluster(await load_configuration(), environment.place.namespace)
    try:
        async with aiohttp.ClientSession() as session:
            yield Ports(
                cluster=cluster,
                serving=HttpServingPods(session, environment.pool_api_key),
                log_store=FileLog(Area(environment.log_url)),
                evidence=SealedEvidence(Area(environment.sealed_url)),
                signer=signer,
                clock=SystemClock(),
            )
    finally:
        await cluster.close()


@asynccontextmanager
async def listening(app: web.Application, port: int) -> AsyncIterator[None]:
    """Serve metrics and probes on every interface: the kubelet asks the Pod's address."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


def told_to_stop() -> asyncio.Event:
    """Set by SIGTERM and SIGINT, also before kopf listens to them."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(wanted, stop.set)
    return stop


async def _until_stopped(engine: Engine, namespace: str, stop: asyncio.Event) -> None:
    """kopf ends on a signal or when a watch fails for good; the engine never ends by itself. Either takes the other along."""
    working = asyncio.create_task(engine.run(), name="engine")
    watching = asyncio.create_task(
        kopf.operator(registry=registry_for(engine), settings=operator_settings(), namespaces=[namespace], standalone=True, stop_flag=stop),
        name="kopf",
    )
    await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    working.cancel()
    results = await asyncio.gather(working, watching, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


if __name__ == "__main__":
    main()
