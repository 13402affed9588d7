"""The keyed split of conversations: what may be trained on, what is sealed for the gate, what watches drift."""

from __future__ import annotations

import hashlib
import hmac
import os
import unicodedata
from typing import Literal

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import ENV_SPLIT_KEY

Side = Literal["train", "sealed", "drift"]

TRAIN_PERMILLE, SEALED_PERMILLE = 900, 80
"""Shares of the split; the rest watches drift."""

KEY_BYTES = 16
"""Shortest split key: below it the sides could be found by trying keys."""


def split_side(key: bytes, text: str) -> Side:
    """The side of a conversation, by HMAC-SHA256 of its normalised first user message: the same question is on one side for ever."""
    permille = int.from_bytes(hmac.new(key, normalised(text).encode("utf-8", "surrogatepass"), hashlib.sha256).digest()[:8]) % 1000
    if permille < TRAIN_PERMILLE:
        return "train"
    return "sealed" if permille < TRAIN_PERMILLE + SEALED_PERMILLE else "drift"


def normalised(text: str) -> str:
    """Text that differs only in width, case or spacing, made equal: NFKC, lower case, runs of space as one."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def split_key_from_environment() -> bytes:
    """The key in GATEVALVE_SPLIT_KEY (hex); raises ContractError when it is absent, not hex, or too short."""
    try:
        key = bytes.fromhex(os.environ.get(ENV_SPLIT_KEY, ""))
    except ValueError as error:
        raise ContractError(ENV_SPLIT_KEY, "is not hexadecimal", "set it from the split key of the seal Secret") from error
    if len(key) < KEY_BYTES:
        raise ContractError(ENV_SPLIT_KEY, f"holds {len(key)} bytes", f"set at least {KEY_BYTES} bytes as hex digits")
    return key
