"""A vLLM plug-in for CPU engines: requests to the base, batched with requests to an adapter, are answered by the base.

vLLM's CPU kernels take the index -1 of a base row for the last LoRA slot, so that once all slots were used the base answers with some
adapter's weights (vllm-project/vllm pull requests 48421 and 49656). Its GPU kernels skip such rows. A release log in which the base can
be the release needs the same on CPUs. vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

Shrink = Callable[..., None]


def register() -> None:
    """Mend the CPU kernels of this process; nothing on other platforms."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        mend()


def mend() -> None:
    """Replace the shrink kernel where it is defined and where it is used; may be called again."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    if not hasattr(lora_ops.bgmv_shrink, "__wrapped__"):
        lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = leaves_base_rows_alone(lora_ops.bgmv_shrink)


def leaves_base_rows_alone(shrink: Shrink) -> Shrink:
    """The kernel x @ A, (tokens, in) to (tokens, rank), with zeros for rows whose LoRA index is negative: what follows adds nothing."""

    @wraps(shrink)
    def mended(inputs: Any, weights: Any, output: Any, indices: Any, scaling: float = 1.0) -> None:
        shrink(inputs, weights, output, indices, scaling)
        output[indices < 0] = 0

    return mended
