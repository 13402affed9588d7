"""Traffic segments: which of them may hold a window's records, when they are complete, and what is in them.

A segment is `<channel uid>/traffic/<UTC date of its opening>/<pod>-<boot>-<n>.jsonl.zst`: zstd frames of whole JSON lines.
While its pod writes it, its name ends in `.open`. A pod closes a segment at least every `capture.segmentSeconds` (at most an hour),
also an idle one, so an open segment that was not written for `close_wait_seconds` belongs to a dead boot: it is adopted as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import zstandard
from pydantic import TypeAdapter, ValidationError

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import StoreError
from gatevalve.contracts.files import FeedbackRecord, FileFact, TrafficRecord
from gatevalve.contracts.names import traffic_dir
from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.store import Area

SEGMENT, OPEN = ".jsonl.zst", ".open"

LONGEST_SEGMENT = timedelta(hours=1)
"""`capture.segmentSeconds` is at most an hour: a segment last written an hour before the window holds nothing of it."""

FLUSH_SECONDS = 2
"""A pod writes a reply to its segment at most this long after it was served."""

POLL_SECONDS = 0.5

Record = TrafficRecord | FeedbackRecord
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open span of time, [start, end)."""

    start: datetime
    end: datetime

    def __contains__(self, at: datetime) -> bool:
        return self.start <= at < self.end


@dataclass(slots=True)
class Segment:
    """One segment as read: its fact, its records, and what of it could not be read."""

    fact: FileFact
    records: list[Record] = field(default_factory=list)
    unreadable_lines: int = 0
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and sleep, so that tests need not wait."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


def instant(text: str) -> datetime:
    """A contract Timestamp as a datetime in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def settled_segments(area: Area, channel_uid: str, window: Window, close_wait_seconds: int, clock: Clock) -> list[str]:
    """Paths of the segments that may hold the window's records, once it is over and none of them is still being written.

    Raises BackendUnavailable when that takes longer than close_wait_seconds.
    """
    deadline = clock.now() + close_wait_seconds
    _wait_for_the_end(window, deadline, clock)
    while live := _live_segments(area, channel_uid, window, close_wait_seconds, clock):
        if clock.now() >= deadline:
            raise BackendUnavailable(
                f"segment {live[0]} (and {len(live) - 1} more) is still open after {close_wait_seconds} s; "
                "wait for capture to close it, or shorten capture.segmentSeconds"
            )
        clock.sleep(POLL_SECONDS)
    return _segments_near(area, channel_uid, window)


def _wait_for_the_end(window: Window, deadline: float, clock: Clock) -> None:
    over = window.end.timestamp() + FLUSH_SECONDS
    if over > deadline:
        raise BackendUnavailable(f"the window ends at {window.end.isoformat()}, which is not yet over; wait, or give an earlier end")
    while clock.now() < over:
        clock.sleep(POLL_SECONDS)


def closed_segments(area: Area, channel_uid: str) -> Iterator[str]:
    """Paths of all segments that their pods have closed, oldest date first."""
    root = traffic_dir(channel_uid)
    for date in area.names(root):
        yield from (f"{root}/{date}/{name}" for name in area.names(f"{root}/{date}") if name.endswith(SEGMENT))


def read_segment(area: Area, path: str) -> Segment:
    """A segment's complete frames; a torn last frame and lines that are no records are counted, not read.

    An open segment that was closed meanwhile is read by its new name.
    """
    path, data = _read_open_or_closed(area, path)
    text, torn = _complete_frames(data)
    segment = Segment(FileFact(path=path.split("/", 1)[1], size=len(data), sha256=sha256(data)), torn=torn)
    for line in text.splitlines():
        try:
            segment.records.append(_RECORD.validate_json(line))
        except ValidationError:
            segment.unreadable_lines += 1
    return segment


def _live_segments(area: Area, channel_uid: str, window: Window, close_wait_seconds: int, clock: Clock) -> list[str]:
    paths = [path for path in _segments_near(area, channel_uid, window) if path.endswith(OPEN)]
    return [path for path in paths if _is_live(area, path, window, clock.now() - close_wait_seconds)]


def _is_live(area: Area, path: str, window: Window, dead_before: float) -> bool:
    try:
        if area.modified(path) <= dead_before:
            return False
        text, _ = _complete_frames(area.read(path))
    except StoreError:  # closed between listing and reading: the next look finds it by its new name
        return True
    return _opened_before(text, window.end)


def _opened_before(text: bytes, end: datetime) -> bool:
    for line in text.splitlines():
        try:
            return instant(_RECORD.validate_json(line).at) < end
        except ValidationError:
            continue
    return True


def _segments_near(area: Area, channel_uid: str, window: Window) -> list[str]:
    return [path for path in _segments_of_dates(area, channel_uid, window) if not _surely_older(area, path, window)]


def _segments_of_dates(area: Area, channel_uid: str, window: Window) -> Iterator[str]:
    root = traffic_dir(channel_uid)
    first, last = (window.start - LONGEST_SEGMENT).date().isoformat(), window.end.date().isoformat()
    for date in (name for name in area.names(root) if first <= name <= last):
        for name in area.names(f"{root}/{date}"):
            if name.removesuffix(OPEN).endswith(SEGMENT):
                yield f"{root}/{date}/{name}"


def _surely_older(area: Area, path: str, window: Window) -> bool:
    try:
        return area.modified(path) < (window.start - LONGEST_SEGMENT).timestamp()
    except StoreError:
        return False


def _read_open_or_closed(area: Area, path: str) -> tuple[str, bytes]:
    try:
        return path, area.read(path)
    except StoreError:
        closed = path.removesuffix(OPEN)
        return closed, area.read(closed)


def _complete_frames(data: bytes) -> tuple[bytes, bool]:
    frames: list[bytes] = []
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            text = frame.decompress(data)
        except zstandard.ZstdError:
            return b"".join(frames), True
        if not frame.eof:
            return b"".join(frames), True
        frames.append(text)
        data = frame.unused_data
    return b"".join(frames), False
