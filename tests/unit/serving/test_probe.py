"""The verdict of a probe: the adapter must differ from the base and be nearer to the record than the base is."""

from __future__ import annotations

import math

import pytest

from gatevalve.contracts.files import Probe
from gatevalve_serving.probe import Distances, TopLogprobs, distances, judge

PROBES = (Probe(prompt_token_ids=(1, 2), token_ids=(5, 7), adapter_logprobs=("-0.5", "-2"), base_logprobs=("-3", "-1")),)
RECORD, BASE = {5: -0.5, 7: -2.0, 9: -4.0}, {5: -3.0, 7: -1.0, 9: -4.0}

CASES: dict[str, tuple[TopLogprobs, TopLogprobs, str | None]] = {
    "exactly as recorded": (RECORD, BASE, None),
    "as recorded, with rounding": ({5: -0.52, 7: -2.03, 9: -4.0}, BASE, None),
    "the adapter answers as the base": (BASE, BASE, "no effect"),
    "the adapter answers as the base, with rounding": ({5: -3.0001, 7: -1.0001, 9: -4.0}, BASE, "no effect"),
    "the adapter differs, the wrong way": ({5: -6.0, 7: -0.1, 9: -4.0}, BASE, "no nearer"),
    "another adapter answers": ({5: -9.0, 7: -9.0, 9: -0.1}, BASE, "no nearer"),
    "not a number": ({5: math.nan, 7: -2.0, 9: -4.0}, BASE, "no effect"),
    "a recorded token is outside the base's top": (RECORD, {9: -0.1, 8: -3.5, 7: -4.0}, None),
    "a recorded token is outside the adapter's top": ({5: -0.5, 9: -1.9}, BASE, None),
}


@pytest.mark.parametrize(("adapter", "base", "words"), CASES.values(), ids=CASES.keys())
def test_the_verdict(adapter: TopLogprobs, base: TopLogprobs, words: str | None) -> None:
    problem = judge(distances(PROBES, [adapter], [base]))
    assert (problem is None) if words is None else (problem is not None and words in problem.message)


def test_equally_near_is_not_nearer() -> None:
    assert judge(Distances(adapter_to_base=1.0, adapter_to_record=0.5, base_to_record=0.5)) is not None


def test_distances_add_up_over_all_tokens() -> None:
    assert distances(PROBES, [RECORD], [BASE]) == Distances(adapter_to_base=3.5, adapter_to_record=0.0, base_to_record=3.5)
