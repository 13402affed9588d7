"""The API key: enforced here, outside vLLM's own check, and sent along on calls to the engine."""

from __future__ import annotations

import hashlib
import secrets

from starlette.types import Scope

from gatevalve_serving.asgi import header


class ApiKeys:
    """The keys that open the server; with none, it is open."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key) for key in keys]
        self.bearer = f"Bearer {keys[0]}" if keys else None

    def admit(self, scope: Scope) -> bool:
        """The request carries one of the keys, compared in constant time, or none is asked for."""
        if not self._digests:
            return True
        scheme, _, given = (header(scope, b"authorization") or "").partition(" ")
        matches = [secrets.compare_digest(_digest(given), digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
