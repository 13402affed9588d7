"""Losses: pure functions of log-probabilities. Axes: B rows, T positions; each returns the loss of every token, B x T, unmasked.

The caller masks, weighs, sums and divides by a constant that does not depend on how rows were batched.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to this before exp: beyond it float32 overflows and nothing is left to learn."""


def cross_entropy(logprobs_BT: Tensor) -> Tensor:
    """-log p: plain fine-tuning."""
    return -logprobs_BT


def ppo_clip(logprobs_BT: Tensor, behavior_BT: Tensor, advantage_B: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """-min(w A, clip(w, 1 - low, 1 + high) A) with w = p / behaviour.

    Schulman et al. 2017, PPO, eq. 7; unequal bounds: Yu et al. 2025, DAPO, eq. 10.
    """
    ratio_BT, advantage_B1 = ratios(logprobs_BT, behavior_BT), advantage_B.unsqueeze(-1)
    return -torch.minimum(ratio_BT * advantage_B1, ratio_BT.clamp(1 - clip_low, 1 + clip_high) * advantage_B1)


def k3(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """exp(x) - x - 1 with x = log reference - log p: an estimate of KL(p || reference) that is never negative (Schulman 2020)."""
    x_BT = (reference_BT - logprobs_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return x_BT.exp() - x_BT - 1


def ratios(logprobs_BT: Tensor, behavior_BT: Tensor) -> Tensor:
    """p / behaviour of every token, from clamped log-ratios."""
    return (logprobs_BT - behavior_BT).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def is_clipped(ratio_BT: Tensor, advantage_B: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Where PPO-clip gives no gradient, B x T bool."""
    advantage_B1 = advantage_B.unsqueeze(-1)
    return ((ratio_BT < 1 - clip_low) & (advantage_B1 < 0)) | ((ratio_BT > 1 + clip_high) & (advantage_B1 > 0))


def masked_sum(values_BT: Tensor, mask_BT: Tensor, weight_B: Tensor) -> Tensor:
    """Sum over the masked tokens, each row times its weight; what is not masked cannot reach the sum, not even NaN."""
    return (torch.where(mask_BT, values_BT, 0.0) * weight_B.unsqueeze(-1)).sum()
