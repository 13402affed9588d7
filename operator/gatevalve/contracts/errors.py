"""Errors, typed by the boundary they crossed; each says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from gatevalve.contracts.patterns import SENTENCES

if TYPE_CHECKING:
    from pydantic import ValidationError


class GatevalveError(Exception):
    """The root of the product's own errors."""


class ContractError(GatevalveError):
    """A value does not meet its contract: a spec, a file, a message or an argument."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}; {remedy}")
        self.field, self.problem, self.remedy = field, problem, remedy

    @classmethod
    def from_validation(cls, what: str, error: ValidationError) -> Self:
        """The first finding of a pydantic validation, with the field's path."""
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"]) or "value"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        said = SENTENCES.get(first.get("ctx", {}).get("pattern", ""), first["msg"])
        return cls(f"{what}.{path}", f"{said}{more}", "correct the field")


class ClusterError(GatevalveError):
    """The Kubernetes API refused or did not answer."""


class ConflictError(ClusterError):
    """The object changed, or exists already: read again and decide again."""


class AlreadyExistsError(ConflictError):
    """An object of that name exists: the create, which is a compare-and-swap, was lost."""


class InvalidError(ClusterError):
    """The API server refuses the object as it is: sending it again is of no use."""


class NotFoundError(ClusterError):
    """The object to be changed does not exist."""


class ServingError(GatevalveError):
    """A serving pod refused or did not answer."""


class StoreError(GatevalveError):
    """A store area refused, lacks an object, or holds other bytes than named."""


class MissingError(StoreError):
    """The store answers and does not hold a file that it should hold."""


class IntegrityError(StoreError):
    """Bytes do not match the digest or signature that names them."""
