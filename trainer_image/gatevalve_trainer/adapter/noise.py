"""Known-bad adapters: LoRA weights of noise, so large that replies break; made where they are measured and nowhere else."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.adapter.lora import B_SUFFIX, lora_parameters, with_fresh_lora
from gatevalve_trainer.adapter.shape import LoraShape
from gatevalve_trainer.adapter.write import adapter_bytes

LOUDNESS = 4.0
"""How much louder the noise is than what a layer of usual weights answers: replies break, and half precision still holds it."""


def noise_adapter(base: Path, base_name: str, shape: LoraShape, seed: int) -> dict[str, bytes]:
    """The two files of an adapter of noise on every layer that the shape names; the same seed gives the same bytes.

    Only the base's configuration is read, never its weights. Raises ContractError when it is none of a causal language model.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(size, generator=generator) * _scale(name, size, shape) for name, size in sorted(_sizes(base, shape).items())
    }
    return adapter_bytes(base_name, shape, tensors)


def _scale(name: str, size: tuple[int, ...], shape: LoraShape) -> float:
    """A keeps the size of its input; B, under alpha/rank, adds the noise of all ranks up to LOUDNESS times that size."""
    if name.endswith(B_SUFFIX):
        return LOUDNESS * math.sqrt(shape.rank) / shape.alpha
    return 1 / math.sqrt(size[-1])


def _sizes(base: Path, shape: LoraShape) -> dict[str, tuple[int, ...]]:
    """The sizes of the adapter's tensors by their name on disk, read off the base without its weights."""
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError) as error:
        raise ContractError("base.uri", f"{base} has no usable configuration: {error}", "give a causal language model") from error
    parameters = lora_parameters(with_fresh_lora(model.requires_grad_(False), shape, seed=0))
    return {name: tuple(parameter.shape) for name, parameter in parameters.items()}
