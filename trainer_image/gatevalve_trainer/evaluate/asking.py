"""Asks every open question of a test, many at once, and journals each answer as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.engine import Engine, Replies
from gatevalve_trainer.evaluate.journal import Journal
from gatevalve_trainer.evaluate.patience import heed_stop
from gatevalve_trainer.evaluate.progress import Progress
from gatevalve_trainer.evaluate.schedule import Question

CONCURRENCY = 64
"""Requests in flight: an engine batches them; eight at a time take six times as long."""

WATCH_SECONDS = 0.5

Scorer = Callable[[Question, Replies], Answer]


async def ask_all(questions: Iterable[Question], engine: Engine, journal: Journal, score: Scorer, progress: Progress) -> None:
    """Ask what the journal does not hold yet; raises what the first failing request raised, or Terminated."""
    waiting = (question for question in questions if question.key not in journal.answers)
    workers = {asyncio.create_task(_work(waiting, engine, journal, score, progress)) for _ in range(CONCURRENCY)}
    try:
        await _watch(workers, journal, progress)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _work(waiting: Iterator[Question], engine: Engine, journal: Journal, score: Scorer, progress: Progress) -> None:
    for question in waiting:
        answer = score(question, await engine.ask(question))
        journal.append(answer)
        progress.count(answer.missing)


async def _watch(workers: set[asyncio.Task[None]], journal: Journal, progress: Progress) -> None:
    pending = workers
    while pending:
        done, pending = await asyncio.wait(pending, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for worker in done:
            worker.result()
        heed_stop()
        if progress.due():
            journal.sync()
            progress.report()
