"""A vLLM plug-in for CPU engines: base rows stay base rows, and prompts have log-probabilities beside adapters.

vLLM's CPU kernels take the index -1 of a base row for the last LoRA slot, so that once all slots were used the base answers with some
adapter's weights (vllm-project/vllm pull requests 48421 and 49656). Its GPU kernels skip such rows. A release log in which the base can
be the release needs the same on CPUs.

For the log-probabilities of a prompt vLLM takes the output layer's logits of all its tokens, but knows the adapter of one row a request
only: its CPU kernels then raise, which ends the engine. Adapters have no weights of the output layer, so there is nothing to add.

vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

Shrink = Callable[..., None]
AddLogits = Callable[..., None]


def register() -> None:
    """Mend the CPU kernels of this process; nothing on other platforms."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        mend()


def mend() -> None:
    """Replace the shrink kernel where it is defined and where it is used, and what adds to logits; may be called again."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    if not hasattr(lora_ops.bgmv_shrink, "__wrapped__"):
        lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = leaves_base_rows_alone(lora_ops.bgmv_shrink)
    wrapper: Any = punica_cpu.PunicaWrapperCPU
    if not hasattr(wrapper.add_lora_logits, "__wrapped__"):
        wrapper.add_lora_logits = leaves_prompts_alone(wrapper.add_lora_logits)


def leaves_base_rows_alone(shrink: Shrink) -> Shrink:
    """The kernel x @ A, (tokens, in) to (tokens, rank), with zeros for rows whose LoRA index is negative: what follows adds nothing."""

    @wraps(shrink)
    def mended(inputs: Any, weights: Any, output: Any, indices: Any, scaling: float = 1.0) -> None:
        shrink(inputs, weights, output, indices, scaling)
        output[indices < 0] = 0

    return mended


def leaves_prompts_alone(add: AddLogits) -> AddLogits:
    """The output layer's LoRA, (rows, vocabulary), for one row a request; logits of whole prompts are left as they are."""

    @wraps(add)
    def mended(wrapper: Any, logits: Any, hidden: Any, *weights: Any, **options: Any) -> None:
        if hidden.view(-1, hidden.shape[-1]).shape[0] == wrapper.sampler_indices.shape[0]:
            add(wrapper, logits, hidden, *weights, **options)

    return mended
