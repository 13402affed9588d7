"""Values: what is misspelt or makes no sense is refused with a readable message, before anything reaches a cluster."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.chart import CHART, Helm

pytestmark = pytest.mark.timeout(1200)  # the first run on a machine builds helm

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"pools": {}}, "additional properties 'pools' not allowed"),
    "an unknown key of the pool": ({"pool": {"replica": 2}}, "additional properties 'replica' not allowed"),
    "an unknown key of a claim": ({"claims": {"data": {"storage": "1Gi"}}}, "additional properties 'storage' not allowed"),
    "an unknown area": ({"claims": {"cache": {}}}, "additional properties 'cache' not allowed"),
    "limits misspelt": ({"pool": {"resources": {"limit": {}}}}, "additional properties 'limit' not allowed"),
    "a toleration misspelt": ({"pool": {"tolerations": [{"name": "x"}]}}, "additional properties 'name' not allowed"),
    "root as user": ({"runAsUser": 0}, "minimum"),
    "a rank without kernels": ({"pool": {"lora": {"maxRank": 7}}}, "value must be one of 1, 8, 16"),
    "too few adapters for a roll-out": ({"pool": {"lora": {"max": 1}}}, "minimum"),
    "fewer adapters in host memory than in a batch": (
        {"pool": {"enabled": True, "lora": {"max": 9}}},
        "pool.lora.maxCpu is below pool.lora.max",
    ),
    "a size in words": ({"claims": {"log": {"size": "large"}}}, "does not match pattern"),
    "a claim that one Pod writes and others read": ({"claims": {"data": {"accessModes": ["ReadOnlyMany"]}}}, "must be one of"),
    "a relative path of models": ({"models": {"hostPath": "models"}}, "does not match pattern"),
    "a pool with capital letters": ({"pool": {"name": "Support"}}, "does not match pattern"),
    "a key in place of a certificate": ({"signing": {"certificate": "-----BEGIN PRIVATE KEY-----"}}, "does not match pattern"),
    "models in two places": ({"models": {"existingClaim": "m", "hostPath": "/m"}}, "models lie in one place"),
    "a pool named vllm": ({"pool": {"enabled": True, "name": "vllm"}}, "a Service named vllm makes Kubernetes inject VLLM_PORT"),
    "a service named vllm": (
        {"pool": {"enabled": True, "service": {"name": "vllm"}}},
        "a Service named vllm makes Kubernetes inject VLLM_PORT",
    ),
    "a key of one's own that cannot be read": ({"signing": {"existingSecret": "own"}}, "give its tls.crt as signing.certificate"),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_with_a_readable_message(helm: Helm, values: dict[str, Any], message: str) -> None:
    assert message in helm.refusal(values)


def test_a_pool_named_vllm_may_have_a_service_of_another_name(helm: Helm) -> None:
    rendering = helm.render(values={"pool": {"enabled": True, "name": "vllm", "service": {"name": "chat"}}})
    assert ("Service", "chat") in rendering.kinds()


def objects(schema: Any, path: str = "values") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a JSON schema, with its place."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for key, child in schema.items():
            yield from objects(child, f"{path}.{key}")
    if isinstance(schema, list):
        for child in schema:
            yield from objects(child, path)


def test_every_object_of_the_schema_is_closed() -> None:
    opened = {path for path, schema in objects(SCHEMA) if schema.get("additionalProperties") is not False and not typed_map(schema)}
    assert opened == {"values.properties.global"}


def typed_map(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("additionalProperties"), dict)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def differences(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Keys that only one of values and schema has."""
    properties = resolved(schema).get("properties")
    if properties is None:
        return
    if path.endswith(".resources"):
        properties = {key: properties[key] for key in values}
    yield from (f"{path}.{key}" for key in set(values) ^ set(properties))
    for key in set(values) & set(properties):
        if isinstance(values[key], dict):
            yield from differences(values[key], properties[key], f"{path}.{key}")


def test_values_yaml_shows_every_key_that_the_schema_knows() -> None:
    assert sorted(differences(VALUES, SCHEMA)) == [".global"]
