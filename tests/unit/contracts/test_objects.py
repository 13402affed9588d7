"""Contracts and the generated schema judge the same objects alike; the cluster tests put the same table to the API server."""

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contract_table import TABLE, cases, changed
from gatevalve.codegen.resources import RESOURCES, object_schema
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.model import Contract

SPECS: dict[str, type[Contract]] = {resource.kind: resource.spec for resource in RESOURCES}


def strict(schema: Any) -> Any:
    """A structural schema that refuses unknown fields, as the API server does for kubectl."""
    if isinstance(schema, list):
        return [strict(child) for child in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(child) for key, child in schema.items()}
    return closed | ({"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {})


SCHEMAS = {resource.kind: jsonschema.Draft202012Validator(strict(object_schema(resource)["properties"]["spec"])) for resource in RESOURCES}


def without_nulls(value: Any) -> Any:
    """What the API server keeps of a value: it prunes the nulls of fields that are not nullable, and none of ours is."""
    if isinstance(value, dict):
        return {key: without_nulls(child) for key, child in value.items() if child is not None}
    return [without_nulls(child) for child in value] if isinstance(value, list) else value


def accepts(kind: str, spec: Any) -> bool:
    """The generated schema, without its rules, accepts a spec."""
    return bool(SCHEMAS[kind].is_valid(without_nulls(spec)))


def broken_types(kind: str, spec: Any) -> set[str]:
    """What the contract finds wrong with a spec, as pydantic's error types."""
    try:
        SPECS[kind].model_validate(spec)
    except ValidationError as error:
        return {finding["type"] for finding in error.errors()}
    return set()


@pytest.mark.parametrize("case", cases("good"))
def test_good_objects_are_accepted_by_contract_and_schema(case: dict[str, Any]) -> None:
    spec = changed(case)["spec"]
    SPECS[case["kind"]].parse(spec)
    assert accepts(case["kind"], spec)


@pytest.mark.parametrize("case", cases("good"))
def test_good_objects_keep_their_name_through_the_wire(case: dict[str, Any]) -> None:
    model = SPECS[case["kind"]]
    value = model.parse(changed(case)["spec"])
    again = model.parse_json(value.canonical())
    assert (again, again.digest_of()) == (value, value.digest_of())
    assert accepts(case["kind"], value.wire())


@pytest.mark.parametrize("case", cases("bad", "schema", "strict"))
def test_bad_structure_is_refused_by_contract_and_schema(case: dict[str, Any]) -> None:
    spec = changed(case).get("spec", {})
    assert broken_types(case["kind"], spec)
    assert not accepts(case["kind"], spec)


@pytest.mark.parametrize("case", cases("bad", "schema", "strict", "rule"))
def test_a_refusal_names_the_field(case: dict[str, Any]) -> None:
    with pytest.raises(ContractError) as refusal:
        SPECS[case["kind"]].parse(changed(case).get("spec", {}))
    where = case["field"].removeprefix("spec").replace("[", ".").replace("]", "")
    assert refusal.value.field.startswith(SPECS[case["kind"]].__name__ + where)


@pytest.mark.parametrize("case", cases("bad", "rule"))
def test_a_broken_rule_is_found_by_the_contract_and_left_to_cel_by_the_schema(case: dict[str, Any]) -> None:
    spec = changed(case)["spec"]
    assert broken_types(case["kind"], spec)
    assert accepts(case["kind"], spec)


@pytest.mark.parametrize("kind", TABLE["statuses"])
def test_a_full_status_is_accepted_by_contract_and_schema_and_keeps_every_field(kind: str) -> None:
    resource = next(resource for resource in RESOURCES if resource.kind == kind)
    assert resource.status is not None
    status = TABLE["statuses"][kind]
    assert resource.status.parse(status).wire() == status
    jsonschema.validate(status, strict(object_schema(resource)["properties"]["status"]))
    missing = set(object_schema(resource)["properties"]["status"]["properties"]) - set(status)
    assert not missing, f"the table's status shows no {missing}"


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 0, 10**9, 1.5, "", "odd text!", "x" * 2000, "ünï", [], ["x"], [{}], {}, {"odd": 1}, [[1]]]
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value but its root."""
    children = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [found for key, child in children for found in [(*at, key), *paths(child, (*at, key))]]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, Any]:
    """A kind and a good spec of it with one or two places removed or written over with something odd."""
    case = draw(st.sampled_from(TABLE["good"]))
    spec = changed(case)["spec"]
    for _ in range(draw(st.integers(1, 2))):
        if places := paths(spec):
            damage(draw, spec, draw(st.sampled_from(places)))
    return case["kind"], spec


def damage(draw: st.DrawFn, spec: Any, at: tuple[Any, ...]) -> None:
    for part in at[:-1]:
        spec = spec[part]
    if draw(st.booleans()):
        spec[at[-1]] = copy.deepcopy(draw(ODD))
    else:
        del spec[at[-1]]


@given(damaged())
def test_damaged_objects_are_judged_alike(kind_and_spec: tuple[str, Any]) -> None:
    kind, spec = kind_and_spec
    findings = broken_types(kind, without_nulls(spec))
    if not accepts(kind, spec):
        assert findings, f"the schema refuses what the contract accepts: {json.dumps(spec)}"
    else:
        assert not findings or "value_error" in findings, f"the contract refuses for {findings} what the schema accepts: {json.dumps(spec)}"
