"""Which differences between logged and replayed log-probabilities are rounding, and which are broken capture."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gatevalve_trainer.train.replay import Replay

SURE = -0.02 * torch.rand(1000, generator=torch.Generator().manual_seed(0)).double()
UNSURE = -2.0 * torch.rand(1000, generator=torch.Generator().manual_seed(1)).double()
NOISE = torch.randn(1000, generator=torch.Generator().manual_seed(2)).double()


def with_first(values: Tensor, count: int, value: float) -> Tensor:
    return torch.cat([torch.full((count,), value).double(), values[count:]])


@pytest.mark.parametrize(
    ("logged", "replayed", "matches"),
    [
        pytest.param(UNSURE, UNSURE, True, id="equal"),
        pytest.param(UNSURE + 0.01 * NOISE, UNSURE, True, id="the rounding of a bfloat16 engine"),
        pytest.param(SURE + 0.004 * NOISE, SURE, True, id="rounding on a model that is sure of every token"),
        pytest.param(with_first(SURE, 500, 0.0), with_first(SURE, 500, -1e-7), True, id="tokens that really are certain"),
        pytest.param(with_first(UNSURE, 9, -3.0), with_first(UNSURE, 9, -2.0), True, id="a few tokens far off"),
        pytest.param(with_first(UNSURE, 15, -3.0), with_first(UNSURE, 15, -2.0), False, id="more tokens far off"),
        pytest.param(UNSURE + 0.1 * NOISE, UNSURE, False, id="noise beyond rounding"),
        pytest.param(0.7 * UNSURE, UNSURE, False, id="another temperature"),
        pytest.param(2.0 * SURE, SURE, False, id="another temperature on a model that is sure"),
        pytest.param(with_first(UNSURE, 5, 0.0), UNSURE, False, id="a little padding with zeros"),
        pytest.param(with_first(SURE, 500, 0.0), SURE, False, id="padding with zeros on a model that is sure"),
        pytest.param(with_first(UNSURE, 1, float("nan")), UNSURE, False, id="one NaN"),
        pytest.param(UNSURE, with_first(UNSURE, 1, float("nan")), False, id="a parent that answers NaN"),
        pytest.param(UNSURE, with_first(UNSURE, 1, float("-inf")), False, id="a token that the parent cannot say"),
    ],
)
def test_whether_one_policy_explains_both(logged: Tensor, replayed: Tensor, matches: bool) -> None:
    assert Replay.of(logged, replayed).matches() is matches
