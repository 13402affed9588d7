"""vLLM's own CPU kernel, with and without our plug-in."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

from gatevalve_serving.cpu_lora import leaves_base_rows_alone, leaves_prompts_alone, mend

pytestmark = pytest.mark.component

BASE_ROW, FIRST_SLOT, LAST_SLOT = -1, 0, 1
WEIGHTS = torch.stack([torch.full((4, 3), 2.0), torch.full((4, 3), 5.0)])


def rows_of(shrink: object) -> list[float]:
    output = torch.full((3, 4), 9.0)
    shrink(torch.ones(3, 3), WEIGHTS, output, torch.tensor([BASE_ROW, FIRST_SLOT, LAST_SLOT]))  # type: ignore[operator]
    return [float(row[0]) for row in output]


def test_vllm_as_released_gives_the_base_the_last_slots_adapter() -> None:
    """When this fails, vLLM is mended and the plug-in can go."""
    released = getattr(lora_ops.bgmv_shrink, "__wrapped__", lora_ops.bgmv_shrink)
    assert rows_of(released) == [15.0, 6.0, 15.0]


def test_the_plug_in_gives_the_base_nothing_and_adapters_their_own() -> None:
    assert rows_of(leaves_base_rows_alone(lora_ops.bgmv_shrink)) == [0.0, 6.0, 15.0]


@dataclass
class Wrapper:
    """What adding to logits knows of a batch: the adapter of each request."""

    sampler_indices: torch.Tensor


OUTPUT_A, OUTPUT_B = torch.ones(2, 1, 4, 3), torch.ones(2, 1, 5, 4)
ADD = getattr(punica_cpu.PunicaWrapperCPU.add_lora_logits, "__wrapped__", punica_cpu.PunicaWrapperCPU.add_lora_logits)


def logits_of(add: Any, rows: int, requests: int) -> list[float]:
    logits = torch.zeros(rows, 5)
    add(Wrapper(torch.full((requests,), FIRST_SLOT)), logits, torch.ones(rows, 3), OUTPUT_A, OUTPUT_B, 1.0)
    return logits[:, 0].tolist()


def test_vllm_as_released_raises_over_the_logits_of_a_prompt() -> None:
    """When this fails, vLLM is mended and this part of the plug-in can go."""
    with pytest.raises(RuntimeError):
        logits_of(ADD, rows=6, requests=2)


def test_the_plug_in_leaves_the_logits_of_a_prompt_and_adds_to_those_of_requests() -> None:
    mended = leaves_prompts_alone(ADD)
    assert logits_of(mended, rows=6, requests=2) == [0.0] * 6
    assert logits_of(mended, rows=2, requests=2) == logits_of(ADD, rows=2, requests=2) == [12.0] * 2


def test_every_place_is_mended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    released = getattr(lora_ops.bgmv_shrink, "__wrapped__", lora_ops.bgmv_shrink)
    for module in (lora_ops, punica_cpu):
        monkeypatch.setattr(module, "bgmv_shrink", released)
    monkeypatch.setattr(punica_cpu.PunicaWrapperCPU, "add_lora_logits", ADD)
    mend()
    first, adding = lora_ops.bgmv_shrink, punica_cpu.PunicaWrapperCPU.add_lora_logits
    mend()
    assert punica_cpu.bgmv_shrink is lora_ops.bgmv_shrink is first
    assert punica_cpu.PunicaWrapperCPU.add_lora_logits is adding
    assert (first is released, adding is ADD) == (False, False)


def test_vllm_finds_the_plug_in() -> None:
    assert "gatevalve_serving.cpu_lora:register" in [point.value for point in entry_points(group="vllm.general_plugins")]
