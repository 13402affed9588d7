"""Rows as tensors. Axes: B rows, S tokens, T = S - 1 predicted positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
from torch import Tensor

from gatevalve_trainer.adapter.logprobs import padded
from gatevalve_trainer.train.rows import TrainRow

Value = TypeVar("Value", bool, float)


@dataclass(frozen=True, slots=True)
class Batch:
    """A right-padded micro-batch; `mask_BT` is true where the predicted token is in the loss."""

    tokens_BS: Tensor
    mask_BT: Tensor
    behavior_BT: Tensor
    advantage_B: Tensor
    weight_B: Tensor

    @classmethod
    def of(cls, rows: Sequence[TrainRow], device: torch.device) -> Self:
        """The rows as tensors on a device."""
        width = max(len(row.token_ids) for row in rows)
        return cls(
            tokens_BS=padded([row.token_ids for row in rows], device),
            mask_BT=torch.tensor([_shifted(row.loss_mask, width, False) for row in rows], device=device),
            behavior_BT=torch.tensor([_shifted(row.behavior_logprobs, width, 0.0) for row in rows], device=device),
            advantage_B=torch.tensor([row.advantage for row in rows], device=device),
            weight_B=torch.tensor([row.weight for row in rows], device=device),
        )


def _shifted(values: Sequence[Value], width: int, fill: Value) -> list[Value]:
    return list(values[1:]) + [fill] * (width - len(values))
