"""The allow-list: which (method, path) a client may reach. What is not here does not exist for clients."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Target(Enum):
    """Who answers an allowed request."""

    CHAT = auto()
    COMPLETIONS = auto()
    TOKENIZE = auto()
    MODELS = auto()
    FEEDBACK = auto()
    ENGINE = auto()
    READYZ = auto()
    CHANNELS = auto()
    CHANNEL_GET = auto()
    CHANNEL_PUT = auto()


@dataclass(frozen=True, slots=True)
class Allowed:
    """A target, whether it needs the API key, and the channel named in the path."""

    target: Target
    needs_key: bool
    channel: str = ""


ALLOWED: dict[tuple[str, str], Allowed] = {
    ("POST", "/v1/chat/completions"): Allowed(Target.CHAT, True),
    ("POST", "/v1/completions"): Allowed(Target.COMPLETIONS, True),
    ("POST", "/tokenize"): Allowed(Target.TOKENIZE, True),
    ("GET", "/v1/models"): Allowed(Target.MODELS, True),
    ("POST", "/v1/feedback"): Allowed(Target.FEEDBACK, True),
    ("GET", "/health"): Allowed(Target.ENGINE, False),
    ("GET", "/metrics"): Allowed(Target.ENGINE, False),
    ("GET", "/gatevalve/readyz"): Allowed(Target.READYZ, False),
    ("GET", "/gatevalve/v1/channels"): Allowed(Target.CHANNELS, True),
}

CHANNEL_METHODS = {"GET": Target.CHANNEL_GET, "PUT": Target.CHANNEL_PUT}
CHANNEL_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?")
CHANNELS_PREFIX = "/gatevalve/v1/channels/"


def find(method: str, path: str) -> Allowed | None:
    """The entry that allows a request; paths match exactly, without normalising."""
    if found := ALLOWED.get((method, path)):
        return found
    channel = path.removeprefix(CHANNELS_PREFIX)
    if channel != path and method in CHANNEL_METHODS and CHANNEL_NAME.fullmatch(channel):
        return Allowed(CHANNEL_METHODS[method], True, channel)
    return None
