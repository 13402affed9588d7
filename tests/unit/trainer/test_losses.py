"""Losses and log-probabilities against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from gatevalve_trainer.adapter.logprobs import padded, selected_logprobs
from gatevalve_trainer.train.batch import Batch
from gatevalve_trainer.train.losses import cross_entropy, is_clipped, k3, masked_sum, ppo_clip, ratios
from gatevalve_trainer.train.rows import TrainRow

LOG_HALF = math.log(0.5)


def column(*values: float) -> torch.Tensor:
    """One row of T positions."""
    return torch.tensor([list(values)])


def test_cross_entropy_is_minus_log_p() -> None:
    assert torch.equal(cross_entropy(column(-0.5, -2.0)), column(0.5, 2.0))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        pytest.param(1.0, 2.0, -2.0, id="at ratio 1 it is minus the advantage"),
        pytest.param(1.1, 2.0, -2.2, id="inside the bounds it is minus ratio times advantage"),
        pytest.param(1.5, 2.0, -2.56, id="a good token above the upper bound stops at 1.28"),
        pytest.param(0.5, 2.0, -1.0, id="a good token below the lower bound keeps pulling"),
        pytest.param(0.5, -2.0, 1.6, id="a bad token below the lower bound stops at 0.8"),
        pytest.param(1.5, -2.0, 3.0, id="a bad token above the upper bound keeps pulling"),
    ],
)
def test_ppo_clip(ratio: float, advantage: float, loss: float) -> None:
    behavior = column(LOG_HALF)
    found = ppo_clip(behavior + math.log(ratio), behavior, torch.tensor([advantage]), 0.2, 0.28)
    assert found.item() == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(("ratio", "advantage", "gradient"), [(1.5, 1.0, 0.0), (0.5, -1.0, 0.0), (1.0, 1.0, -1.0), (1.5, -1.0, 1.5)])
def test_a_clipped_token_has_no_gradient(ratio: float, advantage: float, gradient: float) -> None:
    logprobs = column(math.log(ratio)).requires_grad_()
    ppo_clip(logprobs, column(0.0), torch.tensor([advantage]), 0.2, 0.28).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(gradient)
    assert is_clipped(column(ratio), torch.tensor([advantage]), 0.2, 0.28).item() == (gradient == 0)


def test_k3_by_hand() -> None:
    assert k3(column(LOG_HALF, LOG_HALF), column(LOG_HALF, 0.0))[0].tolist() == pytest.approx([0.0, 2 - math.log(2) - 1])


def test_ratios_stay_finite_however_far_log_probabilities_are_apart() -> None:
    assert torch.isfinite(ratios(column(0.0, -1000.0), column(-1000.0, 0.0))).all()


def test_what_is_masked_cannot_reach_the_sum_not_even_nan() -> None:
    values, mask = torch.tensor([[1.0, math.nan], [3.0, 4.0]]), torch.tensor([[True, False], [True, True]])
    assert masked_sum(values, mask, torch.tensor([1.0, 0.5])).item() == 1.0 + 3.5


def test_selected_logprobs_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]])
    assert selected_logprobs(logits, torch.tensor([[1, 0]]))[0].tolist() == pytest.approx([math.log(0.75), LOG_HALF])


def test_chunks_give_the_same_values_and_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, targets = torch.randn(3, 5, 7, generator=generator), torch.randint(0, 7, (3, 5), generator=generator)
    whole, parts = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    one, other = selected_logprobs(whole, targets), selected_logprobs(parts, targets, chunk_elements=16)
    one.square().sum().backward()
    other.square().sum().backward()
    assert torch.equal(one, other)
    assert whole.grad is not None
    assert parts.grad is not None
    assert torch.equal(whole.grad, parts.grad)


def test_a_batch_aligns_mask_and_log_probabilities_with_the_token_they_predict() -> None:
    short = TrainRow([1, 2, 3], [False, False, True], [0.0, 0.0, -0.5], advantage=0.5)
    long = TrainRow([4, 5, 6, 7], [False, True, True, True], [0.0, -1.0, -2.0, -3.0], advantage=-0.5, weight=2.0)
    batch = Batch.of([short, long], torch.device("cpu"))
    assert batch.tokens_BS.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert batch.mask_BT.tolist() == [[False, True, False], [True, True, True]]
    assert batch.behavior_BT.tolist() == [[0.0, -0.5, 0.0], [-1.0, -2.0, -3.0]]
    assert (batch.advantage_B.tolist(), batch.weight_B.tolist()) == ([0.5, -0.5], [1.0, 2.0])


def test_padding_is_on_the_right() -> None:
    assert padded([[1, 2], [3]], torch.device("cpu")).tolist() == [[1, 2], [3, 0]]
