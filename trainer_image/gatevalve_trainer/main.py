"""`gatevalve-trainer`: reads one Job from the environment, runs its step, says how it ended."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from gatevalve.contracts.errors import ContractError, GatevalveError, IntegrityError, ServingError, StoreError
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.jobs import DrawInput, EvaluateInput, FetchInput, PublishInput, SnapshotInput, Termination, TrainInput
from gatevalve.contracts.names import ENV_JOB
from gatevalve_trainer.errors import BackendUnavailable, Diverged, ItemSupply, NoSignal, OutOfMemory, ReplayMismatch, Terminated
from gatevalve_trainer.stopping import STOP
from gatevalve_trainer.termination import failed, failed_silently, write_termination

# The steps import late: snapshot and publish must not pay for torch, nor evaluate for what training needs.


def _draw(raw: str) -> Termination:
    from gatevalve_trainer.evaluate.draw import run

    return Termination(step="draw", exit_code=ExitCode.DONE, round=run(DrawInput.parse_json(raw)))


def _snapshot(raw: str) -> Termination:
    from gatevalve_trainer.snapshot.main import run

    return Termination(step="snapshot", exit_code=ExitCode.DONE, snapshot=run(SnapshotInput.parse_json(raw)))


def _train(raw: str) -> Termination:
    from gatevalve_trainer.train.main import run

    return Termination(step="train", exit_code=ExitCode.DONE, adapter=run(TrainInput.parse_json(raw)))


def _fetch(raw: str) -> Termination:
    from gatevalve_trainer.fetch.main import run

    return Termination(step="fetch", exit_code=ExitCode.DONE, adapter=run(FetchInput.parse_json(raw)))


def _publish(raw: str) -> Termination:
    from gatevalve_trainer.publish import run

    return Termination(step="publish", exit_code=ExitCode.DONE, adapter=run(PublishInput.parse_json(raw)))


def _evaluate(raw: str) -> Termination:
    from gatevalve_trainer.evaluate.main import run

    return Termination(step="evaluate", exit_code=ExitCode.DONE, evidence=run(EvaluateInput.parse_json(raw)))


DRAW, EVALUATE = "draw", "evaluate"
SEALED = frozenset({DRAW, EVALUATE})
"""Steps whose unforeseen errors may quote sealed items."""

STEPS: dict[str, Callable[[str], Termination]] = {
    DRAW: _draw,
    "snapshot": _snapshot,
    "train": _train,
    "fetch": _fetch,
    "publish": _publish,
    EVALUATE: _evaluate,
}

EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ContractError, ExitCode.CONTRACT),
    (IntegrityError, ExitCode.CONTRACT),
    (NoSignal, ExitCode.NO_SIGNAL),
    (ItemSupply, ExitCode.ITEM_SUPPLY),
    (Diverged, ExitCode.DIVERGED),
    (ReplayMismatch, ExitCode.REPLAY_MISMATCH),
    (OutOfMemory, ExitCode.OUT_OF_MEMORY),
    (MemoryError, ExitCode.OUT_OF_MEMORY),
    (BackendUnavailable, ExitCode.BACKEND_UNAVAILABLE),
    (ServingError, ExitCode.BACKEND_UNAVAILABLE),
    (StoreError, ExitCode.BACKEND_UNAVAILABLE),
    (Terminated, ExitCode.TERMINATED),
)
"""The first type that fits gives the exit code; IntegrityError is a StoreError that another try cannot mend."""

UNEXPECTED = 1
"""Exit code of an error that no contract foresees."""


def exit_code(error: BaseException) -> int:
    """The exit code of an error."""
    return next((int(code) for kind, code in EXIT_CODES if isinstance(error, kind)), UNEXPECTED)


def run_step(step: str) -> Termination:
    """Run a step on the Job in the environment; every error becomes an ending."""
    try:
        return STEPS[step](_job_text())
    except Exception as error:  # noqa: BLE001 the edge: whatever happened becomes an exit code and a message
        if isinstance(error, GatevalveError):
            return failed(step, exit_code(error), error)
        if step in SEALED:  # text and traceback of an unforeseen error may quote sealed items
            return failed_silently(step, exit_code(error), error)
        traceback.print_exc()
        return failed(step, exit_code(error), error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `gatevalve-trainer`; the exit code says how the step ended (see `gatevalve.contracts.exits`)."""
    parsed = _parser().parse_args(arguments)
    if parsed.step == "digest":
        return _print_digest(parsed.directory)
    STOP.install()
    ending = run_step(parsed.step)
    write_termination(ending)
    return ending.exit_code


def _job_text() -> str:
    text = os.environ.get(ENV_JOB)
    if text is None:
        raise ContractError(ENV_JOB, "is not set", "give the Job's input as JSON in this environment variable")
    return text


def _print_digest(directory: Path) -> int:
    try:
        print(directory_digest(directory))
    except ContractError as error:
        print(error, file=sys.stderr)
        return int(ExitCode.CONTRACT)
    return int(ExitCode.DONE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gatevalve-trainer", description=(__doc__ or "").strip())
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name in STEPS:
        steps.add_parser(name, help=f"run the {name} Job described in {ENV_JOB}")
    digest = steps.add_parser("digest", help="print the digest of a directory: a base model or an adapter made elsewhere")
    digest.add_argument("directory", type=Path, metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
