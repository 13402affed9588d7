"""The journal of a test: answers as they come, so that a killed attempt goes on where it was and asks nothing twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from gatevalve.contracts.canonical import digest_of_json
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Arm
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.model import Contract, DigestField
from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.marks import check_mark, mark_of
from gatevalve_trainer.evaluate.rounds import LoadedSuite


class JournalHead(Contract):
    """The first line: what the answers below it were measured on."""

    test_digest: DigestField
    subject_digest: DigestField


def journal_head(job: EvaluateInput, suites: tuple[LoadedSuite, ...]) -> JournalHead:
    """The head of a test's journal: another test, arm or item set has another one."""
    subject = {
        "arms": dict(job.arms),
        "digests": [job.candidate_digest, job.incumbent_digest, job.anchor_digest, job.base.digest],
        "suites": [suite.fact.wire() for suite in suites],
    }
    return JournalHead(test_digest=job.test_digest, subject_digest=digest_of_json(subject))


class Journal:
    """An append-only file: one head, then one answer a line behind its mark; a torn last line is cut off."""

    def __init__(self, path: Path, head: JournalHead, seal: bytes) -> None:
        self._path, self._seal, self._what = path, seal, f"answer {head.digest_of()}"
        self.answers: dict[tuple[str, str, Arm], Answer] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = _opened(path)
        self._resume(head)

    def append(self, answer: Answer) -> None:
        """Keep an answer; it outlives the process at once, and the machine from the next `sync` on."""
        self._keep(answer)
        self._write(self._marked(answer.canonical()))

    def sync(self) -> None:
        """Make everything appended so far outlive the machine."""
        os.fsync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sync()
        os.close(self._descriptor)

    def _resume(self, head: JournalHead) -> None:
        raw = self._path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if lines and lines[0] != head.canonical():
            raise ContractError(
                str(self._path), "was written for another test, arm or item set", "evidence is never reused; open a new test"
            )
        os.ftruncate(self._descriptor, len(whole))
        if not lines:
            self._write(head.canonical())
        for number, line in enumerate(lines[1:], start=2):
            self._keep(self._read(number, line))

    def _read(self, number: int, line: bytes) -> Answer:
        mark, _, text = line.partition(b" ")
        check_mark(self._seal, self._what, text, mark.decode("ascii", "replace"), f"{self._path} line {number}")
        return Answer.parse_json(text)

    def _marked(self, line: bytes) -> bytes:
        return f"{mark_of(self._seal, self._what, line)} ".encode() + line

    def _keep(self, answer: Answer) -> None:
        if self.answers.setdefault(answer.key, answer) != answer:
            raise ContractError(str(self._path), "holds two different answers to one question", "two attempts ran at once; open a new test")

    def _write(self, line: bytes) -> None:
        os.write(self._descriptor, line + b"\n")


def _opened(path: Path) -> int:
    """A descriptor for reading and appending; raises ContractError for a link, through which another file would be written."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o640)
    except OSError as error:
        if path.is_symlink():
            raise ContractError(str(path), "is a link", "find out who made it, remove it and open a new test") from error
        raise
