"""Marks: what lies in the sealed area was written by an evaluation, not planted by somebody who can merely write there.

A mark is an HMAC under the sealed seed, which only evaluation Jobs are given. Names and digests do not tell: they are public in the log.
"""

from __future__ import annotations

import hashlib
import hmac

from gatevalve.contracts.canonical import canonical_json, sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import UNMARKED


def mark_of(seal: bytes, what: str, data: bytes) -> str:
    """The mark, in hex, of some bytes that stand for `what`: a mark of one thing never fits another."""
    return hmac.new(seal, canonical_json(["mark", what, sha256(data)]), hashlib.sha256).hexdigest()


def check_mark(seal: bytes, what: str, data: bytes, mark: str | None, where: str) -> None:
    """Raises ContractError that names the file unless the mark is the one of these bytes."""
    if mark is None or not hmac.compare_digest(mark.encode(), mark_of(seal, what, data).encode()):
        raise ContractError(where, UNMARKED, "find out who wrote to the sealed area; then open a new test, for items a new round")
