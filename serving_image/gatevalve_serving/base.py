"""The engine's base model: its digest, hashed once per set of files and remembered beside them, and its tensors' shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from gatevalve.contracts.canonical import Digest, digest_of_json
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.hashing import directory_digest
from gatevalve_serving.files import write_atomically
from gatevalve_serving.safetensors_file import Shapes, shapes_below


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Digest and tensor shapes of the base's files, or why they cannot be read."""

    digest: Digest | None
    shapes: Shapes
    problem: str | None = None


def read_base(path: Path, cache: Path) -> BaseModel:
    """Read the base's files; the digest is taken from the cache while path, size and mtime of every file are the same."""
    if not path.is_dir():
        return BaseModel(None, {}, f"--model {path} is not a directory of this Pod; give the base's directory, not a hub name")
    try:
        return BaseModel(_digest(path, cache), shapes_below(path))
    except (OSError, ContractError, SafetensorError) as error:
        return BaseModel(None, {}, f"the base at {path} cannot be read: {error}")


def _digest(path: Path, cache: Path) -> Digest:
    print_of_files = _print_of_files(path)
    if known := _remembered(cache, print_of_files):
        return known
    digest = directory_digest(path)
    write_atomically(cache, json.dumps({"files": print_of_files, "digest": digest}).encode())
    return digest


def _print_of_files(path: Path) -> Digest:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    stats = [(file, file.stat()) for file in files]
    return digest_of_json([[str(file), stat.st_size, str(stat.st_mtime_ns)] for file, stat in stats])


def _remembered(cache: Path, print_of_files: Digest) -> Digest | None:
    try:
        known = json.loads(cache.read_bytes())
        return Digest(known["digest"]) if known["files"] == print_of_files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
