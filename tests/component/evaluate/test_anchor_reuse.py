"""The anchor's answers of a round serve its later tests, as long as engine, items, policy and anchor are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gatevalve.contracts.canonical import sha256
from gatevalve_trainer.evaluate.anchor import AnchorAnswers
from gatevalve_trainer.evaluate.main import run
from gatevalve_trainer.evaluate.marks import mark_of
from support.chat_engine import Body, ChatEngine, Script, honest
from support.evaluation import MODELS, SEAL, SOON, SPLIT, job, policy, rows_of, write_suites

pytestmark = pytest.mark.component


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEVALVE_SEAL_SEED", SEAL.hex())
    monkeypatch.setenv("GATEVALVE_SPLIT_KEY", SPLIT.hex())
    write_suites(tmp_path)


ANCHOR = "tiny-words"
ITEMS = 40 + 30 + 10
SECOND: dict[str, Any] = {"test_entry": "support-000009", "test_digest": sha256(b"another test"), "test": 3, "candidate_uid": "other"}


def measure(root: Path, script: Script = honest, **changes: Any) -> int:
    """Run one test; returns how often the anchor's model was asked for replies."""
    with ChatEngine(MODELS, script) as engine:
        run(job(root, engine_url=engine.url, **changes), SOON)
        return sum(count for (model, _), count in engine.counts().items() if model == ANCHOR)


def kept(root: Path) -> Path:
    (path,) = (root / "sealed/channel-uid/rounds/000003").glob("anchor-*.json")
    return path


def test_the_second_test_of_a_round_asks_the_anchor_nothing_and_has_its_answers(tmp_path: Path) -> None:
    assert measure(tmp_path) == ITEMS
    assert measure(tmp_path, **SECOND) == 0
    first, second = rows_of(tmp_path), rows_of(tmp_path, "support-000009")
    for column in ("scores", "tokens", "finishes", "texts", "failures"):
        assert [getattr(row, column)["anchor"] for row in first] == [getattr(row, column)["anchor"] for row in second]
    assert [row.styles and row.styles["anchor"] for row in first] == [row.styles and row.styles["anchor"] for row in second]
    assert [row.texts["candidate"] for row in first] != [row.texts["candidate"] for row in second]


OTHERS: dict[str, dict[str, Any]] = {
    "another round": {"round": 4},
    "another engine": {"engine_digest": sha256(b"another engine")},
    "another anchor": {"anchor_digest": sha256(b"another anchor")},
    "another base": {"base": {"name": ANCHOR, "uri": "file:///models/tiny-words", "digest": sha256(b"another base")}},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_on_anything_else_the_anchor_is_asked_anew(changes: dict[str, Any], tmp_path: Path) -> None:
    measure(tmp_path)
    assert measure(tmp_path, **{**SECOND, **changes}) == ITEMS


def test_an_incumbent_that_is_the_anchor_leaves_nothing_to_take_over(tmp_path: Path) -> None:
    """Its answers depend on the test: what a test measures stands for both arms."""
    arms = {"candidate": "support-cccccccc", "incumbent": ANCHOR, "anchor": ANCHOR}
    for test in (dict[str, Any](), SECOND):
        assert measure(tmp_path, arms=arms, incumbent_digest=None, **test) == ITEMS
    assert not list((tmp_path / "sealed/channel-uid/rounds/000003").glob("anchor-*"))


def test_an_answer_that_stayed_away_is_asked_again_in_the_next_test(tmp_path: Path) -> None:
    async def forgetful(body: Body, before: int) -> web.StreamResponse:
        return web.Response(status=400) if body["model"] == ANCHOR and body["n"] == 3 else await honest(body, before)

    measure(tmp_path, forgetful)
    assert measure(tmp_path, **SECOND) == 40
    assert all(None not in row.texts["anchor"] for row in rows_of(tmp_path, "support-000009"))


def remarked(path: Path, seal: bytes | None, **changes: Any) -> None:
    """Answers as somebody writes them who holds this seal, or none."""
    unmarked = AnchorAnswers.parse_json(path.read_bytes()).model_copy(update={"mark": None, **changes})
    mark = None if seal is None else mark_of(seal, "anchor", unmarked.canonical())
    path.write_bytes(unmarked.model_copy(update={"mark": mark}).canonical())


def without_a_mark(path: Path) -> None:
    remarked(path, None)


def with_a_mark_of_another_seal(path: Path) -> None:
    remarked(path, bytes(32))


def of_another_round(path: Path) -> None:
    """Marked rightly, under a name that it does not belong to: a copy from another round's directory."""
    head = AnchorAnswers.parse_json(path.read_bytes()).head
    remarked(path, SEAL, head=head.model_copy(update={"round": 2}))


def with_another_answer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"stop"', b'"length"', 1))


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FORGED = [without_a_mark, with_a_mark_of_another_seal, of_another_round, with_another_answer, torn, a_directory]


@pytest.mark.parametrize("forge", FORGED)
def test_answers_that_no_evaluation_of_this_round_kept_are_left_aside_and_measured_anew(forge: Any, tmp_path: Path) -> None:
    measure(tmp_path)
    honest_rows = [row.scores["anchor"] for row in rows_of(tmp_path)]
    forge(kept(tmp_path))
    assert measure(tmp_path, **SECOND) == ITEMS
    assert [row.scores["anchor"] for row in rows_of(tmp_path, "support-000009")] == honest_rows


def test_a_policy_of_judges_keeps_no_answers_of_judged_suites(tmp_path: Path) -> None:
    measure(tmp_path)
    answers = AnchorAnswers.parse_json(kept(tmp_path).read_bytes()).answers
    assert {answer.suite for answer in answers} == {suite.name for suite in policy().suites if suite.judge is None}
