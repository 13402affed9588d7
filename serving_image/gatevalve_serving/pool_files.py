"""The pool's ConfigMap as mounted: one file per channel, swapped by the kubelet through symbolic links."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gatevalve_serving.allow_list import CHANNEL_NAME

LARGEST_DOCUMENT = 1 << 20


@dataclass(slots=True)
class PoolFiles:
    """Reads what changed since the last look. A file's identity is inode, size and mtime of what its name leads to."""

    path: Path
    _seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def changed(self) -> dict[str, bytes]:
        """Files that are new or changed: channel to content."""
        return {path.name: data for path in self._files() if (data := self._read_if_changed(path)) is not None}

    def forget(self, channel: str) -> None:
        """Give the channel's file again at the next look."""
        self._seen.pop(channel, None)

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        return sorted(path for path in self.path.iterdir() if CHANNEL_NAME.fullmatch(path.name) and path.is_file())

    def _read_if_changed(self, path: Path) -> bytes | None:
        try:
            stat = path.stat()
            identity = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._seen.get(path.name) == identity:
                return None
            with path.open("rb") as file:
                data = file.read(LARGEST_DOCUMENT)
        except OSError:  # between two links of the kubelet's swap; the next look finds it
            return None
        self._seen[path.name] = identity
        return data
