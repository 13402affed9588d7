"""The four CRDs: what the API server is told beyond the fields."""

from collections.abc import Iterator
from typing import Any

import pytest

from gatevalve.codegen.resources import (
    ADAPTER_CANDIDATE,
    ADAPTER_RELEASE,
    RESOURCES,
    Resource,
    custom_resource_definition,
    unchanged_but_for,
)
from gatevalve.contracts.kinds import AdapterCandidateSpec

each_kind = pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)


def version(resource: Resource) -> dict[str, Any]:
    found: dict[str, Any] = custom_resource_definition(resource)["spec"]["versions"][0]
    return found


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object in a value."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from nodes(child)


@each_kind
def test_a_status_is_a_subresource_and_conditions_are_told_apart_by_type(resource: Resource) -> None:
    schema = version(resource)["schema"]["openAPIV3Schema"]["properties"]
    assert ("status" in schema) == (version(resource).get("subresources") == {"status": {}})
    if "status" in schema:
        assert schema["status"]["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


@each_kind
def test_every_rule_has_a_readable_message(resource: Resource) -> None:
    for node in nodes(version(resource)):
        for rule in node.get("x-kubernetes-validations", []):
            assert len(rule["message"].split()) >= 3


@each_kind
def test_the_last_column_is_the_age_and_every_column_is_explained(resource: Resource) -> None:
    columns = version(resource)["additionalPrinterColumns"]
    assert columns[-1]["name"] == "Age"
    assert all(column["description"].endswith(".") for column in columns)


@each_kind
def test_uninstalling_the_chart_keeps_the_kind(resource: Resource) -> None:
    assert custom_resource_definition(resource)["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_log_entry_never_gets_a_default_because_its_bytes_are_signed() -> None:
    assert not any("default" in node for node in nodes(version(ADAPTER_RELEASE)["schema"]))


def test_a_status_never_gets_a_default_because_it_is_derived() -> None:
    for resource in RESOURCES:
        status = version(resource)["schema"]["openAPIV3Schema"]["properties"].get("status", {})
        assert not any("default" in node for node in nodes(status))


def test_every_field_of_a_candidate_but_approval_is_in_its_immutability_rule() -> None:
    rule = unchanged_but_for(AdapterCandidateSpec, "approval")
    fields = ADAPTER_CANDIDATE.spec.model_json_schema()["properties"]
    assert {field for field in fields if f"self.{field} == oldSelf.{field}" in rule} == set(fields) - {"approval"}


@each_kind
def test_every_selectable_field_is_a_text_of_the_schema(resource: Resource) -> None:
    for path in resource.selectable:
        node = version(resource)["schema"]["openAPIV3Schema"]
        for part in path.removeprefix(".").split("."):
            node = node["properties"][part]
        assert node["type"] == "string"
