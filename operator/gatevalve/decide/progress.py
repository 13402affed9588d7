"""How far an evaluation says it is, in words. Counts and a rate; nothing that was computed on an item."""

from __future__ import annotations

from gatevalve.contracts.files import Progress

MINUTE, HOUR = 60, 3600


def how_far(progress: Progress) -> str:
    """For example "120 of 960 answers, 14.2 a second, about a minute left"; an attempt that just began has no rate yet."""
    counts = f"{progress.answered} of {progress.of} answers"
    if float(progress.per_second) == 0:
        return counts
    return f"{counts}, {progress.per_second} a second, {_left(progress.seconds_left)} left"


def _left(seconds: int) -> str:
    if seconds < MINUTE:
        return "less than a minute"
    if seconds < 1.5 * MINUTE:
        return "about a minute"
    return f"about {round(seconds / MINUTE)} minutes" if seconds < 2 * HOUR else f"about {round(seconds / HOUR)} hours"
