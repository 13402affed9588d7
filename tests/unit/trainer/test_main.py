"""The edge: errors become exit codes, endings become termination messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gatevalve.contracts.errors import ContractError, IntegrityError, ServingError, StoreError
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.files import Item
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.jobs import Termination
from gatevalve_trainer.errors import BackendUnavailable, Diverged, ItemSupply, NoSignal, OutOfMemory, ReplayMismatch, Terminated
from gatevalve_trainer.main import EXIT_CODES, STEPS, exit_code, main, run_step
from gatevalve_trainer.stopping import StopSignal
from gatevalve_trainer.termination import failed, message_bytes, write_termination


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContractError("f", "p", "r"), 10),
        (IntegrityError("x"), 10),
        (NoSignal("x"), 11),
        (ItemSupply("x"), 16),
        (Diverged("x"), 12),
        (ReplayMismatch("x"), 13),
        (OutOfMemory("x"), 14),
        (MemoryError(), 14),
        (BackendUnavailable("x"), 15),
        (ServingError("x"), 15),
        (StoreError("x"), 15),
        (Terminated("x"), 143),
        (RuntimeError("x"), 1),
    ],
)
def test_every_error_has_one_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_every_exit_code_but_done_has_an_error() -> None:
    assert {code for _, code in EXIT_CODES} == set(ExitCode) - {ExitCode.DONE}


def test_a_job_that_is_no_json_ends_as_a_contract_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_JOB", '{"channel": 1}')
    ending = run_step("publish")
    assert (ending.exit_code, ending.reason) == (10, "ContractError")
    assert ending.message.startswith("PublishInput.channel: Input should be a valid string")


SEALED_TEXT = "How many apples does Ann have?"


def quotes_an_item(raw: str) -> Termination:
    Item(id=SEALED_TEXT * 9, cluster="c", messages=())
    raise AssertionError("the id is too long")


@pytest.mark.parametrize("step", ["draw", "evaluate"])
def test_an_unforeseen_error_of_a_step_that_reads_items_tells_its_type_and_nothing_of_them(
    step: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEVALVE_JOB", "{}")
    monkeypatch.setitem(STEPS, step, quotes_an_item)
    assert main([step]) == 1
    said = "".join(capfd.readouterr())
    assert "apples" not in said
    assert "Traceback" not in said
    assert json.loads(said)["message"] == "ValidationError"


def test_an_unforeseen_error_of_another_step_tells_all(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GATEVALVE_JOB", "{}")
    monkeypatch.setitem(STEPS, "train", quotes_an_item)
    assert "apples" in run_step("train").message
    assert "Traceback" in capfd.readouterr().err


def test_without_a_job_the_message_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEVALVE_JOB", raising=False)
    assert run_step("train").message.startswith("GATEVALVE_JOB: is not set; ")


@pytest.mark.parametrize("text", ["x" * 5000, "😀" * 5000, "\x01" * 5000, "\ud800" * 50], ids=["long", "wide", "escaped", "surrogates"])
def test_a_termination_message_is_valid_json_of_at_most_4_kib(text: str) -> None:
    raw = message_bytes(failed("train", 10, ValueError(text)))
    assert len(raw) <= 4096
    assert Termination.parse_json(raw).message != ""


def test_an_error_without_text_says_its_type() -> None:
    assert failed("train", 14, MemoryError()).message == "MemoryError"


def test_the_message_goes_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEVALVE_TERMINATION_LOG", str(tmp_path / "message"))
    write_termination(Termination(step="publish", exit_code=0))
    assert json.loads((tmp_path / "message").read_bytes()) == {"version": 1, "step": "publish", "exitCode": 0, "reason": "", "message": ""}


def test_digest_prints_the_directorys_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("1")
    assert main(["digest", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{directory_digest(tmp_path)}\n"


def test_digest_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digest", str(tmp_path / "absent")]) == 10
    assert "is not a directory" in capsys.readouterr().err


def test_snapshot_and_publish_run_without_torch() -> None:
    program = "import sys, gatevalve_trainer.snapshot.main, gatevalve_trainer.publish; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_stop_is_raised_at_once() -> None:
    with pytest.raises(Terminated):
        StopSignal().request()


def test_a_stop_is_kept_back_while_deferred() -> None:
    stop = StopSignal()
    with stop.deferred():
        stop.request()
        assert stop.requested
