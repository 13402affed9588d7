"""Fetch: an adapter from the data area to a pod-local directory of its own; every byte is checked on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import AdapterManifest, FileFact
from gatevalve.contracts.hashing import CHUNK_BYTES, digest_of_facts, file_fact
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST, digest_hex
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import AdapterOnPod
from gatevalve_serving.files import write_atomically
from gatevalve_serving.problem import AdapterProblem

LARGEST_MANIFEST = 4 << 20
FILES = {ADAPTER_CONFIG, ADAPTER_WEIGHTS}

OWNER_DIGITS = 16
"""Hex digits that tell the owners of the same bytes apart: names of one pod, which nobody gains by making collide."""


@dataclass(frozen=True, slots=True)
class LocalAdapter:
    """A verified adapter on the pod's own disk. `path` never changes its content: it is named by the digest."""

    path: Path
    manifest: AdapterManifest


def local_path(cache: Path, channel: str, adapter: AdapterOnPod) -> Path:
    """Where a channel's adapter lies on the pod's own disk.

    Channel and name are part of it: who lets an adapter go deletes its files, and others may serve the same bytes.
    """
    owner = sha256(f"{channel}/{adapter.name}".encode())
    return cache / f"{digest_hex(adapter.digest)}-{digest_hex(owner)[:OWNER_DIGITS]}"


def fetch(data_url: str, adapter: AdapterOnPod, target: Path) -> LocalAdapter:
    """The adapter's verified local copy at `target`; blocking. Raises AdapterProblem."""
    if os.path.lexists(target):
        try:
            return _verified(target, adapter.digest)
        except AdapterProblem:  # a crash or a full disk left it half-written, or somebody changed it
            _clear(target)
    try:
        return _copy(data_url, adapter, target)
    except OSError as error:
        where = f"{data_url.rstrip('/')}/{adapter.uri}"
        raise AdapterProblem(PodReason.ADAPTER_MISSING, f"{where} cannot be read: {type(error).__name__}: {error}") from error


def _clear(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink()


def _copy(data_url: str, adapter: AdapterOnPod, target: Path) -> LocalAdapter:
    store, root = fsspec.core.url_to_fs(data_url)
    source = f"{root.rstrip('/')}/{_safe(adapter)}"
    raw = _read(store, f"{source}/{MANIFEST}", LARGEST_MANIFEST)
    manifest = _manifest(raw, adapter.digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".tmp-") as temporary:
        copy = Path(temporary) / target.name
        copy.mkdir()
        for fact in manifest.files:
            _copy_file(store, f"{source}/{fact.path}", copy / fact.path, fact)
        write_atomically(copy / MANIFEST, raw)
        copy.rename(target)
    return LocalAdapter(target, manifest)


def _safe(adapter: AdapterOnPod) -> str:
    """The adapter's path below the data area: relative, without `..`, and ending in its digest."""
    path = PurePosixPath(adapter.uri)
    if path.is_absolute() or ".." in path.parts or "://" in adapter.uri or path.name != digest_hex(adapter.digest):
        raise AdapterProblem(PodReason.DIGEST_MISMATCH, f"uri {adapter.uri} is not <channel uid>/adapters/{digest_hex(adapter.digest)}")
    return path.as_posix()


def _read(store: Any, path: str, limit: int) -> bytes:
    _check_plain(store, path)
    with store.open(path, "rb") as file:
        data: bytes = file.read(limit + 1)
    if len(data) > limit:
        raise AdapterProblem(PodReason.ADAPTER_UNSUPPORTED, f"{path} is longer than {limit} bytes")
    return data


def _check_plain(store: Any, path: str) -> None:
    """A pipe in a file's place would keep its reader waiting for ever."""
    if store.info(path)["type"] != "file":
        raise AdapterProblem(PodReason.ADAPTER_UNSUPPORTED, f"{path} is no plain file")


def _manifest(raw: bytes, digest: str) -> AdapterManifest:
    try:
        manifest = AdapterManifest.parse_json(raw)
    except ContractError as error:
        raise AdapterProblem(PodReason.ADAPTER_UNSUPPORTED, f"{MANIFEST} of {digest}: {error}") from error
    if {fact.path for fact in manifest.files} != FILES:
        named = ", ".join(sorted(fact.path for fact in manifest.files))
        raise AdapterProblem(
            PodReason.ADAPTER_UNSUPPORTED, f"{MANIFEST} names {named}; an adapter is exactly {' and '.join(sorted(FILES))}"
        )
    if not digest == manifest.digest == digest_of_facts(manifest.files):
        raise AdapterProblem(PodReason.DIGEST_MISMATCH, f"{MANIFEST} is of {manifest.digest}, its files add up to "
                             f"{digest_of_facts(manifest.files)}, the document names {digest}")  # fmt: skip
    return manifest


def _plain_files(path: Path) -> list[Path]:
    """What a directory holds; empty where it, or anything in it, is not what its name says: a link may lead elsewhere tomorrow."""
    held = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    return held if all(file.is_file() and not file.is_symlink() for file in held) else []


def _copy_file(store: Any, source: str, target: Path, fact: FileFact) -> None:
    _check_plain(store, source)
    hasher, size = hashlib.sha256(), 0
    with store.open(source, "rb") as stream, target.open("wb") as file:
        while chunk := stream.read(CHUNK_BYTES):
            size += len(chunk)
            if size > fact.size:
                break
            hasher.update(chunk)
            file.write(chunk)
    if size != fact.size or f"sha256:{hasher.hexdigest()}" != fact.sha256:
        raise AdapterProblem(PodReason.DIGEST_MISMATCH, f"{source} does not have the size and sha256 that {MANIFEST} names")


def _verified(path: Path, digest: str) -> LocalAdapter:
    if {file.name for file in _plain_files(path)} != {MANIFEST, *FILES}:
        raise AdapterProblem(PodReason.DIGEST_MISMATCH, f"{path} holds something else than plain files of {digest}")
    try:
        manifest = _manifest((path / MANIFEST).read_bytes(), digest)
        facts = tuple(file_fact(path, path / fact.path) for fact in manifest.files)
    except OSError as error:
        raise AdapterProblem(PodReason.DIGEST_MISMATCH, f"{path} is not complete: {error}") from error
    if digest_of_facts(facts) != digest:
        raise AdapterProblem(PodReason.DIGEST_MISMATCH, f"{path} no longer has the bytes of {digest}")
    return LocalAdapter(path, manifest)
