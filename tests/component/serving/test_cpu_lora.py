"""vLLM's own CPU kernel, with and without our plug-in."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

from gatevalve_serving.cpu_lora import leaves_base_rows_alone, mend

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


def test_both_places_are_mended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    released = getattr(lora_ops.bgmv_shrink, "__wrapped__", lora_ops.bgmv_shrink)
    for module in (lora_ops, punica_cpu):
        monkeypatch.setattr(module, "bgmv_shrink", released)
    mend()
    first = lora_ops.bgmv_shrink
    mend()
    assert punica_cpu.bgmv_shrink is lora_ops.bgmv_shrink is first
    assert first is not released


def test_vllm_finds_the_plug_in() -> None:
    assert "gatevalve_serving.cpu_lora:register" in [point.value for point in entry_points(group="vllm.general_plugins")]
