"""File facts and directory digests: how models, artifacts and adapters get their names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gatevalve.contracts.canonical import Digest, digest_of_files
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import FileFact

CHUNK_BYTES = 1 << 20


def file_fact(root: Path, path: Path) -> FileFact:
    """Path relative to root, size in bytes and sha256 of one file."""
    hasher = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            hasher.update(chunk)
    return FileFact(path=path.relative_to(root).as_posix(), size=path.stat().st_size, sha256=f"sha256:{hasher.hexdigest()}")


def directory_facts(root: Path) -> tuple[FileFact, ...]:
    """Facts of every regular file below root, sorted by path; hidden files are left out.

    Raises ContractError when root is no directory or holds no file.
    """
    if not root.is_dir():
        raise ContractError(str(root), "is not a directory", "give the directory that holds the files")
    paths = sorted(path for path in root.rglob("*") if path.is_file() and not _hidden(path.relative_to(root)))
    if not paths:
        raise ContractError(str(root), "holds no files", "give the directory that holds the files")
    return tuple(file_fact(root, path) for path in paths)


def digest_of_facts(facts: tuple[FileFact, ...]) -> Digest:
    """The digest that a set of file facts adds up to."""
    return digest_of_files([(fact.path, fact.size, Digest(fact.sha256)) for fact in facts])


def directory_digest(root: Path) -> Digest:
    """The digest of a directory: of its base model, artifact or adapter files."""
    return digest_of_facts(directory_facts(root))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
