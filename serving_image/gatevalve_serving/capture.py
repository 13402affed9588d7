"""Capture: replies and feedback on their way to traffic segments. It never blocks and never fails a request; what is dropped is counted."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import FeedbackRecord, TrafficRecord
from gatevalve.contracts.serving import Feedback
from gatevalve_serving.clock import timestamp
from gatevalve_serving.config import Settings
from gatevalve_serving.metrics import CAPTURE_DROPPED, CAPTURED, FEEDBACK
from gatevalve_serving.segments import Segments
from gatevalve_serving.tally import Incomplete

LOG = logging.getLogger("gatevalve.serving")
QUEUE_LENGTH = 10_000
IDS_KEPT = 200_000
STOP_SECONDS = 15.0

Records = Callable[[], Iterable[TrafficRecord]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The channel that a reply came from, and how long its segments may stay open."""

    channel: str
    uid: str
    segment_seconds: int


@dataclass(frozen=True, slots=True)
class _Reply:
    origin: Origin
    records: Records


@dataclass(frozen=True, slots=True)
class _Score:
    origin: Origin
    record: FeedbackRecord


class Capture:
    """A bounded queue, one writer thread, and the ids of the last replies."""

    def __init__(self, settings: Settings) -> None:
        self._queue: queue.Queue[_Reply | _Score | None] = queue.Queue(QUEUE_LENGTH)
        self._ids: OrderedDict[str, Origin] = OrderedDict()
        self._flush_seconds = settings.timing.capture_flush
        self._segments = Segments(settings.data_url, f"{settings.pod}-{settings.boot}")
        self._thread = threading.Thread(target=self._write_all, name="gatevalve capture", daemon=True)

    def start(self) -> None:
        """Start the writer; raises ContractError when the data area cannot take segments."""
        self._segments.check()
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued, close the segments, and end the writer; blocking."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(STOP_SECONDS)

    def know(self, reply_id: str, origin: Origin) -> None:
        """Feedback for this id will be taken."""
        self._ids[reply_id] = origin
        if len(self._ids) > IDS_KEPT:
            self._ids.popitem(last=False)

    def reply(self, origin: Origin, records: Records) -> bool:
        """Queue a reply; its records are made by the writer."""
        return self._put(origin, _Reply(origin, records))

    def feedback(self, feedback: Feedback) -> bool | None:
        """Queue a score: False when the queue is full, None when this pod knows no such reply."""
        origin = self._ids.get(feedback.id)
        if origin is None:
            return None
        record = FeedbackRecord(id=feedback.id, at=timestamp(), score=feedback.score, label=feedback.label)
        return self._put(origin, _Score(origin, record))

    def _put(self, origin: Origin, entry: _Reply | _Score) -> bool:
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            CAPTURE_DROPPED.labels(origin.channel, "queue_full").inc()
            return False
        return True

    def _write_all(self) -> None:
        next_flush, running = time.monotonic() + self._flush_seconds, True
        while running:
            try:
                running = self._write_next(next_flush)
                if time.monotonic() >= next_flush:
                    next_flush = time.monotonic() + self._flush_seconds
                    self._count_lost(self._segments.flush())
            except Exception:
                LOG.exception("the capture writer goes on")
        self._count_lost(self._segments.close())

    def _write_next(self, until: float) -> bool:
        """Write one entry, waiting for it until the next flush; False: it was the last."""
        try:
            entry = self._queue.get(timeout=max(until - time.monotonic(), 0.01))
        except queue.Empty:
            return True
        if entry is not None:
            self._write(entry)
        return entry is not None

    def _write(self, entry: _Reply | _Score) -> None:
        channel, uid, seconds = entry.origin.channel, entry.origin.uid, entry.origin.segment_seconds
        try:
            lines = [entry.record] if isinstance(entry, _Score) else list(entry.records())
            for line in lines:
                self._segments.add(channel, uid, seconds, line.model_dump_json(by_alias=True, exclude_none=True).encode())
            (FEEDBACK if isinstance(entry, _Score) else CAPTURED).labels(channel).inc()
        except Incomplete:
            CAPTURE_DROPPED.labels(channel, "incomplete").inc()
        except (ContractError, ValidationError, ValueError, TypeError, AttributeError, IndexError, KeyError):
            LOG.warning("a reply of channel %s cannot be captured", channel, exc_info=True)
            CAPTURE_DROPPED.labels(channel, "incomplete").inc()

    def _count_lost(self, lost: dict[str, int]) -> None:
        for channel, lines in lost.items():
            CAPTURE_DROPPED.labels(channel, "not_written").inc(lines)
