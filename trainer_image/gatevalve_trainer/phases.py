"""The Job's log: one JSON line when a phase ends, with its counts and seconds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOG_DIGITS = 6


def log(event: str, **facts: Any) -> None:
    """Write one line to standard error."""
    print(json.dumps({"event": event, **{name: _rounded(fact) for name, fact in facts.items()}}), file=sys.stderr, flush=True)


def _rounded(fact: Any) -> Any:
    return round(fact, LOG_DIGITS) if isinstance(fact, float) else fact


class Phases:
    """Seconds of each phase, in order; logs a line at each phase's end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[dict[str, Any]]:
        """Time a phase; the caller adds counts to the yielded dict. A phase that fails logs no line: its error says why."""
        counts: dict[str, Any] = {}
        started = time.monotonic()
        yield counts
        self.seconds[name] = round(time.monotonic() - started, 3)
        log(name, seconds=self.seconds[name], **counts)


class Every:
    """A pace: due at most once in a span of seconds, and at once when `at_once`."""

    def __init__(self, seconds: float, *, at_once: bool = False) -> None:
        self._seconds = seconds
        self._next = time.monotonic() + (0.0 if at_once else seconds)

    def due(self) -> bool:
        """Whether the span has passed since this was last true."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self._seconds
        return True
