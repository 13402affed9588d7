"""The termination message: how a Job's container tells the operator how it ended."""

from __future__ import annotations

import os
from pathlib import Path

from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.jobs import Termination
from gatevalve.contracts.names import TERMINATION_BYTES, TERMINATION_LOG
from gatevalve_trainer.phases import log

ENV_TERMINATION_LOG = "GATEVALVE_TERMINATION_LOG"
"""Where the message goes instead of the kubelet's file: for runs outside a Pod."""

MESSAGE_CHARACTERS = 1024


def failed(step: str, code: int, error: BaseException) -> Termination:
    """The ending of a step that raised."""
    message = (str(error) or type(error).__name__).encode("utf-8", "replace").decode()
    return Termination(step=step, exit_code=code, reason=type(error).__name__[:256], message=message[:MESSAGE_CHARACTERS])


def failed_silently(step: str, code: int, error: BaseException) -> Termination:
    """The ending of a step that raised something whose text must not leave the Pod: its type alone."""
    return Termination(step=step, exit_code=code, reason=type(error).__name__[:256], message=type(error).__name__[:MESSAGE_CHARACTERS])


def message_bytes(ending: Termination) -> bytes:
    """The ending as at most 4 KiB of JSON; a message too long for that is cut."""
    raw = ending.canonical()
    while len(raw) > TERMINATION_BYTES:
        ending = ending.model_copy(update={"message": ending.message[: len(ending.message) // 2]})
        raw = ending.canonical()
    return raw


def write_termination(ending: Termination) -> None:
    """Write the message to the Pod's termination log, where there is one, and log it."""
    raw = message_bytes(ending)
    override = os.environ.get(ENV_TERMINATION_LOG)
    path = Path(override or TERMINATION_LOG)
    if override or path.exists():  # the kubelet makes the file; outside a Pod nothing is left in /dev
        path.write_bytes(raw)
    log("end", exit_code=ending.exit_code, sentence=_sentence(ending.exit_code), reason=ending.reason, message=ending.message)


def _sentence(code: int) -> str:
    return next(
        (known.sentence for known in ExitCode if known == code),
        "The step failed unexpectedly; see the traceback (draw and evaluate show none: it could quote sealed items).",
    )
