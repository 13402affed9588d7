"""Recipe parameters: one table for API server, operator and trainer."""

from __future__ import annotations

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.recipes import RECIPES, SPECS, check_parameters, effective_parameters, of_recipe


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_default_is_in_its_range(recipe: str) -> None:
    check_parameters(recipe, {name: spec.default for name, spec in of_recipe(recipe).items()})


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_the_ends_of_a_range_are_in_it(spec) -> None:
    low, high = spec.bounds()
    assert (spec.value(low), spec.value(high)) == (spec.low, spec.high)


def test_without_a_recipe_every_recipes_parameters_are_known_and_no_others() -> None:
    check_parameters(None, {"clipLow": "0.1"})
    with pytest.raises(ContractError, match=r"parameters\.clip: is no parameter of any recipe; use clipHigh, clipLow"):
        check_parameters(None, {"clip": "0.1"})


def test_the_channels_parameters_count_as_far_as_the_recipe_has_them_and_the_candidates_always() -> None:
    given = effective_parameters("SFT", {"epochs": "3", "clipLow": "0.1", "minibatch": "8"}, {"minibatch": "9", "klWeight": "1"})
    assert given == {"epochs": "3", "minibatch": "9", "klWeight": "1"}
