"""Where chance comes from: items from the sealed seed, decodes from names that everyone may know."""

from __future__ import annotations

import hashlib
import hmac
import os

from gatevalve.contracts.canonical import canonical_json
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Arm
from gatevalve.contracts.names import ENV_SEAL_SEED

SEAL_BYTES = 16
"""Shortest sealed seed: below it a trainer could find the items by trying seeds."""

MAX_REQUEST_SEED = 2**31 - 1


def seal_seed_from_environment() -> bytes:
    """The seed in GATEVALVE_SEAL_SEED (hex); raises ContractError when it is absent, not hex, or too short."""
    try:
        seed = bytes.fromhex(os.environ.get(ENV_SEAL_SEED, ""))
    except ValueError as error:
        raise ContractError(ENV_SEAL_SEED, "is not hexadecimal", "set it from the seed of the seal Secret") from error
    if len(seed) < SEAL_BYTES:
        raise ContractError(ENV_SEAL_SEED, f"holds {len(seed)} bytes", f"set at least {SEAL_BYTES} bytes as hex digits")
    return seed


def drawing_seed(seal: bytes, channel_uid: str, number: int, suite: str) -> int:
    """The seed that a suite's items of one round are drawn with: HMAC-SHA256 of channel, round and suite under the sealed seed."""
    return int.from_bytes(hmac.new(seal, canonical_json([channel_uid, number, suite]), hashlib.sha256).digest())


def request_seed(number: int, test: int, suite: str, item: str, arm: Arm) -> int:
    """The engine's seed for one item and arm of one test: an attempt that asks again asks for the same replies.

    The anchor's is the same in every test of a round, whose tests may share its answers.
    """
    digest = hashlib.sha256(canonical_json([number, 0 if arm == "anchor" else test, suite, item, arm])).digest()
    return int.from_bytes(digest[:4]) & MAX_REQUEST_SEED
