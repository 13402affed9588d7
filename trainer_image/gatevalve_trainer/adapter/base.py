"""The frozen base, loaded the same way every time."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from gatevalve.contracts.errors import ContractError


def prepare_torch() -> torch.device:
    """Make torch repeatable and choose the device; on CPU one thread and deterministic kernels give the same bytes each time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may sum in another order each time
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    transformers_logging.disable_progress_bar()
    if torch.cuda.is_available():
        return torch.device("cuda")
    torch.set_num_threads(1)
    return torch.device("cpu")


def load_base(directory: Path, device: torch.device) -> PreTrainedModel:
    """The base in evaluation mode without gradients: bfloat16 on a GPU, float32 on CPU.

    Raises ContractError when the directory holds no causal language model.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True, use_safetensors=True)
    except (OSError, ValueError) as error:
        raise ContractError(
            "base.uri", f"{directory} does not load: {error}", "give a causal language model with safetensors weights"
        ) from error
    model.requires_grad_(False)
    return model.to(device).eval()
