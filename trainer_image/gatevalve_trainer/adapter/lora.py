"""LoRA weights on a base: made fresh or from tensors, and taken off again under the names that vLLM reads."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.adapter.shape import LoraShape

A_SUFFIX, B_SUFFIX = ".lora_A.weight", ".lora_B.weight"


def with_fresh_lora(base: PreTrainedModel, shape: LoraShape, seed: int) -> PeftModel:
    """The base with new LoRA weights: A drawn from the seed, B zero, so that it answers as the base does.

    Raises ContractError when a target module is no linear layer of the base.
    """
    _check_targets(base, shape)
    torch.manual_seed(seed)
    config = LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=list(shape.target_modules),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, config).eval()


def with_lora(base: PreTrainedModel, shape: LoraShape, tensors: Mapping[str, Tensor]) -> PeftModel:
    """The base with given LoRA weights; raises ContractError unless names and shapes are exactly those of the shape on this base."""
    model = with_fresh_lora(base, shape, seed=0)
    parameters = lora_parameters(model)
    check_names_and_shapes(tensors, {name: tuple(parameter.shape) for name, parameter in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    return model


def lora_parameters(model: PeftModel) -> dict[str, nn.Parameter]:
    """The trainable parameters by their name on disk: base_model.model.<module>.lora_{A,B}.weight."""
    return {name.replace(".default.", "."): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def lora_tensors(model: PeftModel) -> dict[str, Tensor]:
    """Copies of the LoRA weights on CPU in float32, by their name on disk."""
    return {name: parameter.detach().to("cpu", torch.float32, copy=True).contiguous() for name, parameter in lora_parameters(model).items()}


def check_names_and_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ContractError that names the first missing, unexpected or misshapen tensor: PEFT and vLLM load what fits and say nothing."""
    for name in sorted(expected.keys() - tensors.keys()):
        raise ContractError(f"adapter.{name}", "is missing", "an adapter has A and B weights for every layer that its target modules name")
    for name in sorted(tensors.keys() - expected.keys()):
        raise ContractError(
            f"adapter.{name}", "is no LoRA weight of this base", "train the adapter on the channel's base and class of model"
        )
    for name, tensor in sorted(tensors.items()):
        if tuple(tensor.shape) != expected[name]:
            raise ContractError(
                f"adapter.{name}", f"has shape {tuple(tensor.shape)}, the base needs {expected[name]}", "train on the channel's base"
            )


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or infinity."""
    return next((name for name, tensor in sorted(tensors.items()) if not bool(torch.isfinite(tensor).all())), None)


def has_effect(tensors: Mapping[str, Tensor]) -> bool:
    """Whether some B is not zero: with all B zero the adapter answers as the base does."""
    return any(bool(tensor.any()) for name, tensor in tensors.items() if name.endswith(B_SUFFIX))


def _check_targets(base: PreTrainedModel, shape: LoraShape) -> None:
    for target in shape.target_modules:
        named = [module for name, module in base.named_modules() if name == target or name.endswith(f".{target}")]
        if not named or not all(isinstance(module, nn.Linear) for module in named) or base.get_output_embeddings() in named:
            raise ContractError(
                "adapter.targetModules", f"{target} names no inner linear layer of the base", "give suffixes such as q_proj or down_proj"
            )
