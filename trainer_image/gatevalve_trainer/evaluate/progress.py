"""What is told while an evaluation runs, in its log and to the operator: counts and rates, never items or scores."""

from __future__ import annotations

import time
from collections.abc import Callable

from gatevalve.contracts.files import Progress
from gatevalve_trainer.phases import log

REPORT_SECONDS = 5.0

Tell = Callable[[Progress], None]


class Pace:
    """Counts answers; every five seconds it logs a line and tells the operator."""

    def __init__(self, total: int, done: int, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._resumed, self._tell, self._clock = total, done, tell, clock
        self._done = done
        self._started = self._reported = clock()

    def count(self) -> None:
        """One more answer. How many of its decodes are missing is not told: of sealed items a candidate could choose which."""
        self._done += 1

    def taken_over(self, answers: int) -> None:
        """So many answers need not be asked, because an earlier test did; they say nothing of this attempt's rate."""
        self._done += answers
        self._resumed += answers

    def due(self) -> bool:
        """Whether it is time for a line; starts the next five seconds when it is."""
        if self._clock() - self._reported < REPORT_SECONDS:
            return False
        self._reported = self._clock()
        return True

    def report(self) -> None:
        """Say how far the evaluation is."""
        progress = self.progress()
        log("evaluating", **progress.wire(), resumed=self._resumed)
        self._tell(progress)

    def progress(self) -> Progress:
        """Answers there are, of how many, answers a second in this attempt, and seconds left at that rate."""
        rate = (self._done - self._resumed) / max(self._clock() - self._started, 1e-9)
        left = (self._total - self._done) / rate if rate else 0.0
        return Progress(answered=self._done, of=self._total, per_second=f"{rate:.1f}", seconds_left=round(left))
