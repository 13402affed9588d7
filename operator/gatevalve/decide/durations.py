"""Durations in Go's notation."""

from __future__ import annotations

import re
from datetime import timedelta

_PATTERN = re.compile(r"^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$")


def duration(text: str) -> timedelta:
    """The span that a text like 24h or 1h30m names; contracts have checked its form."""
    match = _PATTERN.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 24h or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
