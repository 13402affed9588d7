"""Traffic segments: zstd frames of JSON lines, one frame a flush, in a file that is called `.open` until it is closed.

A reader takes whole frames only, so a process killed in the middle of a write costs the last second. Used by one thread.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import zstandard

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import ENV_DATA_URL, traffic_dir
from gatevalve_serving.files import sync, sync_directory

LOG = logging.getLogger("gatevalve.serving")
LARGEST_SEGMENT = 64 << 20
SUFFIX, OPEN = ".jsonl.zst", ".open"


@dataclass(slots=True)
class _Segment:
    channel: str
    path: Path
    file: BinaryIO
    date: str
    closes_at: float
    size: int = 0
    lines: list[bytes] = field(default_factory=list)


class Segments:
    """Open segments by channel uid. `writer` is <pod>-<boot>: no two processes write the same file."""

    def __init__(self, data_url: str, writer: str) -> None:
        store, root = fsspec.core.url_to_fs(data_url)
        self._local, self._data_url, self._root, self._writer = _is_local(store), data_url, Path(root), writer
        self._open: dict[str, _Segment] = {}
        self._opened = 0
        self._lost: dict[str, int] = {}

    def check(self) -> None:
        """Raise ContractError when the data area takes no appends."""
        if not self._local:
            raise ContractError(ENV_DATA_URL, f"{self._data_url} cannot be appended to", "mount the data area and give a file:// URL")

    def add(self, channel: str, uid: str, segment_seconds: int, line: bytes) -> None:
        """Add a line to the channel's segment; it is on disk after the next flush. A full disk costs the line."""
        try:
            self._segment(channel, uid, segment_seconds).lines.append(line)
        except OSError:
            LOG.exception("cannot open a traffic segment of channel %s", channel)
            self._lose(channel, 1)

    def flush(self) -> dict[str, int]:
        """Write one frame to every segment that has new lines, close those whose time is up; returns lines lost since, by channel."""
        for uid, segment in list(self._open.items()):
            self._write(segment)
            if time.monotonic() >= segment.closes_at or segment.size >= LARGEST_SEGMENT or segment.date != _today():
                self._close(uid)
        lost, self._lost = self._lost, {}
        return lost

    def close(self) -> dict[str, int]:
        """Write and close every segment; returns lines lost since the last flush, by channel."""
        for uid, segment in list(self._open.items()):
            self._write(segment)
            self._close(uid)
        return self._lost

    def _segment(self, channel: str, uid: str, segment_seconds: int) -> _Segment:
        if uid not in self._open:
            date, self._opened = _today(), self._opened + 1
            path = self._root / traffic_dir(uid) / date / f"{self._writer}-{self._opened:06d}{SUFFIX}{OPEN}"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[uid] = _Segment(channel, path, path.open("xb"), date, time.monotonic() + segment_seconds)
        return self._open[uid]

    def _write(self, segment: _Segment) -> None:
        lines, segment.lines = segment.lines, []
        if not lines:
            return
        frame = zstandard.ZstdCompressor().compress(b"\n".join(lines) + b"\n")
        try:
            segment.file.write(frame)
            segment.file.flush()
            segment.size += len(frame)
        except OSError:
            LOG.exception("cannot write to traffic segment %s", segment.path)
            self._lose(segment.channel, len(lines))
            segment.closes_at = 0  # a torn frame hides what follows it: the next lines go to a new segment

    def _close(self, uid: str) -> None:
        segment = self._open.pop(uid)
        try:
            with segment.file:
                sync(segment.file.fileno())
            segment.path.rename(segment.path.with_name(segment.path.name.removesuffix(OPEN)))
            sync_directory(segment.path.parent)
        except OSError:
            LOG.exception("cannot close traffic segment %s", segment.path)

    def _lose(self, channel: str, lines: int) -> None:
        self._lost[channel] = self._lost.get(channel, 0) + lines


def _is_local(store: Any) -> bool:
    return "file" in (store.protocol if isinstance(store.protocol, list | tuple) else (store.protocol,))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
