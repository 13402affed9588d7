"""How long the evaluation waits for its engine, and how it heeds a stop."""

from __future__ import annotations

from dataclasses import dataclass

from gatevalve_trainer.errors import Terminated
from gatevalve_trainer.stopping import STOP


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits in seconds; a request is tried `tries` times, with pauses that double."""

    engine: float = 600
    poll: float = 1
    request: float = 600
    judge: float = 180
    tries: int = 5
    first_pause: float = 0.5


def heed_stop() -> None:
    """Raise Terminated once the process was told to stop; everything answered so far is in the journal."""
    if STOP.requested:
        raise Terminated("told to stop (SIGTERM); the next attempt goes on from the journal")
