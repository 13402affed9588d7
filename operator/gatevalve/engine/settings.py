"""What the operator's own deployment tells it by environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from gatevalve.build.jobs import Place
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import ENV_NAMESPACE, ENV_POOL_API_KEY, LOG_PATH, SEALED_PATH
from gatevalve.decide.view import Settings

DEFAULT_METRICS_PORT = 8080
DEFAULT_USER = 1000
DEFAULT_SIGNING_DIR = "/gatevalve/signing"


@dataclass(frozen=True, slots=True)
class Environment:
    """The operator's environment, read once at start."""

    place: Place
    sealed_url: str
    log_url: str
    signing_dir: Path
    pool_api_key: str | None
    metrics_port: int

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Environment:
        """From GATEVALVE_* variables; raises ContractError that names the variable."""
        return cls(
            place=_place(env),
            sealed_url=env.get("GATEVALVE_SEALED_URL") or f"file://{SEALED_PATH}",
            log_url=env.get("GATEVALVE_LOG_URL") or f"file://{LOG_PATH}",
            signing_dir=Path(env.get("GATEVALVE_SIGNING_DIR") or DEFAULT_SIGNING_DIR),
            pool_api_key=env.get(ENV_POOL_API_KEY) or None,
            metrics_port=_number(env, "GATEVALVE_METRICS_PORT", DEFAULT_METRICS_PORT),
        )

    def settings(self, key_id: str, started_at: datetime) -> Settings:
        """What decisions need of it."""
        return Settings(place=self.place, operator_version=version("gatevalve"), key_id=key_id, started_at=started_at)


def _place(env: Mapping[str, str]) -> Place:
    claim, host_path = env.get("GATEVALVE_MODELS_CLAIM") or None, env.get("GATEVALVE_MODELS_HOST_PATH") or None
    if claim is not None and host_path is not None:
        raise ContractError("GATEVALVE_MODELS_HOST_PATH", "is set beside GATEVALVE_MODELS_CLAIM", "set one of them")
    return Place(
        namespace=_text(env, ENV_NAMESPACE),
        trainer_image=_text(env, "GATEVALVE_TRAINER_IMAGE"),
        serving_image=_text(env, "GATEVALVE_SERVING_IMAGE"),
        data_claim=_text(env, "GATEVALVE_DATA_CLAIM"),
        sealed_claim=_text(env, "GATEVALVE_SEALED_CLAIM"),
        models_claim=claim,
        models_host_path=host_path,
        run_as_user=_number(env, "GATEVALVE_RUN_AS_USER", DEFAULT_USER),
    )


def _text(env: Mapping[str, str], name: str) -> str:
    value = env.get(name)
    if not value:
        raise ContractError(name, "is not set", "set it in the operator's environment; the chart does")
    return value


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdigit():
        raise ContractError(name, f"{text!r} is not a number", "write digits only")
    return int(text)
