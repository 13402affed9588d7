"""The store's areas that the operator touches: the external log (written once per entry) and evidence (read-only)."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import re
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, MissingError, StoreError
from gatevalve.contracts.files import EvidenceReport, PairRow, Progress
from gatevalve.contracts.names import SEQUENCE_DIGITS, evidence_dir, log_file, progress_file
from gatevalve.io.ports import Evidence

STORE_SECONDS = 10.0
EVIDENCE_SECONDS = 2.0
"""So long a reconcile, and a way back with it, waits for evidence that is being read; the reading goes on, and the next one asks again."""
WHOLE_SECONDS = 120.0
"""The longest wait for one test's evidence where nobody waits for the answer."""
PROGRESS_SECONDS = 1.0
"""So long a reconcile waits to hear how far an evaluation is; what it does depends on nothing that is said there."""
PROGRESS_BYTES = 4096
KEPT_SECONDS = 60.0
"""Evidence that was read after nobody waited any more is kept so long for whoever asks again."""
REPORT_BYTES = 1 << 20
PAIRS_BYTES = 48 << 20
"""The most that pairs may unpack to. As rows they take four times as much, and the chart's memory has room for three of those."""
LOG_NAME = re.compile(rf"([0-9]{{{SEQUENCE_DIGITS}}})\.json")
REPORT_FILE, PAIRS_FILE = "report.json", "pairs.jsonl.gz"

T = TypeVar("T")
Named = tuple[str, str, str | None]
"""A test's directory, the digest of its report, and of its pairs where a Job named it."""


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
        """A file's bytes.

        Raises MissingError when the area lacks it, IntegrityError when it is longer than `limit` or no plain file, StoreError otherwise.
        """
        with self._reading(name), self._open(name) as stream:
            data: bytes = stream.read(limit + 1)
        if len(data) > limit:
            raise IntegrityError(f"{name} is longer than {limit} bytes")
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

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """A missing file is told from a missing area: a volume that is not there says nothing of what lies on it."""
        try:
            with _store_errors(name):
                yield
        except MissingError as error:
            if self.local and not Path(self._root).is_dir():
                raise StoreError(f"{self._root} does not exist; mount the volume") from error
            raise

    def _open(self, name: str) -> BinaryIO:
        path = self.path(name)
        found: BinaryIO = _open_plain(path, name) if self.local else self._files.open(path, "rb")
        return found

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
        return frozenset(int(found[1]) for name in names if (found := LOG_NAME.fullmatch(name)))

    async def read(self, channel_uid: str, sequence: int) -> bytes:
        """An entry's bytes."""
        return await within(self._area.read, log_file(channel_uid, sequence), REPORT_BYTES)


class SealedEvidence:
    """The evidence in the sealed area. Implements `ports.EvidenceStore`."""

    def __init__(self, area: Area) -> None:
        """Take the sealed area. One thread reads, one test after the other: memory holds one, and a store that hangs holds one thread."""
        self._area = area
        self._reader = ThreadPoolExecutor(1, "evidence")
        self._readings: dict[Named, asyncio.Future[Evidence]] = {}
        self._looker = ThreadPoolExecutor(1, "progress")
        self._looks: dict[str, asyncio.Future[Progress | None]] = {}

    async def read(self, channel_uid: str, test_entry: str, report_digest: str, pairs_digest: str) -> Evidence:
        """The evidence of a test, verified against the digests that its Job named."""
        return await self._joined((evidence_dir(channel_uid, test_entry), report_digest, pairs_digest), EVIDENCE_SECONDS)

    async def recorded(self, channel_uid: str, test_entry: str, report_digest: str) -> Evidence:
        """The evidence that an entry names by its report's digest; the report names the pairs."""
        return await self._joined((evidence_dir(channel_uid, test_entry), report_digest, None), WHOLE_SECONDS)

    def lying(self, directory: str) -> tuple[str, Evidence]:
        """The evidence that lies in a directory which no entry names, and its report's digest; the report names the pairs."""
        digest = sha256(self._area.read(f"{directory}/{REPORT_FILE}", REPORT_BYTES))
        return digest, self._read(directory, digest, None)

    async def progress(self, channel_uid: str, test_entry: str) -> Progress | None:
        """How far the evaluation of a test says it is. Nobody waits for it: a store that hangs holds one thread, and nothing else."""
        name = progress_file(channel_uid, test_entry)
        look = self._looks.get(name)
        if look is None:
            look = self._looks[name] = asyncio.get_running_loop().run_in_executor(self._looker, self._progress, name)
            look.add_done_callback(lambda _: self._looks.pop(name))
        done, _ = await asyncio.wait((look,), timeout=PROGRESS_SECONDS)
        return look.result() if done else None

    def _progress(self, name: str) -> Progress | None:
        try:
            return Progress.parse_json(self._area.read(name, PROGRESS_BYTES))
        except (StoreError, ContractError):
            return None

    async def _joined(self, named: Named, seconds: float) -> Evidence:
        """Wait for the one reading of a test, which goes on when the wait is over; raises StoreError when that is so."""
        reading = self._readings.get(named) or self._begin(named)
        done, _ = await asyncio.wait((reading,), timeout=seconds)
        if not done:
            raise StoreError(f"{named[0]} is still being read after {seconds:g} s")
        self._forget(named, reading)
        return reading.result()

    def _begin(self, named: Named) -> asyncio.Future[Evidence]:
        loop = asyncio.get_running_loop()
        reading = self._readings[named] = loop.run_in_executor(self._reader, self._read, *named)
        reading.add_done_callback(partial(self._keep, named))
        return reading

    def _keep(self, named: Named, reading: asyncio.Future[Evidence]) -> None:
        """For whoever asks again; what nobody asks for is no error that nobody has seen."""
        if not reading.cancelled():
            reading.exception()
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, named, reading)

    def _forget(self, named: Named, reading: asyncio.Future[Evidence]) -> None:
        if self._readings.get(named) is reading:
            del self._readings[named]

    def _read(self, directory: str, report_digest: str, pairs_digest: str | None) -> Evidence:
        raw = self._verified(f"{directory}/{REPORT_FILE}", REPORT_BYTES, report_digest)
        report = EvidenceReport.parse_json(raw)
        if pairs_digest is not None and report.pairs.sha256 != pairs_digest:
            raise IntegrityError(f"{directory}: the report names pairs {report.pairs.sha256}, the Job named {pairs_digest}")
        if report.pairs.size > PAIRS_BYTES:
            raise _too_large()
        packed = self._verified(f"{directory}/{PAIRS_FILE}", PAIRS_BYTES, report.pairs.sha256)
        return Evidence(report, tuple(PairRow.parse_json(line) for line in _lines(packed)))

    def _verified(self, name: str, limit: int, digest: str) -> bytes:
        data = self._area.read(name, limit)
        if sha256(data) != digest:
            raise IntegrityError(f"{name} has digest {sha256(data)}, but {digest} was named")
        return data


async def within(work: Callable[..., T], *arguments: Any, seconds: float = STORE_SECONDS) -> T:
    """Run blocking work in a thread; raises StoreError when it takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):  # not wait_for, which may swallow a cancellation: an operator told to stop would go on
            return await asyncio.to_thread(work, *arguments)
    except TimeoutError as error:
        raise StoreError(f"the store does not answer within {seconds:g} s") from error


def _lines(packed: bytes) -> Iterator[bytes]:
    """Lines of a gzip file that unpacks to no more than PAIRS_BYTES; unpacked one by one, as nobody needs the whole text."""
    left = PAIRS_BYTES
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            while line := stream.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise _too_large()
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise ContractError(PAIRS_FILE, f"is not gzip: {error}", "run the evaluation again") from error


def _too_large() -> ContractError:
    """No fault of the store, which would be asked again and again: nothing smaller will ever lie there."""
    return ContractError(PAIRS_FILE, f"holds more than {PAIRS_BYTES >> 20} MiB of answers", "name a policy with fewer items or decodes")


def _open_plain(path: str, name: str) -> BinaryIO:
    """Opened without following a link and without waiting for a pipe's writer; raises IntegrityError when it is no plain file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if Path(path).is_symlink():
            raise IntegrityError(f"{name} is a link; nothing here is written as one") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise IntegrityError(f"{name} is no plain file")
    return os.fdopen(handle, "rb")


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
        raise MissingError(f"{what} does not exist") from error
    except (OSError, ValueError, ImportError) as error:
        raise StoreError(f"{what}: {error}") from error
