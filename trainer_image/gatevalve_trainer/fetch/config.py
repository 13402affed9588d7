"""What an adapter made elsewhere may say of itself: plain LoRA, nothing that PEFT and vLLM read differently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import ADAPTER_CONFIG

READ_HERE = ("r", "lora_alpha", "target_modules", "peft_type", "task_type", "init_lora_weights")

IGNORED = (
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
)
"""Fields that do not change what the adapter answers; dropout is off when serving."""

OFF: tuple[Any, ...] = ("", "none", [], {})
"""Every other field must be null, false or one of these: what we do not know must be off."""

PLAIN_INITS = (True, False, "gaussian", "eva", "orthogonal")
"""Initialisations that leave the base as it is; PiSSA, OLoRA, CorDA and LoftQ change it when PEFT loads the adapter."""


def rank_and_alpha(raw: bytes) -> tuple[int, int]:
    """Rank and alpha in an adapter_config.json; raises ContractError that names the first field that is not plain LoRA."""
    try:
        return _plain(_object(raw))
    except RecursionError as error:
        raise ContractError(ADAPTER_CONFIG, "is nested too deeply", "write it with PEFT's save_pretrained") from error


def _plain(config: Mapping[str, Any]) -> tuple[int, int]:
    _require(config.get("peft_type") == "LORA", "peft_type", config.get("peft_type"), "give a LoRA adapter")
    _require(
        config.get("task_type") in (None, "CAUSAL_LM"), "task_type", config.get("task_type"), "give an adapter of a causal language model"
    )
    init = config.get("init_lora_weights", True)
    _require(
        init in PLAIN_INITS,
        "init_lora_weights",
        init,
        "convert it to a plain LoRA adapter with PEFT's path_initial_model_for_weight_conversion",
    )
    for field in sorted(config.keys() - set(READ_HERE) - set(IGNORED)):
        _require(_is_off(config[field]), field, config[field], "train without it: the engine would not serve it as trained")
    return _positive(config, "r"), _positive(config, "lora_alpha")


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        config = json.loads(raw)
    except ValueError as error:
        raise ContractError(ADAPTER_CONFIG, f"is not JSON: {error}", "write it with PEFT's save_pretrained") from error
    if not isinstance(config, dict):
        raise ContractError(ADAPTER_CONFIG, "is not a JSON object", "write it with PEFT's save_pretrained")
    return config


def _is_off(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | list | dict) and value in OFF)  # 0 == False, but 0 may name a layer


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()  # NaN and infinity are not
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(config: Mapping[str, Any], field: str) -> int:
    value: Any = config.get(field)
    _require(_is_whole(value) and value > 0, field, value, "give a positive whole number")
    return int(config[field])


def _require(holds: bool, field: str, value: Any, remedy: str) -> None:
    if not holds:
        raise ContractError(f"{ADAPTER_CONFIG}.{field}", f"is {json.dumps(value)[:80]}", remedy)
