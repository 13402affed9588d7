"""Structural schemas: each rewriting step, and a refusal with the field's path for what a CRD cannot say."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import ConfigDict, Field

from gatevalve.codegen.structural import structural_schema
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.model import Contract, api_list_map, api_rules
from gatevalve.contracts.reasons import Verdict

Short = Annotated[str, Field(max_length=8)]


class Leaf(Contract):
    """A leaf."""

    model_config = ConfigDict(json_schema_extra=api_rules(("has(self.size)", "size is wanted")))

    size: int = Field(default=3, ge=1, le=9, description="Its size.")


class Good(Contract):
    """A model with one field for each thing a CRD can say."""

    text: Short = Field(description="Text.")
    maybe: Short | None = Field(default=None, description="Text or nothing.")
    one: Literal[1] = Field(default=1, description="Always one.")
    choice: Verdict = Field(description="A choice.")
    plain_leaf: Leaf
    told_leaf: Leaf = Field(default=Leaf(), description="A told leaf.", json_schema_extra=api_rules(("self == oldSelf", "fixed")))
    leaves: Annotated[tuple[Leaf, ...], Field(max_length=2, json_schema_extra=api_list_map("size"))] = Field(
        default=(), description="Leaves."
    )
    names: Annotated[dict[Short, Short], Field(max_length=4)] = Field(default_factory=dict, description="Names.")
    free: Annotated[dict[str, Any], Field(max_length=4)] = Field(description="Anything.")


SCHEMA = structural_schema(Good, defaults=True)
PROPERTIES = SCHEMA["properties"]


def model(annotation: Any, **field: Any) -> type[Contract]:
    """A model with one field `odd` of the given type."""
    return type(
        "Odd", (Contract,), {"__doc__": "Odd.", "__annotations__": {"odd": annotation}, "odd": Field(**{"description": "Odd.", **field})}
    )


class Tree(Contract):
    """A model that contains itself."""

    child: "Tree | None" = Field(default=None, description="A child.")


INEXPRESSIBLE = {
    "a union of types": (model(Short | int), "Odd.odd", "union of types"),
    "a number with a fraction": (model(float), "Odd.odd", "type number"),
    "anything": (model(Any), "Odd.odd", "type any"),
    "text without a limit": (model(str), "Odd.odd", "without maxLength"),
    "a list without a limit": (model(tuple[int, ...]), "Odd.odd", "without maxItems"),
    "a list of text without a limit": (model(tuple[str, ...], max_length=2), "Odd.odd[]", "without maxLength"),
    "a map without a limit": (model(dict[Short, Short]), "Odd.odd", "without maxProperties"),
    "a map whose keys have no limit": (model(dict[str, Short], max_length=2), "Odd.odd", "keys have no limit"),
    "a map whose keys are never empty": (
        model(dict[Annotated[str, Field(min_length=1, max_length=2)], Short], max_length=2),
        "Odd.odd",
        "of map keys",
    ),
    "a pair": (model(tuple[int, int]), "Odd.odd", "keyword prefixItems"),
    "a set": (model(frozenset[int], max_length=2), "Odd.odd", "keyword uniqueItems"),
    "an exclusive bound": (model(int, gt=3), "Odd.odd", "keyword exclusiveMinimum"),
    "a field without a description": (model(int, description=None), "Odd.odd", "without a description"),
    "a model that contains itself": (Tree, "Tree.child", "contains itself"),
}


@pytest.mark.parametrize(("odd", "field", "problem"), INEXPRESSIBLE.values(), ids=INEXPRESSIBLE)
def test_what_a_crd_cannot_say_is_refused_with_its_place(odd: type[Contract], field: str, problem: str) -> None:
    with pytest.raises(ContractError, match=problem) as refusal:
        structural_schema(odd, defaults=True)
    assert refusal.value.field == field


def test_fields_without_a_default_are_required() -> None:
    assert SCHEMA["required"] == ["text", "choice", "plainLeaf", "free"]


def test_optional_text_is_text_that_may_be_absent_and_never_null() -> None:
    assert PROPERTIES["maybe"] == {"description": "Text or nothing.", "type": "string", "maxLength": 8}


def test_a_constant_becomes_a_choice_of_one() -> None:
    assert PROPERTIES["one"] == {"description": "Always one.", "type": "integer", "enum": [1], "default": 1}


def test_an_enum_becomes_its_values() -> None:
    assert PROPERTIES["choice"]["enum"] == [member.value for member in Verdict]


def test_a_nested_model_is_written_out_with_its_docstring_and_rules() -> None:
    assert PROPERTIES["plainLeaf"] == {
        "description": "A leaf.",
        "type": "object",
        "properties": {"size": {"description": "Its size.", "type": "integer", "minimum": 1, "maximum": 9, "default": 3}},
        "x-kubernetes-validations": [{"rule": "has(self.size)", "message": "size is wanted"}],
    }


def test_a_fields_own_description_and_rules_come_on_top_of_its_models() -> None:
    assert PROPERTIES["toldLeaf"]["description"] == "A told leaf."
    assert [rule["message"] for rule in PROPERTIES["toldLeaf"]["x-kubernetes-validations"]] == ["size is wanted", "fixed"]


def test_a_list_may_be_told_apart_by_a_key() -> None:
    assert PROPERTIES["leaves"]["x-kubernetes-list-map-keys"] == ["size"]
    assert PROPERTIES["leaves"]["maxItems"] == 2


def test_the_length_of_map_keys_becomes_a_rule() -> None:
    assert PROPERTIES["names"]["x-kubernetes-validations"] == [
        {"rule": "self.all(key, key.size() <= 8)", "message": "keys have at most 8 characters"}
    ]


def test_a_free_form_object_keeps_unknown_fields() -> None:
    assert PROPERTIES["free"] == {
        "description": "Anything.",
        "type": "object",
        "maxProperties": 4,
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_defaults_are_kept_as_literals_and_empty_ones_dropped() -> None:
    assert PROPERTIES["toldLeaf"]["default"] == {"size": 3}
    assert "default" not in PROPERTIES["leaves"]
    assert "default" not in PROPERTIES["maybe"]


def test_defaults_can_be_left_out_altogether() -> None:
    assert "default" not in str(structural_schema(Good, defaults=False))
