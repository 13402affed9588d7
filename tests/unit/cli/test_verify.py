"""`kubectl gatevalve verify`: what it says of a log, with and without the external copies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gatevalve.cli.verify import Verification, verify
from gatevalve.contracts.names import CERTIFICATE_FILE, log_file
from gatevalve.engine.chain import copy_of
from gatevalve.io.ports import KubeObject
from support.engine_world import CHANNEL_UID, draft, release_object, sealed_log, signer


@dataclass
class Log:
    things: list[KubeObject]
    certificate: bytes
    copies: Path

    def verified(self, expected: str | None = None) -> Verification:
        return verify("support", self.things, [self.certificate], expected, self.copies)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    key = signer(tmp_path)
    things = [release_object(entry) for entry in sealed_log(key, draft(0), draft(1), draft(2))]
    for sequence, thing in enumerate(things):
        path = tmp_path / "log" / log_file(CHANNEL_UID, sequence)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(copy_of(thing["spec"]))
    return Log(things, (tmp_path / "signing-operator" / CERTIFICATE_FILE).read_bytes(), tmp_path / "log")


def test_a_log_equal_to_its_copies_is_sound(log: Log) -> None:
    found = log.verified()
    assert (found.problem, found.entries, found.compared) == (None, 3, 3)


def test_a_copy_that_is_missing_is_named(log: Log) -> None:
    (log.copies / log_file(CHANNEL_UID, 1)).unlink()
    assert log.verified().problem == f"the external log lacks {log_file(CHANNEL_UID, 1)}"


def test_a_copy_that_differs_is_named(log: Log) -> None:
    (log.copies / log_file(CHANNEL_UID, 1)).write_bytes(b"{}")
    assert "differs" in (log.verified().problem or "")


def test_an_entry_that_is_gone_is_named(log: Log) -> None:
    del log.things[1]
    assert "support-000001 is missing" in (log.verified().problem or "")


def test_a_key_that_the_reader_does_not_trust_is_refused(log: Log) -> None:
    assert "no certificate" in (log.verified("sha256:" + "0" * 64).problem or "")
