"""Where the rig keeps files between runs, and the locks that guard them."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

REPORT_INTERVAL_SECONDS = 15


def cache_root() -> Path:
    """Return the rig's directory in the user's cache, with all symbolic links resolved."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) / "gatevalve").resolve()


def clusters_root() -> Path:
    """Return the directory that holds one state directory for each cluster."""
    return cache_root() / "clusters"


def is_locked(directory: Path) -> bool:
    """Tell whether some process holds the lock on a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextmanager
def locked(directory: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock on a directory, saying now and then that another process has it."""
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _take(fd, lambda: report(f"waiting for another process that works in {directory}"))
        yield
    finally:
        os.close(fd)


def _take(fd: int, report: Callable[[], None]) -> None:
    due = monotonic() + 1
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= due:
                report()
                due = monotonic() + REPORT_INTERVAL_SECONDS
            sleep(0.2)
