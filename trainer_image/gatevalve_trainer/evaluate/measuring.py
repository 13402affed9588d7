"""The order of a measurement: the screen first, and what it does not end goes on to every suite of the policy."""

from __future__ import annotations

from collections.abc import Sequence

from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.policy import SCREEN
from gatevalve.gate.futility import hopeless
from gatevalve_trainer.evaluate.anchor import anchor_head, is_shared, keep, take_over
from gatevalve_trainer.evaluate.asking import Answerer, ask_all
from gatevalve_trainer.evaluate.evidence import Measured, pair_rows
from gatevalve_trainer.evaluate.journal import Journal
from gatevalve_trainer.evaluate.progress import Pace, Tell
from gatevalve_trainer.evaluate.rounds import LoadedSuite
from gatevalve_trainer.evaluate.schedule import units
from gatevalve_trainer.store import Area


class Measuring:
    """One attempt at a test: whatever the journal holds is not asked again, and every attempt goes the same way."""

    def __init__(self, job: EvaluateInput, suites: tuple[LoadedSuite, ...], journal: Journal, answers: Answerer, tell: Tell) -> None:
        """`answers` asks a unit; `tell` is told of progress."""
        self._job, self._journal, self._answers = job, journal, answers
        self._screen = tuple(loaded for loaded in suites if loaded.suite.name == SCREEN)
        self._rest = tuple(loaded for loaded in suites if loaded.suite.name != SCREEN)
        self._pace = Pace(sum(len(unit) for unit in units(job, suites)), len(journal.answers), tell)

    async def measured(self, sealed: Area, seal: bytes, engine: str) -> Measured:
        """Ask everything that has to be asked; raises BackendUnavailable when engine or judge are gone, Terminated when told to stop."""
        self._pace.report()
        if await self._is_hopeless():
            return Measured("Screen", self._screen, engine)
        await self._ask_the_rest(sealed, seal, engine)
        return Measured("Full", (*self._screen, *self._rest), engine)

    async def _is_hopeless(self) -> bool:
        if not self._screen:
            return False
        await self._ask(self._screen)
        return hopeless(self._job.policy, tuple(pair_rows(self._job, self._screen, self._journal.answers)))

    async def _ask_the_rest(self, sealed: Area, seal: bytes, engine: str) -> None:
        head = anchor_head(self._job, self._rest, engine)
        if is_shared(self._job):
            before = len(self._journal.answers)
            take_over(sealed, head, self._rest, seal, self._journal)
            self._pace.taken_over(len(self._journal.answers) - before)
        await self._ask(self._rest)
        if is_shared(self._job):
            keep(sealed, head, self._rest, seal, self._journal.answers.values())

    async def _ask(self, suites: Sequence[LoadedSuite]) -> None:
        await ask_all(units(self._job, suites), self._answers, self._journal, self._pace)
        self._pace.report()
