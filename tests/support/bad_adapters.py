"""Adapters that must not be served: made by PEFT as people make them, then spoilt; each with the telling words of its refusal.

Component tests put the whole table to the fetch code, cluster tests some of it to real fetch Jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from support.training import BASE_DIRECTORY
from support.words import load_model

FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"

Spoil = Callable[[Path], object]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class BadAdapter:
    """What is done to a sound adapter's directory, and what is said of it (a pattern)."""

    spoil: Spoil
    says: str


def peft_directory(path: Path, model: PreTrainedModel | None = None, **changes: Any) -> Path:
    """A PEFT adapter with random weights, saved as people save it; of the tiny base unless another model is given."""
    torch.manual_seed(5)
    config: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    made = get_peft_model(model or load_model(), LoraConfig(**{**config, **changes}))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    made.save_pretrained(str(path))
    return path


def of_another_base(**changes: int) -> Spoil:
    """The adapter of a base that differs in these fields of its configuration."""

    def spoil(artifact: Path) -> None:
        fields = json.loads((BASE_DIRECTORY / "config.json").read_bytes())
        del fields["layer_types"]  # one a layer: made anew from their number
        config = AutoConfig.for_model(**{**fields, **changes})
        peft_directory(artifact, AutoModelForCausalLM.from_config(config, dtype=torch.float32))

    return spoil


def config_change(**changes: Any) -> Spoil:
    """Fields of adapter_config.json written over."""

    def spoil(artifact: Path) -> None:
        config = json.loads((artifact / ADAPTER_CONFIG).read_bytes())
        (artifact / ADAPTER_CONFIG).write_text(json.dumps({**config, **changes}))

    return spoil


def tensor_change(change: Callable[[Tensors], Tensors]) -> Spoil:
    """Other weights."""

    def spoil(artifact: Path) -> None:
        save_file(change(load_file(artifact / ADAPTER_WEIGHTS)), artifact / ADAPTER_WEIGHTS)

    return spoil


def extra_file(name: str) -> Spoil:
    """A file that no adapter has."""

    def spoil(artifact: Path) -> None:
        (artifact / name).write_bytes(b"x")

    return spoil


def pickled(artifact: Path) -> None:
    """What PEFT saved before safetensors."""
    torch.save(load_file(artifact / ADAPTER_WEIGHTS), artifact / "adapter_model.bin")
    (artifact / ADAPTER_WEIGHTS).unlink()


def cut_in_half(artifact: Path) -> None:
    """A copy that was interrupted."""
    whole = (artifact / ADAPTER_WEIGHTS).read_bytes()
    (artifact / ADAPTER_WEIGHTS).write_bytes(whole[: len(whole) // 2])


BAD_ADAPTERS = {
    "an adapter of a larger base": BadAdapter(
        of_another_base(hidden_size=128), r"has shape \(4, 128\), the base needs \(4, 64\); train on"
    ),
    "an adapter of a smaller base": BadAdapter(of_another_base(hidden_size=32), r"has shape \(4, 32\), the base needs \(4, 64\); train on"),
    "an adapter of a base with more layers": BadAdapter(
        of_another_base(num_hidden_layers=6), r"layers\.4.* is no LoRA weight of this base; train the adapter on the channel's base"
    ),
    "an adapter of a base with fewer layers": BadAdapter(
        of_another_base(num_hidden_layers=2), r"layers\.2.*is missing; an adapter has A and B weights for every layer"
    ),
    "a rank above the channel's": BadAdapter(
        config_change(r=16), r"rank 16 is above the channel's 8; train with a lower rank or raise spec\.adapter\.rank"
    ),
    "another rank than the tensors have": BadAdapter(config_change(r=8), r"has shape \(4, 64\), the base needs \(8, 64\)"),
    "a rank of nothing": BadAdapter(config_change(r=0), r"adapter_config\.json\.r: is 0; give a positive whole number"),
    "DoRA": BadAdapter(config_change(use_dora=True), r"adapter_config\.json\.use_dora: is true; train without it"),
    "saved modules": BadAdapter(config_change(modules_to_save=["lm_head"]), r'modules_to_save: is \["lm_head"\]; train without it'),
    "trained biases": BadAdapter(config_change(bias="lora_only"), r"adapter_config\.json\.bias: is .*; train without it"),
    "a prompt-tuning adapter": BadAdapter(config_change(peft_type="PROMPT_TUNING"), r"peft_type: is .*; give a LoRA adapter"),
    "a pickle": BadAdapter(pickled, r"artifact\.adapter_model\.bin: is no file of an adapter; .*pickles are never read"),
    "a pickle beside the weights": BadAdapter(extra_file("adapter_model.bin"), r"artifact\.adapter_model\.bin: .*pickles are never read"),
    "a file that is no adapter's": BadAdapter(extra_file("tokenizer.json"), r"artifact\.tokenizer\.json: is no file of an adapter"),
    "a hidden file, which the digest leaves out": BadAdapter(extra_file(".hidden.bin"), r"artifact\.\.hidden\.bin"),
    "no weights": BadAdapter(
        lambda a: (a / ADAPTER_WEIGHTS).unlink(), r"adapter_model\.safetensors: is missing; save the adapter with PEFT"
    ),
    "no configuration": BadAdapter(
        lambda a: (a / ADAPTER_CONFIG).unlink(), r"adapter_config\.json: is missing; save the adapter with PEFT"
    ),
    "a configuration that is no JSON": BadAdapter(
        lambda a: (a / ADAPTER_CONFIG).write_bytes(b"r: 8"), r"adapter_config\.json: is not JSON: .*; write it with PEFT's save_pretrained"
    ),
    "weights that are no safetensors": BadAdapter(
        lambda a: (a / ADAPTER_WEIGHTS).write_bytes(b"PK"), "is not safetensors: .*; copy it again, or save it anew"
    ),
    "weights cut in half": BadAdapter(cut_in_half, "is not safetensors: .*; copy it again, or save it anew"),
    "a missing tensor": BadAdapter(tensor_change(lambda t: {k: v for k, v in t.items() if k != FIRST}), "lora_B.weight: is missing"),
    "a full layer": BadAdapter(
        tensor_change(lambda t: {**t, "base_model.model.lm_head.weight": torch.ones(2)}), "lm_head.weight: is no LoRA weight; keep only"
    ),
    "layers of another kind": BadAdapter(
        tensor_change(lambda t: {k.replace("v_proj", "qkv_proj"): v for k, v in t.items()}),
        r"qkv_proj are not layers of the channel's adapters; add them to spec\.adapter\.targetModules",
    ),
    "NaN weights": BadAdapter(
        tensor_change(lambda t: {**t, FIRST: t[FIRST] * float("nan")}),
        "q_proj.lora_B.weight: holds NaN or infinity; train again with a lower learning rate",
    ),
    "no effect": BadAdapter(
        tensor_change(lambda t: {k: v * 0 if "_B" in k else v for k, v in t.items()}),
        "has zero effect: every B is zero; save the adapter after training",
    ),
    "no visible effect": BadAdapter(
        tensor_change(lambda t: {k: v * 1e-9 for k, v in t.items()}), "moves no probed log-probability .*; train it further"
    ),
    "a dtype for storage only": BadAdapter(
        tensor_change(lambda t: {k: v.to(torch.float8_e4m3fn) for k, v in t.items()}), "dtype torch.float8.*; save it as float32"
    ),
}
"""By the sentence that a test is named after."""


def spoilt(artifact: Path, bad: BadAdapter) -> str:
    """Spoil the adapter in a directory; returns the digest of what is then there, which its owner would name."""
    bad.spoil(artifact)
    return directory_digest(artifact)
