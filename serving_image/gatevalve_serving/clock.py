"""The wall clock, as contracts write it."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp() -> str:
    """Now, to the microsecond."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
