import asyncio
import gzip
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.files import ARMS, SCORE_ONE, EvidenceReport, PairRow
from gatevalve.contracts.jobs import Termination
from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.evaluate.main import run
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.main import run_step
from gatevalve_trainer.split import split_side
from gatevalve_trainer.tasks.plugin import first_user_message
from gatevalve_trainer.termination import write_termination
from support.chat_engine import Body, ChatEngine, Script, completion, honest, question_of
from support.evaluation import MANNERS, REGRESSION, SEAL, SPLIT, job, write_suites

pytestmark = pytest.mark.component

MODELS = ("tiny-words", "support-bbbbbbbb", "support-cccccccc")
SOON = Patience(engine=0.5, poll=0.05, request=5, tries=3, first_pause=0.01)
FOLDER = "sealed/channel-uid/evidence/support-000007"
QUESTIONS = 3 * (40 + 30 + 10)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEVALVE_SEAL_SEED", SEAL.hex())
    monkeypatch.setenv("GATEVALVE_SPLIT_KEY", SPLIT.hex())
    write_suites(tmp_path)


def rows(root: Path) -> list[PairRow]:
    return [PairRow.parse_json(line) for line in gzip.decompress((root / FOLDER / "pairs.jsonl.gz").read_bytes()).splitlines()]


def test_a_candidate_is_measured_on_every_item_and_reported_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ChatEngine(MODELS, honest) as engine:
        result = run(job(tmp_path, engine_url=engine.url), SOON)
        assert engine.counts().total() == QUESTIONS
    raw = (tmp_path / FOLDER / "report.json").read_bytes()
    assert (sha256(raw), EvidenceReport.parse_json(raw).pairs.sha256) == (result.evidence_digest, result.pairs_digest)
    assert EvidenceReport.parse_json(raw).engine == "vllm 0.32.0"
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["pairs.jsonl.gz", "report.json"]
    found = rows(tmp_path)
    assert {row.suite: len(row.scores["candidate"]) for row in found} == {"target": 3, "regression": 1, "manners": 1}
    assert {score for row in found if row.suite == "target" for arm in ARMS for score in row.scores[arm]} == {0, SCORE_ONE}
    assert all(row.scores[arm] == (None,) and row.tokens[arm] == (4,) for row in found if row.suite == "manners" for arm in ARMS)
    assert_says_only_counts("".join(capfd.readouterr()), tmp_path)


def assert_says_only_counts(said: str, root: Path) -> None:
    drawn = from_lines("drawn", (root / "sealed/channel-uid/rounds/000003/items-target.jsonl").read_bytes())
    for item in (*drawn, *REGRESSION, *MANNERS):
        assert item.id not in said
        assert first_user_message(item) not in said
    assert "score" not in said
    assert "missing" not in said


def test_generated_prompts_lie_on_the_sealed_side_and_arms_are_asked_in_turn(tmp_path: Path) -> None:
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    target = [question_of(body) for body in engine.asked if body["n"] == 3]
    assert {split_side(SPLIT, prompt) for _, prompt in target} == {"sealed"}
    first = [model for model, _ in target[:60]]
    assert all(17 <= first.count(model) <= 23 for model in MODELS)  # requests in flight overtake each other a little


def test_the_same_test_asked_of_the_same_engine_gives_the_same_bytes(tmp_path: Path) -> None:
    results = []
    with ChatEngine(MODELS, honest) as engine:
        for name in ("one", "two"):
            write_suites(tmp_path / name)
            results.append(run(job(tmp_path / name, engine_url=engine.url), SOON))
    assert results[0] == results[1]


def test_a_finished_test_is_verified_without_an_engine(tmp_path: Path) -> None:
    with ChatEngine(MODELS, honest) as engine:
        first = run(job(tmp_path, engine_url=engine.url), SOON)
    assert run(job(tmp_path, engine_url=engine.url), SOON) == first


def test_an_incumbent_that_is_the_anchor_is_asked_once_and_the_candidate_always(tmp_path: Path) -> None:
    arms = {"candidate": "tiny-words", "incumbent": "tiny-words", "anchor": "tiny-words"}
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url, arms=arms, incumbent_digest=None), SOON)
    assert set(engine.counts().values()) == {2}
    assert all(row.texts["incumbent"] == row.texts["anchor"] for row in rows(tmp_path))


def test_an_engine_that_comes_up_late_is_waited_for(tmp_path: Path) -> None:
    with ChatEngine(MODELS, honest, healthy_after=3) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    assert (tmp_path / FOLDER / "report.json").exists()


async def refuse_once(body: Body, before: int) -> web.StreamResponse:
    return web.Response(status=503) if before == 0 else await honest(body, before)


async def break_off_once(body: Body, before: int) -> web.StreamResponse:
    if before == 0:
        raise web.HTTPInternalServerError(text="not JSON", content_type="application/json")
    return await honest(body, before)


@pytest.mark.parametrize("script", [refuse_once, break_off_once])
def test_a_request_that_fails_once_is_asked_again_with_the_same_seed(script: Script, tmp_path: Path) -> None:
    with ChatEngine(MODELS, script) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    assert all(None not in row.texts[arm] for row in rows(tmp_path) for arm in ARMS)
    assert len({(question_of(body), body["seed"]) for body in engine.asked}) == QUESTIONS


def only_for_the_candidates_regression(answer: Callable[[Body], web.Response]) -> Script:
    async def script(body: Body, before: int) -> web.StreamResponse:
        hit = body["model"] == "support-cccccccc" and question_of(body)[1] == first_user_message(REGRESSION[0])
        return answer(body) if hit else await honest(body, before)

    return script


STAYING_AWAY: dict[str, Callable[[Body], web.Response]] = {
    "an engine error for one request": lambda body: web.Response(status=500),
    "a refusal of one request": lambda body: web.json_response({"error": {"message": "too long"}}, status=400),
    "a completion without choices": lambda body: web.json_response({"choices": []}),
    "a body that is no JSON": lambda body: web.Response(text="oops", content_type="application/json"),
    "a choice without token ids": lambda body: web.json_response(
        {"choices": [{"index": 0, "message": {"content": "Ben0"}, "finish_reason": "stop"}]}
    ),
}


@pytest.mark.parametrize("answer", STAYING_AWAY.values(), ids=STAYING_AWAY)
def test_a_reply_that_stays_missing_is_null_and_never_a_score(answer: Callable[[Body], web.Response], tmp_path: Path) -> None:
    with ChatEngine(MODELS, only_for_the_candidates_regression(answer)) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    row = next(row for row in rows(tmp_path) if row.item == REGRESSION[0].id)
    assert {row.scores["candidate"], row.tokens["candidate"], row.finishes["candidate"], row.texts["candidate"]} == {(None,)}
    assert row.scores["incumbent"] == (0,)


def test_an_engine_that_never_comes_up_is_a_backend_error(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="/health did not answer 200 within"):
        run(job(tmp_path, engine_url="http://127.0.0.1:9"), SOON)


def stop_when(engine: ChatEngine, stall: "Stall") -> None:
    stall.reached.wait(timeout=60)
    engine.stop()


class Stall:
    """Answers honestly up to a number of questions; every later one hangs."""

    def __init__(self, answered: int) -> None:
        self._left = answered
        self.reached = threading.Event()

    async def __call__(self, body: Body, before: int) -> web.StreamResponse:
        if self._left == 0:
            self.reached.set()
            await asyncio.sleep(3600)
        self._left -= 1
        return await honest(body, before)


def test_an_engine_that_goes_away_is_a_backend_error_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    stall = Stall(100)
    with ChatEngine(MODELS, stall) as engine:
        threading.Thread(target=stop_when, args=(engine, stall), daemon=True).start()
        with pytest.raises(BackendUnavailable, match="stopped answering"):
            run(job(tmp_path, engine_url=engine.url), SOON)
    assert not (tmp_path / FOLDER / "report.json").exists()
    assert_goes_on_without_asking_twice(tmp_path, answered=100)


def test_an_attempt_killed_half_way_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    stall = Stall(100)
    with ChatEngine(MODELS, stall) as engine:
        process = subprocess.Popen(COMMAND, env=job_environment(tmp_path, engine.url))
        assert stall.reached.wait(timeout=60)
        wait_for(lambda: journalled(tmp_path) == 100)
        process.kill()
        assert process.wait(timeout=30) == -signal.SIGKILL
    path = tmp_path / FOLDER / "partial.jsonl"
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines()[-1][:30])  # what a write cut off half-way leaves
    assert_goes_on_without_asking_twice(tmp_path, answered=100)


def test_an_attempt_told_to_stop_says_so_at_once_and_the_next_goes_on(tmp_path: Path) -> None:
    stall = Stall(100)
    with ChatEngine(MODELS, stall) as engine:
        process = subprocess.Popen(COMMAND, env=job_environment(tmp_path, engine.url))
        assert stall.reached.wait(timeout=60)
        wait_for(lambda: journalled(tmp_path) == 100)
        process.terminate()
        assert process.wait(timeout=10) == ExitCode.TERMINATED
    assert Termination.parse_json((tmp_path / "termination").read_bytes()).reason == "Terminated"
    assert_goes_on_without_asking_twice(tmp_path, answered=100)


def assert_goes_on_without_asking_twice(root: Path, answered: int) -> None:
    assert journalled(root) == answered
    with ChatEngine(MODELS, honest) as engine:
        result = run(job(root, engine_url=engine.url), SOON)
        assert engine.counts().total() == QUESTIONS - answered
        assert set(engine.counts().values()) == {1}
        write_suites(root / "whole")
        assert run(job(root / "whole", engine_url=engine.url), SOON) == result


COMMAND = [sys.executable, "-c", "import sys; from gatevalve_trainer.main import main; sys.exit(main(['evaluate']))"]


def job_environment(root: Path, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "GATEVALVE_JOB": job(root, engine_url=url).model_dump_json(by_alias=True, exclude_none=True),
        "GATEVALVE_TERMINATION_LOG": str(root / "termination"),
    }


def journalled(root: Path) -> int:
    """Whole answers in the journal; its first line is the head."""
    return (root / FOLDER / "partial.jsonl").read_bytes().count(b"\n") - 1


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_attempts_at_once_that_measure_differently_are_refused(tmp_path: Path) -> None:
    async def other(body: Body, before: int) -> web.StreamResponse:
        return completion(["The answer is 3."] * body["n"])

    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    (tmp_path / FOLDER / "report.json").unlink()
    with ChatEngine(MODELS, other) as engine, pytest.raises(ContractError, match="holds other evidence"):
        run(job(tmp_path, engine_url=engine.url), SOON)
    assert not (tmp_path / FOLDER / "report.json").exists()


def measured_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sealed area of the same test with the same names and digests, measured by somebody who does not hold the seal."""
    with monkeypatch.context() as patch, ChatEngine(MODELS, honest) as engine:
        patch.setenv("GATEVALVE_SEAL_SEED", bytes(32).hex())
        write_suites(root)
        run(job(root, engine_url=engine.url), SOON)
    return root / "sealed/channel-uid"


PLANTED = {
    "a whole sealed area": ["rounds/000003", "evidence/support-000007"],
    "evidence": ["evidence/support-000007"],
    "a round": ["rounds/000003"],
}


@pytest.mark.parametrize("parts", PLANTED.values(), ids=PLANTED)
def test_what_was_planted_before_the_run_is_refused_before_anything_is_asked(
    parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = measured_elsewhere(tmp_path / "elsewhere", monkeypatch)
    for part in parts:
        shutil.copytree(source / part, tmp_path / "sealed/channel-uid" / part)
    with ChatEngine(MODELS, honest) as engine:
        with pytest.raises(ContractError, match="was not written by an evaluation that holds this namespace's seal"):
            run(job(tmp_path, engine_url=engine.url), SOON)
        assert not engine.asked


def test_evidence_copied_from_another_candidates_test_is_refused(tmp_path: Path) -> None:
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url, test_entry="support-000005", candidate_uid="other"), SOON)
    shutil.copytree(tmp_path / "sealed/channel-uid/evidence/support-000005", tmp_path / FOLDER)
    with pytest.raises(ContractError, match="was made for another test"):
        run(job(tmp_path), SOON)


def quoting(status: int) -> Script:
    """An engine that quotes the prompt, as engines do in their errors."""

    async def script(body: Body, before: int) -> web.StreamResponse:
        return web.json_response({"error": {"message": str(body["messages"])}}, status=status, reason=f"bad {question_of(body)[1]}"[:60])

    return script


async def echo(body: Body, before: int) -> web.StreamResponse:
    return completion([question_of(body)[1]] * body["n"])


async def garbled(body: Body, before: int) -> web.StreamResponse:
    return web.Response(text=question_of(body)[1], content_type="application/json")


async def hang_up(body: Body, before: int) -> web.StreamResponse:
    raise asyncio.CancelledError(question_of(body)[1])


TALKATIVE: dict[str, Script] = {
    "replies with the prompt": echo,
    "refuses with the prompt": quoting(400),
    "fails with the prompt": quoting(500),
    "answers with the prompt in place of JSON": garbled,
    "hangs up": hang_up,
}


@pytest.mark.parametrize("script", TALKATIVE.values(), ids=TALKATIVE)
def test_nothing_of_a_sealed_item_leaves_the_pod_when_the_engine(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with ChatEngine(MODELS, script) as engine:
        said = said_by_the_job(tmp_path, engine.url, monkeypatch, capfd)
    assert_says_only_counts(said, tmp_path)


def said_by_the_job(root: Path, url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """Everything of an evaluation that leaves its Pod: its log and its termination message."""
    for name, value in job_environment(root, url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("gatevalve_trainer.evaluate.main.Patience", lambda: SOON)
    write_termination(run_step("evaluate"))
    return "".join(capfd.readouterr()) + (root / "termination").read_text()


def test_nothing_of_a_sealed_item_leaves_the_pod_when_a_verifier_breaks_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(task: object, item: object, replies: object) -> object:
        raise RuntimeError(f"cannot score {item}")

    monkeypatch.setattr("gatevalve_trainer.evaluate.answering.verified", broken)
    with ChatEngine(MODELS, honest) as engine:
        said = said_by_the_job(tmp_path, engine.url, monkeypatch, capfd)
    assert '"reason":"RuntimeError"' in said
    assert_says_only_counts(said, tmp_path)


WRONG_INPUTS: dict[str, tuple[dict[str, object], str]] = {
    "an arm that the engine does not serve": (
        {"arms": {"candidate": "x", "incumbent": "tiny-words", "anchor": "tiny-words"}},
        "does not serve x",
    ),
    "a policy with another digest than the test's": ({"policy_digest": sha256(b"other")}, "policy: has digest"),
    "arms that are not the three": ({"arms": {"candidate": "tiny-words"}}, "name exactly"),
}


@pytest.mark.parametrize(("changes", "says"), WRONG_INPUTS.values(), ids=WRONG_INPUTS)
def test_a_wrong_input_is_a_contract_error_before_anything_is_asked(changes: dict[str, object], says: str, tmp_path: Path) -> None:
    with ChatEngine(MODELS, honest) as engine:
        with pytest.raises(ContractError, match=says):
            run(job(tmp_path, engine_url=engine.url, **changes), SOON)
        assert not engine.asked


def test_a_fixed_suite_with_other_bytes_names_the_suite_before_anything_is_asked(tmp_path: Path) -> None:
    write_suites(tmp_path, manners=MANNERS[1:])
    with ChatEngine(MODELS, honest) as engine:
        with pytest.raises(ContractError, match=r"suite manners\.items\.digest"):
            run(job(tmp_path, engine_url=engine.url), SOON)
        assert not engine.asked
