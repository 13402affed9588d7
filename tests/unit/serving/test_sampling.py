"""What the engine samples with, and whether logged log-probabilities are the policy's own."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve_serving.sampling import NEUTRAL, effective, states_sampling

CHAT = {"model": "support", "messages": [], "max_tokens": 8, "stream": True, "n": 2, "seed": 1, "stop": ["\n"]}

SHAPED: dict[str, dict[str, Any]] = {
    "a temperature": {"temperature": 0.7},
    "a temperature of one": {"temperature": 1},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 5},
    "min_p": {"min_p": 0.1},
    "a penalty": {"repetition_penalty": 1.1},
    "a bias": {"logit_bias": {"5": 1.0}},
    "a grammar": {"structured_outputs": {"regex": "a+"}},
    "a JSON reply": {"response_format": {"type": "json_object"}},
    "a shortest length, which masks the end token": {"min_tokens": 4},
    "tools": {"tools": [{"type": "function"}]},
    "a field that no version of ours has heard of": {"speculative_magic": 1},
}


@pytest.mark.parametrize("extra", SHAPED.values(), ids=SHAPED.keys())
def test_a_request_that_shapes_its_sampling_states_sampling(extra: dict[str, Any]) -> None:
    assert states_sampling(CHAT | extra)


@pytest.mark.parametrize(
    "extra",
    [{}, {"temperature": None, "tools": None}, {"response_format": {"type": "text"}}, {"tool_choice": "none"}, {"min_tokens": 0}],
    ids=["nothing", "nulls", "plain text", "no tools", "no shortest length"],
)
def test_a_request_that_shapes_nothing_states_no_sampling_and_is_exact_once_neutral(extra: dict[str, Any]) -> None:
    assert not states_sampling(CHAT | extra)
    assert effective({**CHAT, **extra, **NEUTRAL}, {}).exact


@pytest.mark.parametrize("extra", [pytest.param(value, id=name) for name, value in SHAPED.items() if name != "a temperature of one"])
def test_shaped_sampling_is_not_exact(extra: dict[str, Any]) -> None:
    assert not effective(CHAT | extra, {}).exact


def test_the_engines_own_defaults_count_where_the_request_is_silent() -> None:
    found = effective(CHAT, {"temperature": 0.6, "top_k": 20, "top_p": 0.95})
    assert (found.temperature, found.top_k, found.top_p, found.min_p, found.exact) == (0.6, 20, 0.95, 0.0, False)


def test_the_request_wins_over_the_engines_defaults() -> None:
    found = effective({**CHAT, **NEUTRAL}, {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.2})
    assert (found.temperature, found.top_k, found.exact) == (1.0, 0, True)


def test_both_ways_to_switch_top_k_off_are_exact() -> None:
    assert effective(CHAT | {"temperature": 1, "top_k": -1}, {}).exact
    assert effective(CHAT | {"temperature": 1, "top_k": -1}, {}).top_k == 0
