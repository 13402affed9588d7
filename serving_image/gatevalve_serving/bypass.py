"""Bypass: requests that try to load, unload or name an adapter past the aliases. The newest one is in every report of the pod."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from gatevalve.contracts.serving import RefusedRequest
from gatevalve_serving.clock import timestamp
from gatevalve_serving.progress import Progress

LOG = logging.getLogger("gatevalve.serving")

SAGEMAKER_ADAPTER_HEADER = b"x-amzn-sagemaker-adapter"
"""Headers with this prefix name an adapter past the alias (model-hosting-container-standards)."""

ADAPTER_SEGMENTS = frozenset({"load_lora_adapter", "unload_lora_adapter", "adapters", "invocations", "collective_rpc"})
"""Path segments of the engine's routes that load, unload or choose adapters; `collective_rpc` calls any method of its workers."""

LONGEST_PATH, LONGEST_METHOD = 120, 16


class Bypass(StrEnum):
    """How a request tried; the value is the reason in the metric of refused requests."""

    ROUTE = "adapter_route"
    HEADER = "adapter_header"
    WEBSOCKET = "websocket"
    MODEL = "adapter_name"
    CONTENT = "adapter_content"


SENTENCES: Mapping[Bypass, str] = {
    Bypass.ROUTE: "a route that loads, unloads or chooses adapters",
    Bypass.HEADER: "SageMaker's adapter header",
    Bypass.WEBSOCKET: "a websocket",
    Bypass.MODEL: "an adapter's own name as model",
    Bypass.CONTENT: "an adapter's own name as the type of a content part",
}


def tries_an_adapter_route(path: str) -> bool:
    """A segment of the path, however it is spelt, is that of a route for adapters."""
    return not ADAPTER_SEGMENTS.isdisjoint(re.split(r"[/\\?#;]+", unquote(path).lower()))


def carries_an_adapter_header(scope: Scope) -> bool:
    """The request carries SageMaker's adapter header, which would choose an adapter past the alias."""
    return any(key.lower().startswith(SAGEMAKER_ADAPTER_HEADER) for key, _ in scope["headers"])


def content_names_an_adapter(asked: Mapping[str, Any], is_adapter: Callable[[str], bool]) -> bool:
    """A content part's type names an adapter.

    Where the base is asked, vLLM answers with the adapter whose name is the type of a content part up to its first underscore: a
    convenience for adapters per modality, which takes any type that a client writes.
    """
    return any(is_adapter(kind.split("_")[0]) for kind in _content_types(asked))


def _content_types(asked: Mapping[str, Any]) -> list[str]:
    messages = asked.get("messages")
    contents = [message.get("content") for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    return [part["type"] for part in parts if isinstance(part.get("type"), str)]


class Attempts:
    """The newest refused request, and when the pod's reports change for it: at most once in `tell_every` seconds, however many come."""

    def __init__(self, progress: Progress, tell_every: float) -> None:
        self.newest: RefusedRequest | None = None
        self._progress, self._tell_every = progress, tell_every
        self._untold, self._told_at = False, float("-inf")

    def note(self, how: Bypass, method: str, path: str) -> None:
        """A request was refused. Its body and query are never told."""
        self.newest = RefusedRequest(
            at=timestamp(), message=f"{quoted(method, LONGEST_METHOD)} {quoted(path, LONGEST_PATH)}: {SENTENCES[how]}"
        )
        self._untold = True
        self.tell()

    def tell(self) -> None:
        """Let the reports' progress grow if there is something new and the last time is long enough ago."""
        now = time.monotonic()
        if self.newest is not None and self._untold and now - self._told_at >= self._tell_every:
            self._untold, self._told_at = False, now
            LOG.warning("refused %s", self.newest.message)
            self._progress.bump()


def quoted(text: str, longest: int) -> str:
    """One printable word: a client's text with spaces and semicolons could read like words of ours."""
    return printable(text, longest).replace(" ", "%20").replace(";", "%3B")


def printable(text: str, longest: int) -> str:
    """The text's start in printable ASCII, whatever a client or a file name holds."""
    clean = "".join(character if " " <= character <= "~" else "?" for character in text[:longest])
    return f"{clean}..." if len(text) > longest else clean
