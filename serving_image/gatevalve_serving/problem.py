"""Why a document or an adapter is not taken: a reason of the contract and a sentence with the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve.contracts.errors import ServingError
from gatevalve.contracts.reasons import PodReason

LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason and a message."""

    reason: PodReason
    message: str


class AdapterProblem(ServingError):
    """An adapter cannot be served; carries the Problem."""

    def __init__(self, reason: PodReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.problem = Problem(reason, message[:LONGEST_MESSAGE])
