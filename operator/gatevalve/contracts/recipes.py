"""Recipe parameters: names, defaults and ranges; what API server, operator and trainer all refuse, from one table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gatevalve.contracts.errors import ContractError

RECIPES = ("SFT", "LoggedRL")
Recipe = Literal["SFT", "LoggedRL"]

WHOLE = r"^[0-9]{1,9}$"
REAL = r"^[0-9]+(\.[0-9]+)?([eE]-?[0-9]{1,3})?$"


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

    @property
    def pattern(self) -> str:
        """The form of its text."""
        return WHOLE if self.whole else REAL

    def bounds(self) -> tuple[str, str]:
        """The ends of the range as people write them."""
        low, high = (str(int(end)) if end == int(end) else f"{end:g}" for end in (self.low, self.high))
        return low, high

    def wanted(self) -> str:
        """What a value must be, in words."""
        low, high = self.bounds()
        return f"{'whole number' if self.whole else 'number'} from {low} to {high}"

    def value(self, text: str) -> float:
        """The number that a text names; raises ContractError unless it is one in range."""
        value = float(text) if re.fullmatch(self.pattern, text) else math.nan
        if not self.low <= value <= self.high:
            raise ContractError(f"parameters.{self.name}", f"{text!r} is no {self.wanted()}", f"the default is {self.default}")
        return value


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


def of_recipe(recipe: str | None) -> dict[str, ParameterSpec]:
    """The parameters of a recipe by name; of any recipe when none is named."""
    return {spec.name: spec for spec in SPECS if recipe is None or recipe in spec.recipes}


def check_parameters(recipe: str | None, given: Mapping[str, str]) -> None:
    """Raises ContractError for a name that the recipe (any recipe, when none is named) does not have, or a value out of its range."""
    specs = of_recipe(recipe)
    for name in sorted(given.keys() - specs.keys()):
        raise ContractError(f"parameters.{name}", f"is no parameter of {recipe or 'any recipe'}", f"use {listed(specs)}")
    for name, text in sorted(given.items()):
        specs[name].value(text)


def effective_parameters(recipe: str, of_channel: Mapping[str, str], of_candidate: Mapping[str, str]) -> dict[str, str]:
    """The channel's defaults as far as the recipe has them, overridden by the candidate's own."""
    mine = of_recipe(recipe)
    return {name: text for name, text in of_channel.items() if name in mine} | dict(of_candidate)


def listed(names: Iterable[str]) -> str:
    """Names in alphabetical order, as a sentence lists them."""
    return ", ".join(sorted(names))


def parameter_rules() -> tuple[tuple[str, str], ...]:
    """CEL rules of a map of parameters: known names, and values in range."""
    known = ", ".join(f"'{spec.name}'" for spec in SPECS)
    names = (f"self.all(name, name in [{known}])", f"unknown parameter; use {listed(of_recipe(None))}")
    return names, *(_value_rule(spec) for spec in SPECS)


def recipe_rules() -> tuple[tuple[str, str], ...]:
    """CEL rules of what holds recipe and parameters: parameters that only some recipes have."""
    return tuple(_recipe_rule(recipe) for recipe in RECIPES if len(of_recipe(recipe)) < len(SPECS))


def _value_rule(spec: ParameterSpec) -> tuple[str, str]:
    text, number = f"self['{spec.name}']", "int" if spec.whole else "double"
    low, high = (str(int(end)) if spec.whole else f"double('{end!r}')" for end in (spec.low, spec.high))
    holds = f"{text}.matches(r'{spec.pattern}') && {number}({text}) >= {low} && {number}({text}) <= {high}"
    return f"!('{spec.name}' in self) || ({holds})", f'{spec.name} must be a {spec.wanted()} in quotes, for example "{spec.default}"'


def _recipe_rule(recipe: str) -> tuple[str, str]:
    foreign = [spec.name for spec in SPECS if recipe not in spec.recipes]
    unset = " && ".join(f"!has(self.parameters.{name})" for name in foreign)
    message = f"{listed(foreign)} are no parameters of {recipe}; use {listed(of_recipe(recipe))}"
    return f"!has(self.recipe) || self.recipe != '{recipe}' || !has(self.parameters) || ({unset})", message
