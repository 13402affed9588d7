"""The data area as a Job sees it: reads by fsspec URL, writes that are whole or absent."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import fsspec

from gatevalve.contracts.canonical import Digest, sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.files import FileFact
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.kinds import Base
from gatevalve.contracts.names import MANIFEST
from gatevalve_trainer.durable import sync_directory, write_through

TEMPORARY = ".tmp-"
"""Prefix of names that readers must ignore: a writer that was killed may leave them."""

STALE_SECONDS = 86_400
"""After which a temporary name's writer is taken for dead: no Job writes one file or one adapter for a day."""


def local_directory(field: str, url: str) -> Path:
    """The directory that a file:// URL or a plain path names; raises ContractError for other protocols, or when it is absent or closed."""
    path = _local_path(field, url)
    with readable(field, url):
        if not path.is_dir():
            raise ContractError(field, f"{url} is not a directory", "mount it, or correct the URL")
        next(path.iterdir(), None)  # a search for files passes over what it may not read
    return path


def verified_base(base: Base) -> Path:
    """The base's directory; raises IntegrityError when its files do not have the channel's digest."""
    directory = local_directory("base.uri", base.uri)
    with readable("base.uri", base.uri):
        actual = directory_digest(directory)
    if actual != base.digest:
        raise IntegrityError(
            f"base.digest: {base.uri} has digest {actual}, expected {base.digest}; mount the right model or correct the channel"
        )
    return directory


class Area:
    """One area of the store; paths are relative to its root and use '/'.

    Only file:// is supported: a directory appears by rename, which object stores do not have.
    """

    def __init__(self, url: str) -> None:
        self._root = _local_path("data", url)
        self._files = fsspec.filesystem("file")

    def path(self, relative: str) -> Path:
        """Where a path of the area is on this machine."""
        return self._root / relative

    def names(self, directory: str) -> list[str]:
        """Names directly below a directory, sorted, temporary ones left out; none when it does not exist."""
        if not self._files.isdir(str(self.path(directory))):
            return []
        entries = self._files.ls(str(self.path(directory)), detail=False)
        return sorted(name for name in (entry.rsplit("/", 1)[-1] for entry in entries) if not name.startswith(TEMPORARY))

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._files.exists(str(self.path(path))))

    def modified(self, path: str) -> float:
        """When a file was last written, in seconds since the epoch; raises StoreError when it is absent."""
        with _reading(path):
            return float(self._files.info(str(self.path(path)))["mtime"])

    def read(self, path: str) -> bytes:
        """A file's bytes; raises StoreError when it is absent."""
        with _reading(path):
            return bytes(self._files.cat_file(str(self.path(path))))

    def read_named(self, directory: str, fact: FileFact) -> bytes:
        """A file's bytes, checked against what a manifest says of it; raises IntegrityError when they differ."""
        path = f"{directory}/{fact.path}"
        return checked(path, self.read(path), fact.sha256)

    def write(self, path: str, data: bytes) -> None:
        """Write one file: its name shows the old bytes or the new, never a part."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        write_through(temporary, data)
        temporary.rename(target)
        sync_directory(target.parent)

    def publish(self, directory: str, files: Mapping[str, bytes]) -> bool:
        """Make a directory appear with all its files at once, MANIFEST last; False when it is there already, which nothing changes."""
        target = self.path(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_stale(target.parent)
        temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        for name in sorted(files, key=lambda name: (name == MANIFEST, name)):
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            write_through(temporary / name, files[name])
        for inner in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
            sync_directory(inner)
        return _rename_exclusively(temporary, target)


@contextmanager
def expected(field: str, remedy: str) -> Iterator[None]:
    """Inside, what the job names by `field` must be there: a file that does not exist raises ContractError with the remedy."""
    try:
        yield
    except IntegrityError:
        raise
    except StoreError as error:
        raise ContractError(field, str(error), remedy) from error


def sweep_stale(directory: Path) -> None:
    """Remove what writers that were killed left directly below a directory more than a day ago; links are removed, never followed."""
    oldest = time.time() - STALE_SECONDS
    for path in directory.glob(f"{TEMPORARY}*"):
        with suppress(OSError):  # another writer may sweep at the same time, and what stays is ignored by every reader
            if path.lstat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@contextmanager
def readable(field: str, url: str) -> Iterator[None]:
    """Inside, what the job names by `field` must be open to the user that it runs as; raises ContractError with the remedy."""
    try:
        yield
    except PermissionError as error:
        remedy = "let the user that Jobs run as (the chart's runAsUser) read it"
        raise ContractError(field, f"{url} cannot be read: {error.strerror}", remedy) from error


def checked(path: str, data: bytes, digest: str) -> bytes:
    """The same bytes; raises IntegrityError when they do not have the digest that names them."""
    actual: Digest = sha256(data)
    if actual != digest:
        raise IntegrityError(f"{path}: bytes have digest {actual}, expected {digest}; restore the file or make it anew")
    return data


def _local_path(field: str, url: str) -> Path:
    protocol, separator, _ = url.partition("://")
    if separator and protocol != "file":
        raise ContractError(field, f"protocol {protocol} is not supported", "give a file:// URL")
    _, path = fsspec.url_to_fs(url if separator else f"file://{url}")
    return Path(path)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise StoreError(f"{path}: does not exist; wait until it is published, or correct the name") from error


def _rename_exclusively(temporary: Path, target: Path) -> bool:
    try:
        temporary.rename(target)  # fails when target exists: a directory with files is never replaced
    except OSError:
        _remove(temporary)
        if target.exists():
            return False
        raise
    sync_directory(target.parent)
    return True


def _remove(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    directory.rmdir()
