"""The store's areas that the operator touches: the external log (written once per entry) and evidence (read-only)."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.files import EvidenceReport, PairRow
from gatevalve.contracts.names import evidence_dir, log_file
from gatevalve.io.ports import Evidence

STORE_SECONDS = 10.0
REPORT_BYTES = 1 << 20
PAIRS_BYTES = 256 << 20
REPORT_FILE, PAIRS_FILE = "report.json", "pairs.jsonl.gz"

T = TypeVar("T")


class Area:
    """One area of the store, by fsspec URL. Methods block; `within` runs them off the event loop."""

    def __init__(self, url: str) -> None:
        """Take the URL of the area's root; raises StoreError when no file system handles it."""
        with _store_errors(url):
            found: tuple[AbstractFileSystem, str] = url_to_fs(url)
        self._files, self._root = found
        self.local = isinstance(self._files, LocalFileSystem)

    def path(self, name: str) -> str:
        """The full path of a name in the area."""
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str, limit: int) -> bytes:
        """A file's bytes; raises StoreError when it is missing or longer than `limit`."""
        with _store_errors(name), self._files.open(self.path(name), "rb") as stream:
            data: bytes = stream.read(limit + 1)
        if len(data) > limit:
            raise StoreError(f"{name} is longer than {limit} bytes")
        return data

    def names(self, directory: str) -> frozenset[str]:
        """The names in a directory; empty when there is none."""
        with _store_errors(directory):
            self._files.invalidate_cache(self.path(directory))
            try:
                found: list[str] = self._files.ls(self.path(directory), detail=False)
            except FileNotFoundError:
                return frozenset()
        return frozenset(path.rstrip("/").rsplit("/", 1)[-1] for path in found)

    def publish(self, name: str, data: bytes) -> bool:
        """Write a whole file under a name that nothing has yet; False when the name is taken.

        Local: temporary name, fsync, link. Elsewhere: the store's own exclusive write.
        """
        with _store_errors(name):
            return _link(Path(self.path(name)), data) if self.local else self._put(self.path(name), data)

    def _put(self, path: str, data: bytes) -> bool:
        try:
            self._files.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True


class FileLog:
    """The external log in an area. Implements `ports.LogStore`."""

    def __init__(self, area: Area) -> None:
        """Take the log area."""
        self._area = area

    async def publish(self, channel_uid: str, sequence: int, data: bytes) -> None:
        """Write an entry's bytes exclusively; equal bytes are done already, different ones raise IntegrityError."""
        name = log_file(channel_uid, sequence)
        if await within(self._area.publish, name, data):
            return
        if await within(self._area.read, name, REPORT_BYTES) != data:
            raise IntegrityError(f"the external log holds another {name}: find out who wrote it before anything else is released")

    async def sequences(self, channel_uid: str) -> frozenset[int]:
        """The sequences that have a file; other names are ignored."""
        names = await within(self._area.names, channel_uid)
        return frozenset(
            int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name.removesuffix(".json").isdigit()
        )

    async def read(self, channel_uid: str, sequence: int) -> bytes:
        """An entry's bytes."""
        return await within(self._area.read, log_file(channel_uid, sequence), REPORT_BYTES)


class SealedEvidence:
    """The evidence in the sealed area. Implements `ports.EvidenceStore`."""

    def __init__(self, area: Area) -> None:
        """Take the sealed area."""
        self._area = area

    async def read(self, channel_uid: str, test_entry: str, report_digest: str, pairs_digest: str) -> Evidence:
        """The evidence of a test, verified against the digests that its Job named."""
        return await within(self._read, evidence_dir(channel_uid, test_entry), report_digest, pairs_digest)

    def _read(self, directory: str, report_digest: str, pairs_digest: str) -> Evidence:
        raw = self._verified(f"{directory}/{REPORT_FILE}", REPORT_BYTES, report_digest)
        report = EvidenceReport.parse_json(raw)
        if report.pairs.sha256 != pairs_digest:
            raise IntegrityError(f"{directory}: the report names pairs {report.pairs.sha256}, the Job named {pairs_digest}")
        packed = self._verified(f"{directory}/{PAIRS_FILE}", PAIRS_BYTES, pairs_digest)
        return Evidence(report, tuple(PairRow.parse_json(line) for line in _lines(packed)))

    def _verified(self, name: str, limit: int, digest: str) -> bytes:
        data = self._area.read(name, limit)
        if sha256(data) != digest:
            raise IntegrityError(f"{name} has digest {sha256(data)}, the Job named {digest}")
        return data


async def within(work: Callable[..., T], *arguments: Any, seconds: float = STORE_SECONDS) -> T:
    """Run blocking work in a thread; raises StoreError when it takes longer than `seconds`."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(work, *arguments), seconds)
    except TimeoutError as error:
        raise StoreError(f"the store does not answer within {seconds:g} s") from error


def _lines(packed: bytes) -> list[bytes]:
    """Lines of a gzip file that unpacks to no more than PAIRS_BYTES."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            data = stream.read(PAIRS_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ContractError(PAIRS_FILE, f"is not gzip: {error}", "run the evaluation again") from error
    if len(data) > PAIRS_BYTES:
        raise ContractError(PAIRS_FILE, f"unpacks to more than {PAIRS_BYTES} bytes", "make the suites smaller")
    return [line for line in data.split(b"\n") if line]


def _link(path: Path, data: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        _write_through(temporary, data)
        os.link(temporary, path)
        _sync_directory(path.parent)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_directory(path: Path) -> None:
    """A new name survives a power failure only once its directory is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _store_errors(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{what} does not exist") from error
    except (OSError, ValueError, ImportError) as error:
        raise StoreError(f"{what}: {error}") from error
