"""The bench of the gate, run as the docs show it: its figures keep to their bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.gate import BOUNDS, Figures, beyond, value

REPO = Path(__file__).parents[2]
COMMAND = ("tests/bench/gate.py", "--quick")
ONLY_FULL = {"eval_cost_ratio"}
"""Measured on a real engine, which --quick does not start."""


@cache
def quick() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *COMMAND], cwd=REPO, capture_output=True, text=True, timeout=280)


def test_the_quick_bench_keeps_to_every_bound() -> None:
    assert quick().returncode == 0, quick().stderr


def test_the_last_line_of_the_quick_bench_holds_every_figure_that_has_a_bound() -> None:
    figures: Figures = json.loads(quick().stdout.splitlines()[-1])
    assert {name for name in BOUNDS if value(figures, name) is None} == ONLY_FULL


WITHIN: dict[str, Any] = {
    "round_false_accept": 0.03,
    "round_false_accept_of_other_models": 0.03,
    "naive_false_accept": 1.0,
    "power_at_mde": 0.9,
    "ratchet_loss_bp": {"with_anchor": 100, "without_anchor": 5000},
    "adaptive_gain_bp": 0,
    "adaptive_gain_seeing_scores_bp": 2000,
    "verdict_ms": 400,
    "eval_cost_ratio": 0.1,
}
BEYOND: dict[str, dict[str, Any]] = {
    "rounds that release too often": {"round_false_accept": 0.09},
    "a gate that sees too little": {"power_at_mde": 0.5},
    "a line that loses too much": {"ratchet_loss_bp": {"with_anchor": 301, "without_anchor": 5000}},
    "a contrast that shows nothing": {"ratchet_loss_bp": {"with_anchor": 100, "without_anchor": 100}},
    "a trainer that gains by climbing": {"adaptive_gain_bp": 400},
    "a slow verdict": {"verdict_ms": 1501},
    "an evaluation that costs too much": {"eval_cost_ratio": 0.51},
}


def test_figures_within_their_bounds_are_not_complained_about() -> None:
    assert list(beyond(WITHIN)) == []


@pytest.mark.parametrize("changes", BEYOND.values(), ids=BEYOND)
def test_a_figure_beyond_its_bound_is_named(changes: dict[str, Any]) -> None:
    named = list(beyond(WITHIN | changes))
    assert len(named) == 1
    assert next(iter(changes)) in named[0]
