"""The base of every contract: frozen, strict about unknown fields, camelCase on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from gatevalve.contracts.canonical import Digest, canonical_json, sha256
from gatevalve.contracts.errors import ContractError


class Contract(BaseModel):
    """A value that crosses a boundary: immutable, refuses fields it does not know, reads and writes camelCase."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, validate_default=True, ser_json_inf_nan="constants"
    )

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read a decoded JSON value; raises ContractError that names the field and what is wrong with it."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise ContractError.from_validation(cls.__name__, error) from error

    @classmethod
    def parse_json(cls, raw: bytes | str) -> Self:
        """Read JSON text; raises ContractError that names the field and what is wrong with it."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise ContractError.from_validation(cls.__name__, error) from error

    def wire(self) -> dict[str, Any]:
        """The JSON object as it is written: camelCase, absent instead of null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def canonical(self) -> bytes:
        """RFC 8785 bytes of `wire()`; raises ContractError when the value holds a float."""
        return canonical_json(self.wire())

    def digest_of(self) -> Digest:
        """sha256 over the canonical bytes: the value's one name."""
        return sha256(self.canonical())


def api_rules(*rules: tuple[str, str]) -> JsonDict:
    """`json_schema_extra` that hands CEL rules (expression, message) to the API server; each mirrors a validator or guards a change."""
    return cast(JsonDict, {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]})


def api_list_map(key: str) -> JsonDict:
    """`json_schema_extra` of a list whose items are told apart by one field."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


Name = Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""A Kubernetes name short enough to leave room for our suffixes."""

ObjectName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Any Kubernetes object name."""

EntryName = Annotated[str, Field(max_length=47, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9]{6}$")]
"""A log entry: <channel>-<six-digit sequence>."""

DigestField = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
"""sha256 over canonical bytes, written `sha256:<64 hex digits>`."""

Uid = Annotated[str, Field(max_length=64, min_length=1)]
Uri = Annotated[str, Field(max_length=1024, min_length=1)]
ShortText = Annotated[str, Field(max_length=256)]
Message = Annotated[str, Field(max_length=1024)]
Decimal = Annotated[str, Field(max_length=32, pattern=r"^-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?$")]
"""A real number as a decimal string: specs and hashed records hold no floats."""

BasisPoints = Annotated[int, Field(ge=0, le=10_000)]
"""Hundredths of a percentage point: 100 bp = 1 point."""

Duration = Annotated[str, Field(max_length=32, pattern=r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$", min_length=2)]
"""A span in Go's notation, whole hours, minutes and seconds of at most six digits each: 24h, 90m, 1h30m."""


def _on_the_calendar(text: str) -> str:
    """The pattern, which the API server checks too, knows digits only."""
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is no instant of the calendar: {error}") from error
    return text


Timestamp = Annotated[
    str,
    Field(max_length=32, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"),
    AfterValidator(_on_the_calendar),
]
"""UTC instant in RFC 3339."""
