"""Canonical JSON (RFC 8785) over values without floats, and the sha256 names made from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NewType

from gatevalve.contracts.errors import ContractError

Digest = NewType("Digest", str)
"""`sha256:` and 64 hex digits."""

SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exact (RFC 8785 section 3.2.2.3)."""


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a float-free JSON value: keys in UTF-16 order, no space, minimal escapes, UTF-8.

    Raises ContractError for floats, integers beyond 2**53 - 1, lone surrogates and non-JSON types.
    """
    try:
        return json.dumps(_sorted(value, "$"), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise ContractError("$", f"text is not valid Unicode: {error.reason}", "remove the lone surrogate") from error


def sha256(data: bytes) -> Digest:
    """The digest of some bytes."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def digest_of_json(value: Any) -> Digest:
    """The digest of a float-free JSON value's canonical bytes."""
    return sha256(canonical_json(value))


def digest_of_files(files: Mapping[str, tuple[int, Digest]] | Iterable[tuple[str, int, Digest]]) -> Digest:
    """The digest of a set of files given as (path, size in bytes, digest): sha256 over their canonical list sorted by path."""
    rows = [(path, *fact) for path, fact in files.items()] if isinstance(files, Mapping) else list(files)
    return digest_of_json([{"path": path, "size": size, "sha256": digest} for path, size, digest in sorted(rows)])


def _sorted(value: Any, path: str) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        if abs(value) > SAFE_INTEGER:
            raise ContractError(path, "integer is beyond 2**53 - 1", "write it as a decimal string")
        return value
    if isinstance(value, Mapping):
        return {key: _sorted(value[key], f"{path}.{key}") for key in sorted(value, key=_utf16)}
    if isinstance(value, list | tuple):
        return [_sorted(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise ContractError(path, f"{type(value).__name__} has no canonical form", "use integers (basis points) or decimal strings")


def _utf16(key: Any) -> bytes:
    if not isinstance(key, str):
        raise ContractError(str(key), "object keys must be strings", "write the key as a string")
    return key.encode("utf-16-be", "surrogatepass")
