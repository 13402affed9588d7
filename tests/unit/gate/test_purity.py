"""The gate stays pure: the standard library without its clocks, randomness and files, and the contracts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gatevalve.gate

ALLOWED = {"__future__", "collections", "dataclasses", "enum", "fractions", "functools", "itertools", "math", "typing"}
SEEDED = {"calibrate": {"random"}}
"""Calibration draws with a seed from the evidence's digest, and no verdict rests on it."""
FILES = sorted(Path(gatevalve.gate.__file__).parent.glob("*.py"))


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    direct = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return direct | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_module_of_the_gate_imports_nothing_that_could_make_two_verdicts_of_one_evidence(path: Path) -> None:
    foreign = {
        name
        for name in imported(path)
        if name.split(".")[0] not in ALLOWED | SEEDED.get(path.stem, set())
        and not name.startswith(("gatevalve.contracts.", "gatevalve.gate."))
    }
    assert not foreign
