"""The LoRA shape of one adapter, and the configuration file that says so to PEFT and vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from gatevalve.contracts.canonical import canonical_json
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.kinds import AdapterShape


@dataclass(frozen=True, slots=True)
class LoraShape:
    """Rank, alpha and the sorted suffixes of the linear layers that carry LoRA weights."""

    rank: int
    alpha: int
    target_modules: tuple[str, ...]

    @classmethod
    def of_channel(cls, shape: AdapterShape) -> Self:
        """The shape of a fresh adapter of a channel."""
        return cls(shape.rank, shape.alpha, tuple(sorted(set(shape.target_modules))))

    @classmethod
    def of_manifest(cls, manifest: AdapterManifest) -> Self:
        """The shape of a published adapter."""
        return cls(manifest.rank, manifest.alpha, manifest.target_modules)


def canonical_config(base_name: str, shape: LoraShape) -> bytes:
    """adapter_config.json: what PEFT needs to load the adapter and vLLM to serve it, and nothing else, in canonical bytes."""
    return canonical_json(
        {
            "base_model_name_or_path": base_name,
            "bias": "none",
            "inference_mode": True,
            "lora_alpha": shape.alpha,
            "peft_type": "LORA",
            "r": shape.rank,
            "target_modules": list(shape.target_modules),
            "task_type": "CAUSAL_LM",
        }
    )


def check_fits_channel(field: str, shape: LoraShape, channel: AdapterShape) -> None:
    """Raises ContractError when an adapter is larger than its channel allows: a higher rank or other layers."""
    if shape.rank > channel.rank:
        raise ContractError(
            f"{field}.r", f"rank {shape.rank} is above the channel's {channel.rank}", "train with a lower rank or raise spec.adapter.rank"
        )
    if foreign := sorted(set(shape.target_modules) - set(channel.target_modules)):
        raise ContractError(
            f"{field}.target_modules",
            f"{', '.join(foreign)} are not layers of the channel's adapters",
            "add them to spec.adapter.targetModules",
        )
