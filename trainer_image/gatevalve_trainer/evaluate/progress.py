"""What the log says while an evaluation runs: counts and rates, never items or scores."""

from __future__ import annotations

import time
from collections.abc import Callable

from gatevalve_trainer.phases import log

REPORT_SECONDS = 5.0


class Progress:
    """Counts answers and logs a line every five seconds."""

    def __init__(self, total: int, done: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._resumed, self._clock = total, done, clock
        self._done, self._missing = done, 0
        self._started = self._reported = clock()

    def count(self, missing: int) -> None:
        """One more answer, of which so many decodes are missing."""
        self._done += 1
        self._missing += missing

    def due(self) -> bool:
        """Whether it is time for a line; starts the next five seconds when it is."""
        if self._clock() - self._reported < REPORT_SECONDS:
            return False
        self._reported = self._clock()
        return True

    def report(self) -> None:
        """Log how far the evaluation is."""
        log("evaluating", **self.facts())

    def facts(self) -> dict[str, int | float]:
        """Answers done, of how many, resumed ones, missing decodes, answers a second, and seconds left at that rate."""
        rate = (self._done - self._resumed) / max(self._clock() - self._started, 1e-9)
        left = (self._total - self._done) / rate if rate else 0.0
        facts = {"answers": self._done, "of": self._total, "resumed": self._resumed, "missing_decodes": self._missing}
        return {**facts, "per_second": round(rate, 1), "seconds_left": round(left)}
