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
"""Largest mean |difference| in nats per token; engines in bfloat16 stay near 0.01, broken capture is often above 0.2."""

MAX_RELATIVE_DIFFERENCE, LEAST_LIMIT = 0.2, 0.005
"""The same as a share of the mean |log-probability|, for models so sure that false values are near; rounding may reach LEAST_LIMIT."""

OUTLIER_NATS, MAX_OUTLIER_SHARE = 0.5, 0.01
"""Largest share of tokens that differ by more than OUTLIER_NATS."""

UNSURE_NATS, MAX_FALSE_ZERO_SHARE = 1e-3, 0.001
"""Largest share of tokens logged as exactly 0 though the model is less sure than this: padding, which no rounding explains."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What the replay showed, over the loss tokens of all rows."""

    tokens: int
    mean_surprise: float
    mean_difference: float
    largest_difference: float
    outlier_share: float
    false_zero_share: float

    @classmethod
    def of(cls, logged_N: Tensor, replayed_N: Tensor) -> Replay:
        """The figures of N tokens."""
        differences_N = (logged_N - replayed_N).abs()
        false_zeros_N = (logged_N == 0) & (replayed_N < -UNSURE_NATS)
        return cls(
            tokens=len(differences_N),
            mean_surprise=float(-replayed_N.mean()),
            mean_difference=float(differences_N.mean()),
            largest_difference=float(differences_N.max()),
            outlier_share=float((differences_N > OUTLIER_NATS).double().mean()),
            false_zero_share=float(false_zeros_N.double().mean()),
        )

    def mean_limit(self) -> float:
        """The largest mean difference that still counts as the same policy."""
        return min(MAX_MEAN_DIFFERENCE, max(LEAST_LIMIT, MAX_RELATIVE_DIFFERENCE * self.mean_surprise))

    def matches(self) -> bool:
        """Whether logged and replayed log-probabilities are those of one policy; not when a figure is NaN."""
        return (
            self.mean_difference <= self.mean_limit()
            and self.outlier_share <= MAX_OUTLIER_SHARE
            and self.false_zero_share <= MAX_FALSE_ZERO_SHARE
        )

    def figures(self) -> dict[str, float]:
        """The figures for report and log."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


@torch.no_grad()
def replay(model: nn.Module, rows: Sequence[TrainRow], token_budget: int, device: torch.device) -> Replay:
    """Compare logged and recomputed log-probabilities of the rows; raises ReplayMismatch with the figures when they differ."""
    batches = (Batch.of(rows_of_batch, device) for rows_of_batch in micro_batches(rows, token_budget))
    parts = [(batch.behavior_BT[batch.mask_BT], token_logprobs(model, batch.tokens_BS)[batch.mask_BT]) for batch in batches]
    logged_N, replayed_N = (torch.cat(values).double().cpu() for values in zip(*parts, strict=True))
    found = Replay.of(logged_N, replayed_N)
    if not found.matches():
        raise ReplayMismatch(
            f"logged and recomputed log-probabilities differ by {found.mean_difference:.4f} nats per token on {found.tokens} tokens "
            f"(limit {found.mean_limit():.4f}), {found.outlier_share:.2%} by more than {OUTLIER_NATS} (limit {MAX_OUTLIER_SHARE:.0%}), "
            f"{found.false_zero_share:.2%} are logged as certain and are not (limit {MAX_FALSE_ZERO_SHARE:.1%}); "
            "check template, tokenizer, log-probability mode and adapter of the serving pods"
        )
    return found
