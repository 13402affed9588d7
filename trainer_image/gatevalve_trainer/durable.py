"""Bytes and names that survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def write_through(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, down to the disk."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(path: Path) -> None:
    """Bring a directory's names to the disk: a new one survives only from then on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
