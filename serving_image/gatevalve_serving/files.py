"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write under a temporary name in the same directory, flush to disk, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        sync(file.fileno())
    temporary.replace(path)


def sync(descriptor: int) -> None:
    """Flush a file to disk."""
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Flush a directory's names to disk, so that a rename survives a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
