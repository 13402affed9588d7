"""What an adapter made elsewhere may say of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from peft import LoraConfig

from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.fetch.config import rank_and_alpha


def config(**changes: Any) -> bytes:
    """What PEFT writes for a plain LoRA, with changes."""
    plain = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"], task_type="CAUSAL_LM").to_dict()
    written = {key: sorted(value) if isinstance(value, set) else value for key, value in plain.items()}
    return json.dumps({**written, **changes}, default=str).encode()


def test_what_peft_writes_for_a_plain_lora_is_accepted() -> None:
    assert rank_and_alpha(config()) == (8, 16)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"base_model_name_or_path": "/home/me/base", "revision": "main"}, id="where it was trained"),
        pytest.param({"lora_dropout": 0.1, "inference_mode": True}, id="how it was trained"),
        pytest.param({"task_type": None}, id="no task type"),
        pytest.param({"lora_alpha": 16.0}, id="a whole alpha written as a real number"),
        pytest.param({"init_lora_weights": "gaussian"}, id="an initialisation that leaves the base alone"),
        pytest.param({"some_future_feature": None}, id="an unknown feature that is off"),
    ],
)
def test_what_does_not_change_the_answer_is_accepted(changes: dict[str, Any]) -> None:
    assert rank_and_alpha(config(**changes)) == (8, 16)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"task_type": "SEQ_CLS"}, "task_type"),
        ({"use_dora": True}, "use_dora"),
        ({"use_rslora": True}, "use_rslora"),
        ({"bias": "all"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 16}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 16}}, "alpha_pattern"),
        ({"layers_to_transform": [0]}, "layers_to_transform"),
        ({"layers_to_transform": 0}, "layers_to_transform"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"target_parameters": ["experts"]}, "target_parameters"),
        ({"some_future_feature": True}, "some_future_feature"),
        ({"some_future_size": 0}, "some_future_size"),
        ({"r": 0}, "r"),
        ({"r": "8"}, "r"),
        ({"r": True}, "r"),
        ({"lora_alpha": 0.5}, "lora_alpha"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"r": float("inf")}, "r"),
        ({"r": float("nan")}, "r"),
        ({"lora_alpha": float("inf")}, "lora_alpha"),
        ({"some_future_size": float("nan")}, "some_future_size"),
    ],
)
def test_what_the_engine_would_serve_differently_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ContractError, match=rf"adapter_config\.json\.{field}: is "):
        rank_and_alpha(config(**changes))


def test_a_number_too_large_for_a_float_is_refused_by_field() -> None:
    with pytest.raises(ContractError, match=r"adapter_config\.json\.r: is Infinity"):
        rank_and_alpha(config(r=8).replace(b'"r": 8', b'"r": 1e999'))


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"peft_type":"LORA","deep":' + b"[" * 100_000])
def test_a_configuration_nested_too_deeply_is_refused(raw: bytes) -> None:
    with pytest.raises(ContractError, match=r"adapter_config\.json: is nested too deeply"):
        rank_and_alpha(raw)


@pytest.mark.parametrize("raw", [b"", b"not json", b"[]", b"\xff"])
def test_a_configuration_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ContractError, match=r"adapter_config\.json: is not"):
        rank_and_alpha(raw)
