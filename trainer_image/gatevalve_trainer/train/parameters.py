"""Recipe parameters as training reads them; their names, defaults and ranges are the contracts'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gatevalve.contracts.recipes import SPECS, Recipe, check_parameters


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
    check_parameters(recipe, given)
    values = {spec.name: spec.value(given.get(spec.name, spec.default)) for spec in SPECS}
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
