"""Log-probabilities of given tokens, without ever holding the whole log-softmax when it is large.

Axes: B rows, T positions (of the predicted token), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 1 << 26
"""Largest log-softmax held at once, in elements: 256 MiB in float32. Beyond it chunks are made again in the backward pass."""

PAD = 0
"""Fills rows on the right, where causal attention keeps it from every real position; masks come from lengths, never from ids."""


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Token ids of rows as one right-padded tensor, B x (T + 1)."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], device=device)


def next_token_logits(model: nn.Module, tokens_BS: Tensor) -> Tensor:
    """Logits of every position's next token, B x T x V with T = S - 1; no cache, so that its argument's name cannot matter."""
    logits: Tensor = model(input_ids=tokens_BS[:, :-1], use_cache=False).logits
    return logits


def token_logprobs(model: nn.Module, tokens_BS: Tensor) -> Tensor:
    """Log-probability of each token given those before it at temperature 1, B x T with T = S - 1, float32."""
    return selected_logprobs(next_token_logits(model, tokens_BS), tokens_BS[:, 1:])


def selected_logprobs(logits_BTV: Tensor, targets_BT: Tensor, chunk_elements: int = CHUNK_ELEMENTS) -> Tensor:
    """log_softmax(logits)[target], B x T in float32."""
    if logits_BTV.numel() <= chunk_elements:
        return _selected(logits_BTV, targets_BT)
    rows_NV, targets_N = logits_BTV.flatten(0, 1), targets_BT.flatten()
    size = max(1, chunk_elements // logits_BTV.shape[-1])
    parts = [
        checkpoint(_selected, rows_NV[start : start + size], targets_N[start : start + size], use_reentrant=False)
        for start in range(0, len(rows_NV), size)
    ]
    return torch.cat(parts).view_as(targets_BT)


def _selected(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
