"""One adapter on this pod: Fetching, Loading, Probing, Verified, or Failed with a reason; Draining once nobody wants it.

Every adapter has one task from its first mention to the deletion of its files. The task looks at `wanted` after every step, so that a
document that arrives in the middle of a load is obeyed; a failure is tried again with growing pauses and shows as Failed all the while.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress

from gatevalve.contracts.errors import ServingError
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import AdapterOnPod, AdapterReport, AdapterState
from gatevalve_serving import probe
from gatevalve_serving.fetch import LocalAdapter, fetch, local_path
from gatevalve_serving.fit import check_fit
from gatevalve_serving.inner import Reply
from gatevalve_serving.probe import TopLogprobs
from gatevalve_serving.problem import LONGEST_MESSAGE, AdapterProblem, Problem
from gatevalve_serving.workbench import Workbench

LOG = logging.getLogger("gatevalve.serving")
OK, NOT_FOUND = 200, 404

PATIENCE = 3
"""Probes of a verified adapter that may stay unanswered, as under overload, before it counts as failed."""


class Adapter:
    """An adapter and the task that keeps it as wanted. `changed` is called whenever its report changes."""

    def __init__(self, channel: str, spec: AdapterOnPod, drain_seconds: int, bench: Workbench, changed: Callable[[], None]) -> None:
        self.spec, self._place = spec, local_path(bench.adapters_path, channel, spec)
        self._drain_seconds, self._bench, self._changed = drain_seconds, bench, changed
        self._state = AdapterState.FETCHING
        self._problem: Problem | None = None
        self._wanted, self._registered, self._failures = True, False, 0
        self._load_ms: int | None = None
        self._probe_ms: int | None = None
        self._base_answers: list[TopLogprobs] | None = None
        self._local: LocalAdapter | None = None
        self._woken = asyncio.Event()
        self.task = asyncio.create_task(self._live(), name=f"adapter {spec.name}")

    @property
    def verified(self) -> bool:
        """Loaded, and its last probe passed."""
        return self._state is AdapterState.VERIFIED

    @property
    def failure(self) -> Problem | None:
        """Why it is Failed."""
        return self._problem

    def want(self, wanted: bool, drain_seconds: int) -> None:
        """Keep it, or let it go once its requests are done or `drain_seconds` are over."""
        self._drain_seconds = drain_seconds
        if wanted != self._wanted:
            self._wanted = wanted
            self._woken.set()

    def try_again(self) -> None:
        """Do not wait for the next attempt."""
        if self._problem is not None:
            self._woken.set()

    def look_now(self) -> None:
        """Do not wait for the next probe: something in the engine has changed."""
        self._woken.set()

    def report(self) -> AdapterReport:
        """What the pod says of it."""
        return AdapterReport(
            name=self.spec.name,
            digest=self.spec.digest,
            state=self._state,
            reason=self._problem.reason if self._problem else None,
            message=self._problem.message if self._problem else None,
            in_flight=self._bench.in_flight.count(self.spec.name),
            load_ms=self._load_ms,
            probe_ms=self._probe_ms,
        )

    async def _live(self) -> None:
        while self._wanted:
            await self._keep()
            await self._retire()

    async def _keep(self) -> None:
        while self._wanted:
            pause = self._bench.settings.timing.probe
            try:
                await self._bring_up()
                self._failures = 0
            except AdapterProblem as failure:
                pause = self._failed(failure.problem)
            except ServingError as silence:
                pause = self._unanswered(silence)
            except Exception as error:
                LOG.exception("adapter %s", self.spec.name)
                pause = self._failed(Problem(PodReason.LOAD_FAILED, f"{type(error).__name__}: {error}"[:LONGEST_MESSAGE]))
            await self._pause(pause)

    async def _bring_up(self) -> None:
        if self._registered:
            await self._look_again()
        if not self._registered:
            await self._prepare()
            if not self._wanted:
                return
            await self._register()
        if self._wanted and self._local:
            await self._verify(self._local)

    async def _prepare(self) -> None:
        self._enter(AdapterState.FETCHING)
        if not self._bench.facts.limits.runtime_lora:
            raise AdapterProblem(PodReason.RUNTIME_LORA_DISABLED, "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
        base = await self._bench.the_base()
        if base.digest is None:
            raise AdapterProblem(PodReason.BASE_MISMATCH, base.problem or "the base's files cannot be read")
        local = await asyncio.to_thread(fetch, self._bench.settings.data_url, self.spec, self._place)
        await asyncio.to_thread(check_fit, local.path, local.manifest, base.digest, base.shapes, self._bench.facts.limits)
        self._local = local

    async def _register(self) -> None:
        self._enter(AdapterState.LOADING)
        async with self._bench.loading:
            started = time.monotonic()
            if not await self._is_registered():
                self._bench.registry.claim(self.spec.name, self._path)
                reply = await self._bench.engine.load(self.spec.name, self._path, self._bench.settings.timing.load)
                if reply.status != OK:
                    raise AdapterProblem(PodReason.LOAD_FAILED, f"the engine answered {reply.status}: {reply.text}")
            self._registered = True
            self._load_ms = _milliseconds_since(started)

    async def _look_again(self) -> None:
        """Somebody else may have unloaded it, or put another adapter under its name: that one goes, and ours is loaded anew."""
        try:
            self._registered = await self._is_registered()
        except AdapterProblem:
            self._registered = not await self._unloaded()
            raise

    async def _is_registered(self) -> bool:
        """The engine's own list is the truth: an earlier attempt may have been given up and still have arrived."""
        registered = await self._bench.engine.adapters()
        if self.spec.name in registered:
            if registered[self.spec.name] == self._path:
                return True
            raise AdapterProblem(
                PodReason.LOAD_FAILED, f"the engine has another adapter named {self.spec.name}, from {registered[self.spec.name]}"
            )
        places, taken = self._bench.facts.limits.max_cpu_loras, self._bench.registry.places_taken(registered)
        if taken >= places:
            raise AdapterProblem(PodReason.CAPACITY_EXCEEDED, f"{taken} adapters are loaded, --max-cpu-loras is {places}")
        return False

    async def _verify(self, local: LocalAdapter) -> None:
        if self._problem is None and not self.verified:
            self._enter(AdapterState.PROBING)
        started = time.monotonic()
        problem = await self._probe(local)
        self._probe_ms = _milliseconds_since(started)
        if problem is not None:
            raise AdapterProblem(problem.reason, problem.message)
        self._problem = None
        self._enter(AdapterState.VERIFIED)

    async def _probe(self, local: LocalAdapter) -> Problem | None:
        bench, probes = self._bench, local.manifest.probes
        limits = (bench.facts.max_logprobs, bench.settings.timing.generation)
        if self._base_answers is None:
            self._base_answers = await probe.ask(bench.engine, bench.facts.base_name, probes, *limits)
        with bench.in_flight.hold(self.spec.name):
            answers = await probe.ask(bench.engine, self.spec.name, probes, *limits)
        return probe.judge(probe.distances(probes, answers, self._base_answers))

    async def _retire(self) -> None:
        self._problem = None
        self._enter(AdapterState.DRAINING)
        await self._idle_or_woken(self._drain_seconds)
        while self._bench.registry.claimed(self.spec.name, self._path) and not self._wanted:
            await self._unload()
        while not self._wanted and self._bench.in_flight.count(self.spec.name):
            await self._idle_or_woken(None)  # the engine may read the files again for a request in flight
        if not self._registered and not self._wanted:
            await asyncio.to_thread(shutil.rmtree, self._path, ignore_errors=True)

    async def _idle_or_woken(self, seconds: float | None) -> None:
        """Wait for the end of the requests in flight, for a change of mind, or for the time given."""
        if self._wanted:
            return
        idle = asyncio.ensure_future(self._bench.in_flight.idle(self.spec.name))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((idle, woken), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
            woken.cancel()
            self._woken.clear()

    async def _unload(self) -> None:
        """Also after a load that was given up: the engine may have done it all the same."""
        if await self._unloaded():
            self._registered = False
            self._bench.registry.release(self.spec.name, self._path)

    async def _unloaded(self) -> bool:
        try:
            reply = await self._bench.engine.unload(self.spec.name)
        except Exception:
            LOG.exception("unloading adapter %s", self.spec.name)
            reply = Reply(500, b"")
        if reply.status in (OK, NOT_FOUND):
            return True
        await self._pause(self._bench.settings.timing.retry_first)
        return False

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    def _unanswered(self, silence: ServingError) -> float:
        """The engine did not answer: that says nothing of a verified adapter until it happens again and again."""
        if self.verified and self._failures < PATIENCE:
            LOG.warning("adapter %s: %s", self.spec.name, silence)
            self._failures += 1
            return self._bench.settings.timing.retry_first
        reason = PodReason.PROBE_FAILED if self._registered else PodReason.LOAD_FAILED
        return self._failed(Problem(reason, str(silence)[:LONGEST_MESSAGE]))

    def _failed(self, problem: Problem) -> float:
        """Note a failure; returns the pause before the next attempt, in seconds."""
        LOG.warning("adapter %s: %s: %s", self.spec.name, problem.reason, problem.message)
        self._problem = problem
        self._failures += 1
        self._enter(AdapterState.FAILED)
        timing = self._bench.settings.timing
        return float(min(timing.retry_first * 2 ** (self._failures - 1), timing.retry_longest))

    def _enter(self, state: AdapterState) -> None:
        shown = AdapterState.FAILED if self._problem else state
        if shown is not self._state or self._problem:
            self._state = shown
            self._changed()

    @property
    def _path(self) -> str:
        return str(self._place)


def _milliseconds_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
