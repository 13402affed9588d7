"""The replay check: the adapter that produced the rows must give their tokens the logged log-probabilities.

It catches a wrong template or tokenizer, padded or shifted log-probabilities, another adapter or base, and another log-probability mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from gatevalve_trainer.adapter.logprobs import token_logprobs
from gatevalve_trainer.errors import ReplayMismatch
from gatevalve_trainer.train.batch import Batch
from gatevalve_trainer.train.rows import TrainRow, micro_batches

MAX_MEAN_DIFFERENCE = 0.05
"""Largest mean |difference| in nats per token; engines in bfloat16 stay near 0.01, broken capture is above 0.2."""

OUTLIER_NATS, MAX_OUTLIER_SHARE = 0.5, 0.01
"""Largest share of tokens that differ by more than OUTLIER_NATS: finds a few false values among many sure tokens."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What the replay showed."""

    tokens: int
    mean_difference: float
    largest_difference: float
    outlier_share: float

    def figures(self) -> dict[str, float]:
        """The figures for report and log."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


@torch.no_grad()
def replay(model: nn.Module, rows: Sequence[TrainRow], token_budget: int, device: torch.device) -> Replay:
    """Compare logged and recomputed log-probabilities of the rows; raises ReplayMismatch with the figures when they differ."""
    parts = [_differences(model, Batch.of(rows_of_batch, device)) for rows_of_batch in micro_batches(rows, token_budget)]
    differences_N = torch.cat(parts).double()
    result = Replay(
        tokens=len(differences_N),
        mean_difference=float(differences_N.mean()),
        largest_difference=float(differences_N.max()),
        outlier_share=float((differences_N > OUTLIER_NATS).double().mean()),
    )
    if not (result.mean_difference <= MAX_MEAN_DIFFERENCE and result.outlier_share <= MAX_OUTLIER_SHARE):
        raise ReplayMismatch(
            f"logged and recomputed log-probabilities differ by {result.mean_difference:.4f} nats per token on {result.tokens} tokens "
            f"(limit {MAX_MEAN_DIFFERENCE}; {result.outlier_share:.2%} differ by more than {OUTLIER_NATS}, limit {MAX_OUTLIER_SHARE:.0%}); "
            "check template, tokenizer, log-probability mode and adapter of the serving pods"
        )
    return result


def _differences(model: nn.Module, batch: Batch) -> Tensor:
    logprobs_BT = token_logprobs(model, batch.tokens_BS)
    return (logprobs_BT - batch.behavior_BT)[batch.mask_BT].abs().cpu()
