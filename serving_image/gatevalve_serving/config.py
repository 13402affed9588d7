"""What the Pod tells its middleware: identity, the trusted key's digest, and where the mounts are."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import (
    CACHE_PATH,
    DATA_PATH,
    ENV_CACHE_PATH,
    ENV_DATA_URL,
    ENV_KEY_SHA256,
    ENV_KEYS_PATH,
    ENV_NAMESPACE,
    ENV_POD_NAME,
    ENV_POD_UID,
    ENV_POOL,
    ENV_POOL_PATH,
    KEYS_PATH,
    POOL_PATH,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """How often the middleware looks and how long it waits, in seconds."""

    poll: float = 0.25
    tick: float = 1.0
    probe: float = 60.0
    retry_first: float = 2.0
    retry_longest: float = 300.0
    load: float = 120.0
    generation: float = 120.0
    capture_flush: float = 1.0
    registry: float = 10.0
    tell_refused: float = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The middleware's settings; `boot` is random per process start."""

    namespace: str
    pool: str
    pod: str
    pod_uid: str
    key_digest: str
    data_url: str = f"file://{DATA_PATH}"
    pool_path: Path = Path(POOL_PATH)
    keys_path: Path = Path(KEYS_PATH)
    cache_path: Path = Path(CACHE_PATH)
    timing: Timing = Timing()
    boot: str = field(default_factory=lambda: secrets.token_hex(4))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Settings from the Pod's environment; raises ContractError that names the missing variable."""
        return cls(
            namespace=_required(environment, ENV_NAMESPACE),
            pool=_required(environment, ENV_POOL),
            pod=_required(environment, ENV_POD_NAME),
            pod_uid=_required(environment, ENV_POD_UID),
            key_digest=_required(environment, ENV_KEY_SHA256),
            data_url=environment.get(ENV_DATA_URL, f"file://{DATA_PATH}"),
            pool_path=Path(environment.get(ENV_POOL_PATH, POOL_PATH)),
            keys_path=Path(environment.get(ENV_KEYS_PATH, KEYS_PATH)),
            cache_path=Path(environment.get(ENV_CACHE_PATH, CACHE_PATH)),
        )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise ContractError(name, "is not set", "set it in the serving Pod's spec; the chart's pool shows all of them")
    return value
