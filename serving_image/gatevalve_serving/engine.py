"""What the running engine is: base, limits, keys and default sampling, read from vLLM's own state in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatevalve.contracts.serving import EngineLimits

RUNTIME_LORA_VARIABLE = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
API_KEY_VARIABLE = "VLLM_API_KEY"
PLAIN_LOGPROBS = frozenset({"raw_logprobs", "processed_logprobs"})


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts fixed at the engine's start; `samples_plainly`: nothing but sampling parameters shapes its distribution."""

    base_names: tuple[str, ...]
    base_path: Path
    limits: EngineLimits
    api_keys: tuple[str, ...]
    default_sampling: Mapping[str, Any]
    max_logprobs: int
    samples_plainly: bool

    @property
    def base_name(self) -> str:
        """The base's first served name: what the engine is asked for the base by."""
        return self.base_names[0]


def engine_facts(app: Any, environment: Mapping[str, str]) -> EngineFacts:
    """Read vLLM's application state (`app.state.args`, `app.state.vllm_config`), complete once its lifespan starts."""
    arguments, config = app.state.args, app.state.vllm_config
    model = config.model_config
    return EngineFacts(
        base_names=tuple(arguments.served_model_name or [arguments.model]),
        base_path=Path(model.model),
        limits=_limits(config.lora_config, environment),
        api_keys=tuple(key for key in (arguments.api_key or [environment.get(API_KEY_VARIABLE)]) if key),
        default_sampling=dict(model.get_diff_sampling_param()),
        max_logprobs=model.max_logprobs,
        samples_plainly=model.logprobs_mode in PLAIN_LOGPROBS and not model.logits_processors,
    )


def _limits(lora: Any, environment: Mapping[str, str]) -> EngineLimits:
    """vLLM adds its load route only when the variable is `1` or `true`, and needs --enable-lora for it."""
    asked = environment.get(RUNTIME_LORA_VARIABLE, "0").strip().lower() in ("1", "true")
    if lora is None:
        return EngineLimits(max_loras=0, max_lora_rank=0, max_cpu_loras=0, runtime_lora=False)
    return EngineLimits(max_loras=lora.max_loras, max_lora_rank=lora.max_lora_rank, max_cpu_loras=lora.max_cpu_loras, runtime_lora=asked)
