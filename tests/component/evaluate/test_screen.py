"""The screen: asked first, of candidate and incumbent; what is hopeless on it is not measured any further."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from gatevalve.contracts.files import Item
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.evaluate.main import run
from gatevalve_trainer.tasks.plugin import first_user_message
from support.chat_engine import Body, ChatEngine, Script, completion, honest, question_of
from support.evaluation import MODELS, SEAL, SOON, SPLIT, evidence, job, policy, report_of, rows_of, write_suites

pytestmark = pytest.mark.component


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEVALVE_SEAL_SEED", SEAL.hex())
    monkeypatch.setenv("GATEVALVE_SPLIT_KEY", SPLIT.hex())
    write_suites(tmp_path)


ITEMS = 20
SCREENED = policy(futility={"items": ITEMS, "alphaBasisPoints": 5000})
CANDIDATE, INCUMBENT = "support-cccccccc", "support-bbbbbbbb"
QUESTIONS = 2 * ITEMS + 3 * (40 + 30 + 10)


def knowing(*clever: str, root: Path) -> Script:
    """An engine on which only these models know the answers to generated items."""

    async def script(body: Body, before: int) -> web.StreamResponse:
        model, prompt = question_of(body)
        known = {first_user_message(item): item.answer for item in drawn(root)}
        right = model in clever and prompt in known
        return completion([f"The answer is {known[prompt] if right else 0}."] * body["n"])

    return script


def drawn(root: Path) -> list[Item]:
    return [
        item for path in sorted(root.glob("sealed/channel-uid/rounds/000003/items-*.jsonl")) for item in from_lines("x", path.read_bytes())
    ]


def test_a_hopeless_candidate_ends_with_the_screens_rows_and_nothing_else_is_asked(tmp_path: Path) -> None:
    with ChatEngine(MODELS, knowing(INCUMBENT, root=tmp_path)) as engine:
        run(job(tmp_path, engine_url=engine.url, policy=SCREENED), SOON)
        assert engine.counts().total() == 2 * ITEMS
        assert {model for model, _ in engine.counts()} == {CANDIDATE, INCUMBENT}
    report = report_of(tmp_path)
    assert (report.stage, [(fact.name, fact.items) for fact in report.suites]) == ("Screen", [("screen", ITEMS)])
    found = rows_of(tmp_path)
    assert {row.suite for row in found} == {"screen"}
    assert all(set(row.scores) == set(row.failures) == {"candidate", "incumbent"} for row in found)


def test_a_hopeful_candidate_is_measured_on_every_suite_after_the_screen(tmp_path: Path) -> None:
    with ChatEngine(MODELS, knowing(CANDIDATE, root=tmp_path)) as engine:
        run(job(tmp_path, engine_url=engine.url, policy=SCREENED), SOON)
        assert engine.counts().total() == QUESTIONS
        first = {prompt for _, prompt in map(question_of, engine.asked[: 2 * ITEMS])}
    assert len(first) == ITEMS
    report = report_of(tmp_path)
    assert (report.stage, [fact.name for fact in report.suites]) == ("Full", ["screen", "target", "regression", "manners"])
    assert [row.suite for row in rows_of(tmp_path)] == ["screen"] * ITEMS + ["target"] * 40 + ["regression"] * 30 + ["manners"] * 10


def test_nothing_but_the_screen_is_asked_before_all_of_it_is_answered(tmp_path: Path) -> None:
    """One answer of the screen is late: the engine hears of no other suite meanwhile."""

    async def late(body: Body, before: int) -> web.StreamResponse:
        if len(engine.asked) == 1:
            await asyncio.sleep(1)
            meanwhile.append(len(engine.asked))
        return await honest(body, before)

    meanwhile: list[int] = []
    lenient = policy(futility={"items": ITEMS, "alphaBasisPoints": 10_000})
    with ChatEngine(MODELS, late) as engine:
        run(job(tmp_path, engine_url=engine.url, policy=lenient), SOON)
        assert meanwhile == [2 * ITEMS]
        assert engine.counts().total() == QUESTIONS


@pytest.mark.parametrize(("clever", "stage"), [(INCUMBENT, "Screen"), (CANDIDATE, "Full")], ids=["hopeless", "hopeful"])
def test_an_attempt_after_the_screen_comes_to_the_same_without_asking_again(clever: str, stage: str, tmp_path: Path) -> None:
    with ChatEngine(MODELS, knowing(clever, root=tmp_path)) as engine:
        work = job(tmp_path, engine_url=engine.url, policy=SCREENED)
        first = run(work, SOON)
        kept = evidence(tmp_path) / "partial.jsonl"
        assert not kept.exists()
        asked = engine.counts().total()
        (evidence(tmp_path) / "report.json").unlink()
        (evidence(tmp_path) / "pairs.jsonl.gz").unlink()
        again = run(work, SOON)
    assert (again, report_of(tmp_path).stage) == (first, stage)
    taken_over = 40 + 30 + 10 if stage == "Full" else 0
    assert engine.counts().total() == 2 * asked - taken_over
