"""Recipe parameters: their names, defaults and ranges, and how their strings are read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.kinds import RECIPES, Recipe


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter: its wire name, default, closed range and recipes."""

    name: str
    default: str
    low: float
    high: float
    sentence: str
    whole: bool = False
    recipes: tuple[str, ...] = RECIPES

    def bounds(self) -> tuple[str, str]:
        """The ends of the range as people write them."""
        low, high = (str(int(end)) if end == int(end) else f"{end:g}" for end in (self.low, self.high))
        return low, high


SPECS = (
    ParameterSpec(
        "learningRate",
        "3e-3",
        1e-8,
        1,
        "AdamW learning rate; the default suits models of a million parameters, large ones want 1e-5 to 2e-4",
    ),
    ParameterSpec("epochs", "2", 1, 100, "passes over the rows", whole=True),
    ParameterSpec("minibatch", "96", 1, 8192, "most rows in one optimiser step", whole=True),
    ParameterSpec("warmupSteps", "3", 0, 1000, "steps of linear learning-rate warm-up", whole=True),
    ParameterSpec("maxGradNorm", "1", 1e-6, 1e6, "gradients are scaled down to this norm"),
    ParameterSpec(
        "tokenBudget", "8192", 64, 1 << 20, "padded tokens in one forward pass; memory, not the result, depends on it", whole=True
    ),
    ParameterSpec("clipLow", "0.2", 0, 0.99, "the ratio stops pulling below 1 - clipLow", recipes=("LoggedRL",)),
    ParameterSpec("clipHigh", "0.28", 0, 10, "the ratio stops pulling above 1 + clipHigh", recipes=("LoggedRL",)),
    ParameterSpec("klWeight", "0", 0, 10, "weight of the KL penalty (k3) to the parent", recipes=("LoggedRL",)),
)
"""Every parameter; docs/training.md shows this table."""

_WHOLE = re.compile(r"[0-9]{1,9}")
_REAL = re.compile(r"[0-9]+(\.[0-9]+)?([eE]-?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one training run; those a recipe does not have keep their defaults and are not read."""

    learning_rate: float
    epochs: int
    minibatch: int
    warmup_steps: int
    max_grad_norm: float
    token_budget: int
    clip_low: float
    clip_high: float
    kl_weight: float


def read_parameters(recipe: Recipe, given: Mapping[str, str]) -> Parameters:
    """Parameters from their strings; raises ContractError for a name the recipe does not have, or a value that is no number in range."""
    specs = {spec.name: spec for spec in SPECS if recipe in spec.recipes}
    for name in sorted(given.keys() - specs.keys()):
        raise ContractError(f"parameters.{name}", f"is no parameter of {recipe}", f"use {', '.join(sorted(specs))}")
    values = {spec.name: _value(spec, given.get(spec.name, spec.default)) for spec in SPECS}
    return Parameters(
        learning_rate=values["learningRate"],
        epochs=int(values["epochs"]),
        minibatch=int(values["minibatch"]),
        warmup_steps=int(values["warmupSteps"]),
        max_grad_norm=values["maxGradNorm"],
        token_budget=int(values["tokenBudget"]),
        clip_low=values["clipLow"],
        clip_high=values["clipHigh"],
        kl_weight=values["klWeight"],
    )


def _value(spec: ParameterSpec, text: str) -> float:
    pattern, kind = (_WHOLE, "whole number") if spec.whole else (_REAL, "number")
    value = float(text) if pattern.fullmatch(text) else math.nan
    if not spec.low <= value <= spec.high:
        low, high = spec.bounds()
        raise ContractError(f"parameters.{spec.name}", f"{text!r} is no {kind} from {low} to {high}", f"the default is {spec.default}")
    return value
