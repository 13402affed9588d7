"""What is told of an evaluation while it runs: counts, in a file that goes with the journal."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from aiohttp import web

from gatevalve.contracts.files import Progress
from gatevalve_trainer.evaluate import asking, progress
from gatevalve_trainer.evaluate.main import run
from support.chat_engine import Body, ChatEngine, completion, honest
from support.evaluation import MODELS, SEAL, SOON, SPLIT, evidence, job, policy, write_suites

pytestmark = pytest.mark.component


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEVALVE_SEAL_SEED", SEAL.hex())
    monkeypatch.setenv("GATEVALVE_SPLIT_KEY", SPLIT.hex())
    write_suites(tmp_path)


SCREENED = policy(futility={"items": 20, "alphaBasisPoints": 5000})
LENIENT = policy(futility={"items": 20, "alphaBasisPoints": 10_000})
"""Its screen ends nobody: no p is above 1."""
QUESTIONS = 2 * 20 + 3 * (40 + 30 + 10)


class Watcher:
    """Reads the file while the engine answers."""

    def __init__(self, root: Path) -> None:
        self._path = evidence(root) / "progress.json"
        self._lock = threading.Lock()
        self.seen: list[Progress] = []

    async def __call__(self, body: Body, before: int) -> web.StreamResponse:
        self.look()
        return await honest(body, before)

    def look(self) -> None:
        with self._lock:
            found = Progress.parse_json(self._path.read_bytes())
            if not self.seen or found != self.seen[-1]:
                self.seen.append(found)


def test_the_file_counts_answers_and_is_gone_when_evidence_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(asking, "WATCH_SECONDS", 0.01)
    watcher = Watcher(tmp_path)
    with ChatEngine(MODELS, watcher) as engine:
        run(job(tmp_path, engine_url=engine.url, policy=LENIENT), SOON)
    assert {found.of for found in watcher.seen} == {QUESTIONS}
    counts = [found.answered for found in watcher.seen]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] > 40  # what the screen does not end goes on under the same `of`
    assert sorted(path.name for path in evidence(tmp_path).iterdir()) == ["pairs.jsonl.gz", "report.json"]


def test_a_candidate_that_the_screen_ends_is_told_of_as_any_other_until_it_ends(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)

    async def hopeless(body: Body, before: int) -> web.StreamResponse:
        watcher.look()
        return completion(["The answer is 0."] * body["n"])

    with ChatEngine(MODELS, hopeless) as engine:
        run(job(tmp_path, engine_url=engine.url, policy=SCREENED), SOON)
        assert engine.counts().total() == 40
    assert {found.of for found in watcher.seen} == {QUESTIONS}
    assert not (evidence(tmp_path) / "progress.json").exists()
