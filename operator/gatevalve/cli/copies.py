"""The external log at hand in a directory: its files read as they lie there, whatever somebody has put among them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from gatevalve.cli.areas import log_root
from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.names import entry_name, log_file
from gatevalve.engine.chain import copy_of
from gatevalve.io.ports import KubeObject
from gatevalve.io.store import LOG_NAME, REPORT_BYTES, Area

Place = tuple[str, int]
"""Channel uid and sequence: where a copy lies."""


@dataclass(slots=True)
class Copies:
    """A channel's files: their bytes, or None where there can be no entry's copy; `problems` says why, `unread` what was refused."""

    files: dict[Place, bytes | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def entries(self, channel: str) -> list[KubeObject]:
        """The entries as the API server would hold them, in order; what is no exact copy of one becomes a problem."""
        found: dict[int, tuple[str, KubeObject]] = {}
        for (uid, sequence), data in sorted(self.files.items(), key=lambda item: (item[0][1], item[0][0])):
            spec = _exact(data) if data is not None else None
            if spec is None:
                self.problems += [f"the external log's {log_file(uid, sequence)} is no exact copy of an entry"] if data is not None else []
            elif sequence in found:
                self.problems.append(f"the external log holds {entry_name(channel, sequence)} under uid {found[sequence][0]} and {uid}")
            else:
                found[sequence] = uid, {"metadata": {"name": entry_name(channel, sequence)}, "spec": spec}
        return [thing for _, thing in found.values()]


def read_copies(directory: Path, channel: str, uids: frozenset[str]) -> Copies:
    """The files of a channel: below its known uids, and below every uid whose entries name it. Raises ContractError, StoreError."""
    area, copies = Area(str(log_root(directory))), Copies()
    for uid in sorted(area.names("")):
        if (directory / uid).is_dir() and (uid in uids or _names_channel(area, uid, channel)):
            _read_one(area, uid, copies)
    return copies


def _names_channel(area: Area, uid: str, channel: str) -> bool:
    """The first file that can be read tells whose directory it is."""
    for name in sorted(area.names(uid)):
        try:
            spec = _parsed(area.read(f"{uid}/{name}", REPORT_BYTES)) if LOG_NAME.fullmatch(name) else None
        except StoreError:
            continue
        owner = spec.get("channel") if spec is not None else None
        if isinstance(owner, dict):
            return owner.get("name") == channel
    return False


def _read_one(area: Area, uid: str, copies: Copies) -> None:
    for name in sorted(area.names(uid)):
        found = LOG_NAME.fullmatch(name)
        if found is None:
            copies.problems += [] if name.startswith(".") else [f"the external log holds {uid}/{name}, which is no entry's name; remove it"]
            continue
        try:
            copies.files[uid, int(found[1])] = area.read(f"{uid}/{name}", REPORT_BYTES)
        except IntegrityError as error:
            copies.files[uid, int(found[1])] = None
            copies.problems.append(f"the external log's {uid}/{name} is no entry's copy: {error}")
        except StoreError as error:
            copies.unread.append(f"the external log's {uid}/{name} cannot be read: {error}")


def _parsed(data: bytes) -> KubeObject | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _exact(data: bytes) -> KubeObject | None:
    spec = _parsed(data)
    try:
        return spec if spec is not None and copy_of(spec) == data else None
    except (ContractError, RecursionError):
        return None
