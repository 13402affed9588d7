"""The base of every contract: frozen, strict about unknown fields, camelCase on the wire."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from gatevalve.contracts import patterns
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


Name = Annotated[str, Field(max_length=40, pattern=patterns.NAME)]
"""A Kubernetes name short enough to leave room for our suffixes."""

ObjectName = Annotated[str, Field(max_length=253, pattern=patterns.OBJECT_NAME)]
"""Any Kubernetes object name."""

EntryName = Annotated[str, Field(max_length=47, pattern=patterns.ENTRY_NAME)]
"""A log entry: <channel>-<six-digit sequence>."""

DigestField = Annotated[str, Field(pattern=patterns.DIGEST, max_length=71)]
"""sha256 over canonical bytes, written `sha256:<64 hex digits>`."""

Uid = Annotated[str, Field(max_length=64, min_length=1)]
Uri = Annotated[str, Field(max_length=1024, min_length=1)]
DirectoryUri = Annotated[str, Field(max_length=1024, pattern=patterns.DIRECTORY)]
"""A directory that Pods have mounted: file:// and an absolute path."""

ShortText = Annotated[str, Field(max_length=256)]
Message = Annotated[str, Field(max_length=1024)]
Decimal = Annotated[str, Field(max_length=32, pattern=patterns.DECIMAL)]
"""A real number as a decimal string: specs and hashed records hold no floats."""

BasisPoints = Annotated[int, Field(ge=0, le=10_000)]
"""Hundredths of a percentage point: 100 bp = 1 point."""


def _longer_than_nothing(text: str) -> str:
    if not re.search("[1-9]", text):
        raise ValueError(EMPTY_SPAN)
    return text


EMPTY_SPAN = "must be longer than zero"

Duration = Annotated[
    str,
    Field(max_length=32, pattern=patterns.DURATION, min_length=2, json_schema_extra=api_rules(("self.matches('[1-9]')", EMPTY_SPAN))),
    AfterValidator(_longer_than_nothing),
]
"""A span longer than zero in Go's notation, whole hours, minutes and seconds of at most six digits each: 24h, 90m, 1h30m."""


def _on_the_calendar(text: str) -> str:
    """The pattern, which the API server checks too, knows digits only."""
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is no instant of the calendar: {error}") from error
    return text


Timestamp = Annotated[
    str,
    Field(max_length=32, pattern=patterns.TIMESTAMP),
    AfterValidator(_on_the_calendar),
]
"""UTC instant in RFC 3339."""
