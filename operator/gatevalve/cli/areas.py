"""The log area and the sealed area at hand in directories, told apart by what they hold: neither is read as the other with losses."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gatevalve.contracts.errors import ContractError
from gatevalve.io.store import LOG_NAME

SEALED = frozenset({"evidence", "rounds", "sentinels"})
"""Folders of a channel in the sealed area."""

LOG_REMEDY = "give the root of the log area: it holds <channel uid>/000000.json"
SEALED_REMEDY = "give the root of the sealed area: it holds <channel uid>/evidence/"


def log_root(directory: Path) -> Path:
    """The same directory. Raises ContractError when it is none, one channel's part of the log area, or a sealed area."""
    if not directory.is_dir():
        raise ContractError("--log", f"{directory} is no directory", LOG_REMEDY)
    if _holds_entries(directory):
        raise ContractError("--log", f"{directory} is the part of one channel", f"give the directory above; {LOG_REMEDY}")
    for channel in _folders(directory):
        if _holds_sealed(channel) and not _holds_entries(channel):
            raise ContractError("--log", f"{directory} is a sealed area: it holds {channel.name}/evidence/ or /rounds/", LOG_REMEDY)
    return directory


def sealed_root(directory: Path | None) -> Path:
    """The same directory. Raises ContractError when it is missing or none, one channel's part of the sealed area, or a log area."""
    if directory is None or not directory.is_dir():
        problem = f"{directory} is no directory" if directory else "is needed to read evidence"
        raise ContractError("--sealed", problem, SEALED_REMEDY)
    if _holds_sealed(directory):
        raise ContractError("--sealed", f"{directory} is the part of one channel", f"give the directory above; {SEALED_REMEDY}")
    for channel in _folders(directory):
        if _holds_entries(channel) and not _holds_sealed(channel):
            raise ContractError("--sealed", f"{directory} is a log area: it holds entries below {channel.name}/", SEALED_REMEDY)
    return directory


def _folders(directory: Path) -> list[Path]:
    return [path for path in _inside(directory) if path.is_dir()]


def _inside(directory: Path) -> list[Path]:
    """What a directory holds; nothing of one that may not be read, which is no channel's (lost+found)."""
    with suppress(OSError):
        return sorted(directory.iterdir())
    return []


def _holds_entries(directory: Path) -> bool:
    return any(LOG_NAME.fullmatch(path.name) for path in _inside(directory))


def _holds_sealed(directory: Path) -> bool:
    return any(path.name in SEALED and path.is_dir() for path in _inside(directory))
