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
from gatevalve_trainer.evaluate.suites import LoadedSuite


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
    """An append-only file: one head, then one answer a line; a torn last line is cut off."""

    def __init__(self, path: Path, head: JournalHead) -> None:
        self._path = path
        self.answers: dict[tuple[str, str, Arm], Answer] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        self._resume(head)

    def append(self, answer: Answer) -> None:
        """Keep an answer; it outlives the process at once, and the machine from the next `sync` on."""
        self._keep(answer)
        self._write(answer.canonical())

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
        os.ftruncate(self._descriptor, len(whole))
        lines = whole.splitlines()
        if not lines:
            self._write(head.canonical())
            return
        if lines[0] != head.canonical():
            raise ContractError(
                str(self._path), "was written for another test, arm or item set", "evidence is never reused; open a new test"
            )
        for line in lines[1:]:
            self._keep(Answer.parse_json(line))

    def _keep(self, answer: Answer) -> None:
        if self.answers.setdefault(answer.key, answer) != answer:
            raise ContractError(str(self._path), "holds two different answers to one question", "two attempts ran at once; open a new test")

    def _write(self, line: bytes) -> None:
        os.write(self._descriptor, line + b"\n")
