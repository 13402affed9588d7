import math

import pytest

from gatevalve.contracts.files import Likelihood
from gatevalve_trainer.evaluate.likelihoods import k3, likelihood

HALF, QUARTER = math.log(0.5), math.log(0.25)


def test_sums_are_micronats_over_a_replys_tokens() -> None:
    found = likelihood([HALF, HALF], [QUARTER, HALF], [HALF, QUARTER])
    assert found == Likelihood(
        candidate=-1_386_294,
        incumbent=-2_079_442,
        anchor=-2_079_442,
        k3_incumbent=round((0.5 - 1 + math.log(2)) * 1_000_000),
        k3_anchor=round((0.5 - 1 + math.log(2)) * 1_000_000),
    )


def test_equal_weights_are_zero_apart_and_others_more() -> None:
    assert k3([HALF, QUARTER], [HALF, QUARTER]) == 0
    assert k3([HALF], [QUARTER]) > 0
    assert k3([QUARTER], [HALF]) > 0


def test_k3_looks_at_each_token_and_not_at_the_sums() -> None:
    """One token likelier and one less likely by as much: the sums are equal, the weights are not."""
    assert k3([HALF, QUARTER], [QUARTER, HALF]) > 0.3


def test_a_small_difference_keeps_its_digits() -> None:
    assert k3([HALF], [HALF + 1e-9]) == pytest.approx(5e-19, rel=1e-3)


def test_a_reply_without_tokens_has_sums_of_zero() -> None:
    assert likelihood([], [], []) == Likelihood(candidate=0, incumbent=0, anchor=0, k3_incumbent=0, k3_anchor=0)


BEYOND = {"a ratio that no number holds": -9999.0, "a sum that JSON does not keep": -60.0}


@pytest.mark.parametrize("candidate", BEYOND.values(), ids=BEYOND)
def test_what_cannot_be_written_down_is_missing(candidate: float) -> None:
    assert likelihood([candidate], [-0.1], [-0.1]) is None
