"""Noise as an adapter: on the real base, and loaded as any other adapter, it leaves nothing of the replies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load
from transformers import AutoModelForCausalLM, AutoTokenizer

from gatevalve.contracts.names import ADAPTER_WEIGHTS
from gatevalve_trainer.adapter.lora import with_lora
from gatevalve_trainer.adapter.noise import noise_adapter
from gatevalve_trainer.adapter.shape import LoraShape
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.tasks import exact_match
from gatevalve_trainer.tasks.plugin import first_user_message
from support.sampler import sample

pytestmark = pytest.mark.component

DEMO = Path(__file__).parents[3] / "demo"
BASE = DEMO / "base" / "tiny-words"
ALL = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")

SHAPES = {
    "every layer": LoraShape(8, 16, ALL),
    "one kind of layer": LoraShape(8, 16, ("q_proj",)),
    "a low rank and a small alpha": LoraShape(1, 1, ("v_proj",)),
    "a high rank and a great alpha": LoraShape(64, 256, ALL),
}


def right(shape: LoraShape, seed: int) -> float:
    """The share of the regression suite that the base with noise has right; without it, the base has 98 in 100."""
    torch.set_num_threads(1)
    tensors = load(noise_adapter(BASE, "tiny-words", shape, seed)[ADAPTER_WEIGHTS])
    model = with_lora(AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32), shape, tensors)
    items = from_lines("regression", (DEMO / "suites" / "regression.jsonl").read_bytes())[:80]
    replies = sample(model, AutoTokenizer.from_pretrained(BASE), list(map(first_user_message, items)), 0, max_tokens=24, seed=0)
    return sum(exact_match.TASK.verify(item, each[0].text) for item, each in zip(items, replies, strict=True)) / len(items)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_noise_of_any_shape_breaks_the_replies(shape: LoraShape) -> None:
    assert right(shape, seed=1) <= 0.1


def test_the_same_seed_gives_the_same_bytes_and_half_precision_holds_them() -> None:
    one, same, other = (noise_adapter(BASE, "tiny-words", SHAPES["every layer"], seed) for seed in (5, 5, 6))
    assert one == same != other
    assert all(bool(torch.isfinite(tensor.half()).all()) for tensor in load(one[ADAPTER_WEIGHTS]).values())
