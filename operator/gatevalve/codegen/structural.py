"""Structural schemas: the JSON schema that pydantic emits, rewritten into what the API server accepts, field by field.

Nulls are not declared nullable: the API server prunes a null of a field that is not, so that null and absent are one thing on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.model import Contract
from gatevalve.contracts.patterns import SENTENCES

Schema = dict[str, Any]

RULES = "x-kubernetes-validations"
LIMITS = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
COPIED = {
    "string": ("minLength", "maxLength", "pattern", "enum"),
    "integer": ("minimum", "maximum", "enum"),
    "boolean": ("enum",),
    "array": ("minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    "object": ("minProperties", "maxProperties"),
}
"""Keywords that mean the same on both sides, by type."""

REWRITTEN = frozenset({"$defs", "title", "type", "description", "default", "properties", "required", "items", "propertyNames"} | {RULES})
"""Keywords that a step below reads, or that only name the model."""


@dataclass(frozen=True, slots=True)
class Models:
    """What a rewriting needs to know: the definitions that references point to, and whether defaults are kept."""

    definitions: Schema
    defaults: bool


def structural_schema(model: type[Contract], *, defaults: bool) -> Schema:
    """The structural schema of one contract; `defaults=False` leaves every default out.

    Raises ContractError with the field's path for what a CRD cannot say, for a property without a description,
    and for a string, list or map without a limit.
    """
    emitted = model.model_json_schema(by_alias=True)
    return _rewrite(emitted, model.__name__, Models(emitted.get("$defs", {}), defaults))


def _rewrite(node: Schema, path: str, models: Models, above: tuple[str, ...] = ()) -> Schema:
    node, above = _resolved(node, path, models, above)
    kind = _type(node, path)
    _refuse_unknown_keywords(node, kind, path)
    schema: Schema = {}
    if "description" in node:
        schema["description"] = node["description"]
    schema["type"] = kind
    schema |= {keyword: node[keyword] for keyword in COPIED[kind] if keyword in node}
    schema |= STEPS.get(kind, _nothing)(node, path, models, above)
    _require_limit(schema, path)
    rules = [*schema.pop(RULES, []), *_form_rule(node), *node.get(RULES, [])]
    return schema | ({RULES: rules} if rules else {})


def _form_rule(node: Schema) -> list[Schema]:
    """A pattern once more as a rule, because the API server shows a pattern as it is and a rule's own words."""
    sentence = SENTENCES.get(node.get("pattern", ""))
    return [{"rule": f"self.matches(r'{node['pattern']}')", "message": sentence}] if sentence else []


def _resolved(node: Schema, path: str, models: Models, above: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """The node without references, one-value constants and null alternatives; also the names of the models it lies in."""
    while True:
        if "$ref" in node:
            name = node["$ref"].removeprefix("#/$defs/")
            if name in above:
                raise _inexpressible(path, f"{name} contains itself", "bound the depth in the contract")
            above = (*above, name)
            node = _merged(models.definitions[name], {key: value for key, value in node.items() if key != "$ref"})
        elif "anyOf" in node:
            node = _merged(_one_alternative(node["anyOf"], path), {key: value for key, value in node.items() if key != "anyOf"})
        elif "const" in node:
            node = {key: value for key, value in node.items() if key != "const"} | {"enum": [node["const"]]}
        else:
            return node, above


def _merged(inner: Schema, outer: Schema) -> Schema:
    rules = [*inner.get(RULES, []), *outer.get(RULES, [])]
    return inner | outer | ({RULES: rules} if rules else {})


def _one_alternative(alternatives: list[Schema], path: str) -> Schema:
    kept = [alternative for alternative in alternatives if alternative.get("type") != "null"]
    if len(kept) != 1:
        raise _inexpressible(path, "a union of types", "give each form its own field and a rule that exactly one is set")
    return kept[0]


def _type(node: Schema, path: str) -> str:
    kind = node.get("type")
    if kind not in COPIED:
        raise _inexpressible(path, f"type {kind or 'any'}", "use a string, integer, boolean, list or model")
    return str(kind)


def _refuse_unknown_keywords(node: Schema, kind: str, path: str) -> None:
    allowed = REWRITTEN | set(COPIED[kind]) | ({"additionalProperties"} if kind == "object" else set())
    for keyword in sorted(set(node) - allowed):
        raise _inexpressible(path, f"keyword {keyword}", "state it as a pattern, a limit or a rule")


def _object(node: Schema, path: str, models: Models, above: tuple[str, ...]) -> Schema:
    if "properties" in node:
        return _model(node, path, models, above)
    values = node.get("additionalProperties", True)
    if values is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return {"additionalProperties": _rewrite(values, f"{path}.*", models, above)} | _key_rule(node.get("propertyNames", {}), path)


def _model(node: Schema, path: str, models: Models, above: tuple[str, ...]) -> Schema:
    properties = {name: _property(child, f"{path}.{name}", models, above) for name, child in node["properties"].items()}
    required = {"required": list(node["required"])} if node.get("required") else {}
    return {**required, "properties": properties}


def _property(node: Schema, path: str, models: Models, above: tuple[str, ...]) -> Schema:
    schema = _rewrite(node, path, models, above)
    if not schema.get("description"):
        raise _inexpressible(path, "a property without a description", "add Field(description=...): `kubectl explain` shows it")
    default = _without_nulls(node.get("default"))
    if models.defaults and default not in (None, {}, []):
        schema["default"] = default
    return schema


def _key_rule(names: Schema, path: str) -> Schema:
    for keyword in sorted(set(names) - {"maxLength", "type"}):
        raise _inexpressible(path, f"keyword {keyword} of map keys", "limit keys by length only")
    if "maxLength" not in names:
        raise _inexpressible(path, "a map whose keys have no limit", "give the key type a max_length")
    limit = names["maxLength"]
    return {RULES: [{"rule": f"self.all(key, key.size() <= {limit})", "message": f"keys have at most {limit} characters"}]}


def _array(node: Schema, path: str, models: Models, above: tuple[str, ...]) -> Schema:
    if "items" not in node:
        raise _inexpressible(path, "a list of anything", "give the list an item type")
    return {"items": _rewrite(node["items"], f"{path}[]", models, above)}


def _nothing(node: Schema, path: str, models: Models, above: tuple[str, ...]) -> Schema:
    return {}


STEPS: dict[str, Callable[[Schema, str, Models, tuple[str, ...]], Schema]] = {"object": _object, "array": _array}


def _require_limit(schema: Schema, path: str) -> None:
    limit = LIMITS.get(schema["type"])
    if limit and limit not in schema and not {"enum", "properties"} & set(schema):
        raise _inexpressible(path, f"a {schema['type']} without {limit}", "give it a limit: the cost of rules is computed from limits")


def _without_nulls(value: Any) -> Any:
    """A default as the API server should write it: nulls and empty things are the same as absent."""
    if isinstance(value, dict):
        kept = {key: _without_nulls(child) for key, child in value.items()}
        return {key: child for key, child in kept.items() if child not in (None, {}, [])}
    return value


def _inexpressible(path: str, what: str, remedy: str) -> ContractError:
    return ContractError(path, f"a CRD cannot express {what}", remedy)
