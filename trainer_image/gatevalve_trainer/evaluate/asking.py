"""Answers every open unit of a test, many at once, and journals each answer as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.journal import Journal
from gatevalve_trainer.evaluate.patience import heed_stop
from gatevalve_trainer.evaluate.progress import Pace
from gatevalve_trainer.evaluate.schedule import Unit

CONCURRENCY = 64
"""Units in flight: an engine batches them; eight at a time take six times as long."""

WATCH_SECONDS = 0.5

Answerer = Callable[[Unit], Awaitable[tuple[Answer, ...]]]


async def ask_all(units: Iterable[Unit], answers: Answerer, journal: Journal, pace: Pace) -> None:
    """Ask what the journal does not hold yet; raises what the first failing unit raised, or Terminated."""
    waiting = (unit for unit in units if any(question.key not in journal.answers for question in unit))
    workers = {asyncio.create_task(_work(waiting, answers, journal, pace)) for _ in range(CONCURRENCY)}
    try:
        await _watch(workers, journal, pace)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _work(waiting: Iterator[Unit], answers: Answerer, journal: Journal, pace: Pace) -> None:
    for unit in waiting:
        for answer in await answers(unit):
            if answer.key not in journal.answers:  # an attempt that died while it wrote a unit down left a part of it
                journal.append(answer)
                pace.count()


async def _watch(workers: set[asyncio.Task[None]], journal: Journal, pace: Pace) -> None:
    pending = workers
    while pending:
        done, pending = await asyncio.wait(pending, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for worker in done:
            worker.result()
        heed_stop()
        if pace.due():
            journal.sync()
            pace.report()
