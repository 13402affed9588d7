"""The pod: its channels, the tasks that keep them, and the engine they share. Started and stopped with the server's lifespan."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Awaitable, Callable

from gatevalve.contracts.errors import ContractError, ServingError
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import ChannelDocument, PodReport, SignedDocument
from gatevalve_serving.api_key import ApiKeys
from gatevalve_serving.base import read_base
from gatevalve_serving.bypass import Attempts
from gatevalve_serving.capture import Capture
from gatevalve_serving.channel import Channel, Desk
from gatevalve_serving.config import Settings
from gatevalve_serving.documents import Shelf, Trust
from gatevalve_serving.engine import EngineFacts
from gatevalve_serving.fetch import local_path
from gatevalve_serving.inner import Engine
from gatevalve_serving.pool_files import PoolFiles
from gatevalve_serving.problem import Problem
from gatevalve_serving.progress import Progress
from gatevalve_serving.workbench import Workbench

LOG = logging.getLogger("gatevalve.serving")
DIGEST_DIGITS = re.compile(r"[0-9a-f]{8}")
"""How an adapter's name ends: see gatevalve.contracts.names.adapter_name."""


class Pod:
    """Everything the middleware keeps in memory."""

    def __init__(self, settings: Settings, engine: Engine, facts: EngineFacts, keys: ApiKeys) -> None:
        self.settings, self.keys = settings, keys
        self.bench = Workbench(settings, engine, facts)
        progress = Progress()
        self.desk = Desk(
            Trust(settings.keys_path, settings.key_digest),
            Shelf(settings.cache_path / "documents"),
            progress,
            Attempts(progress, settings.timing.tell_refused),
        )
        self.channels: dict[str, Channel] = {}
        self.capture = Capture(settings)
        self.warm = False
        self.was_ready = False
        self._pool_files = PoolFiles(settings.pool_path)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read what is held, then keep it in the background."""
        await asyncio.to_thread(self.settings.cache_path.mkdir, parents=True, exist_ok=True)
        self.capture.start()
        for signed in (await asyncio.to_thread(self.desk.shelf.read)).values():
            self.take(signed.document.channel, signed)
        await self._look_at_pool()
        await asyncio.to_thread(self._forget_unwanted_files)
        timing = self.settings.timing
        self._tasks = [
            self._keep("look for foreign adapters", self._look_for_foreign_adapters, timing.registry),
            self._keep("read the base", self._read_base, None),
            self._keep("warm up", self._warm_up, None),
            self._keep("watch the pool's documents", self._look_at_pool, timing.poll),
            self._keep("reconcile", self._reconcile, timing.tick),
        ]

    async def stop(self) -> None:
        """End the tasks and close the open segments; requests in flight are over by now."""
        tasks = [*self._tasks, *(task for channel in self.channels.values() for task in channel.close())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.capture.stop)

    def take(self, name: str, signed: SignedDocument) -> tuple[Problem | None, PodReport]:
        """Offer a channel a document, from wherever it came; its signature decides. Returns why it was refused, and the report.

        A refusal is told in this report only: nothing that others see changes."""
        channel = self.channels.get(name) or Channel(name, self.bench, self.desk)
        problem = channel.offer(signed, self._documents_beside(name))
        if problem is None:
            self.channels[name] = channel
        else:
            channel.count_refusal(problem)
        return problem, channel.report(problem)

    def report(self, name: str) -> PodReport:
        """The report of one channel, also of one that this pod knows nothing of."""
        return (self.channels.get(name) or Channel(name, self.bench, self.desk)).report()

    def is_adapter(self, name: object) -> bool:
        """A name is an adapter's: the engine may know it, or it is built as those of a channel of this pod are."""
        if not isinstance(name, str):
            return False
        channel, _, digest = name.rpartition("-")
        return name in self.bench.registry.names or (channel in self.channels and DIGEST_DIGITS.fullmatch(digest) is not None)

    def _documents_beside(self, name: str) -> list[ChannelDocument]:
        held = (channel.document for other, channel in self.channels.items() if other != name)
        return [document for document in held if document is not None]

    async def _look_at_pool(self) -> None:
        refused: dict[str, Problem] = {}
        for name, raw in (await asyncio.to_thread(self._pool_files.changed)).items():
            channel = self.channels.setdefault(name, Channel(name, self.bench, self.desk))
            problem = self._take_file(channel, raw)
            if problem is not None and problem.reason is not PodReason.REVISION_OLD:
                refused[name] = problem
                self._pool_files.forget(name)  # so that a file refused before and not given now is sound, or gone
        for name, channel in self.channels.items():
            channel.note_file(refused.get(name))

    def _take_file(self, channel: Channel, raw: bytes) -> Problem | None:
        try:
            signed = SignedDocument.parse_json(raw)
        except ContractError as error:
            return Problem(PodReason.MALFORMED, str(error)[:1000])
        return channel.offer(signed, self._documents_beside(channel.name))

    async def _read_base(self) -> None:
        path, cache = self.bench.facts.base_path, self.settings.cache_path / "base.json"
        base = await asyncio.to_thread(read_base, path, cache)
        LOG.info("base %s has digest %s", path, base.digest or base.problem)
        self.bench.learn_base(base)
        self.desk.progress.bump()
        await self._reconcile()

    async def _warm_up(self) -> None:
        while not self.warm:
            try:
                self.warm = await self.bench.engine.warm_up(self.settings.timing.generation)
            except ServingError as error:
                LOG.warning("%s", error)
            if not self.warm:
                await asyncio.sleep(self.settings.timing.tick)
        self.desk.progress.bump()

    async def _look_for_foreign_adapters(self) -> None:
        if await self.bench.registry.look():
            LOG.warning("adapters that no document put into the engine: %s", ", ".join(self.bench.registry.shown) or "none any more")
            self.desk.progress.bump()
            for channel in self.channels.values():
                channel.look_at_adapters()

    async def _reconcile(self) -> None:
        self.desk.attempts.tell()
        for channel in list(self.channels.values()):
            try:
                channel.reconcile()
            except Exception:
                LOG.exception("channel %s", channel.name)

    def _forget_unwanted_files(self) -> None:
        """Delete adapters that an earlier process of this Pod left behind: this engine has loaded nothing yet."""
        cache, documents = self.bench.adapters_path, ((name, channel.document) for name, channel in self.channels.items())
        wanted = {local_path(cache, name, spec) for name, document in documents if document for spec in document.adapters}
        for path in cache.glob("*"):
            if path not in wanted:
                shutil.rmtree(path, ignore_errors=True)

    def _keep(self, what: str, work: Callable[[], Awaitable[None]], every: float | None) -> asyncio.Task[None]:
        return asyncio.create_task(_survive(what, work, every), name=what)


async def _survive(what: str, work: Callable[[], Awaitable[None]], every: float | None) -> None:
    """Do the work until it succeeds, or for ever; an exception is logged and never ends the server."""
    while True:
        try:
            await work()
            if every is None:
                return
        except Exception:
            LOG.exception("%s", what)
        await asyncio.sleep(every or 1.0)
