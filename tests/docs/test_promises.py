"""The page of promises shows the figures that the bench wrote, with the bounds that it keeps to, and commands that tests run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.gate import BOUNDS, Figures, beyond, value
from bench.test_gate import COMMAND

pytestmark = pytest.mark.docs

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "promises.md").read_text()
FIGURES: Figures = json.loads((DOCS / "figures/gate.json").read_text())
ROW = re.compile(r"^\| `([a-z_.]+)` \| ([0-9.]+) \| (<=|>=) ([0-9.]+) \|", re.MULTILINE)
INLINE = re.compile(r"`([a-z_]+_bp)` = ([0-9.]+) bp")


def test_the_page_shows_every_figure_with_its_bound() -> None:
    assert {name: (sign, float(bound)) for name, _, sign, bound in ROW.findall(PAGE)} == BOUNDS


@pytest.mark.parametrize(("name", "shown"), [*((row[0], row[1]) for row in ROW.findall(PAGE)), *INLINE.findall(PAGE)])
def test_a_figure_on_the_page_is_the_one_that_the_bench_wrote(name: str, shown: str) -> None:
    assert float(shown) == value(FIGURES, name)


def test_the_figures_are_of_a_full_run_and_keep_to_their_bounds() -> None:
    assert FIGURES["mode"] == "full"
    assert list(beyond(FIGURES)) == []


def test_the_command_on_the_page_is_the_one_that_a_test_runs() -> None:
    shown = re.findall(r"^```bash\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == [" ".join((".venv/bin/python", *COMMAND))]
