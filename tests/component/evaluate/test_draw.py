"""The draw Job as its container runs it: a process, its exit code, its termination message, and what it leaves in the sealed area."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.files import RoundManifest
from gatevalve.contracts.jobs import DrawInput
from gatevalve.contracts.names import ENV_SEAL_SEED, ENV_SPLIT_KEY, adapter_dir
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve_trainer.evaluate.rounds import Areas, Keys
from gatevalve_trainer.evaluate.suites import load_suites
from gatevalve_trainer.split import split_side
from gatevalve_trainer.tasks import word_problems
from gatevalve_trainer.tasks.plugin import first_user_message
from support import evaluation, training
from support.evaluation import SEAL, SPLIT
from support.made_adapters import made_adapter
from support.training import Ended, run_trainer, trainer_environment

Change = Callable[[dict[str, Any]], None]
ROUND = "sealed/channel-uid/rounds/000003"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_SEAL_SEED, SEAL.hex())
    monkeypatch.setattr(training, "SPLIT_KEY", SPLIT)


def job_of(root: Path, policy: GatePolicySpec) -> dict[str, Any]:
    told = evaluation.job(root, policy=policy).model_dump() | {"incumbent_digest": None}
    return {name: told[name] for name in DrawInput.model_fields}


def draw(root: Path, change: Change = lambda spec: None) -> Ended:
    spec = evaluation.policy().wire()
    change(spec)
    return run_trainer("draw", DrawInput, root, job_of(root, GatePolicySpec.parse(spec)))


def test_0_a_round_is_drawn_once_verified_after_and_is_what_the_evaluation_asks(tmp_path: Path) -> None:
    evaluation.write_suites(tmp_path)
    first, second = draw(tmp_path), draw(tmp_path)
    assert (first.code, second.code) == (0, 0)
    assert [ended.said.round and (ended.said.round.round, ended.said.round.items) for ended in (first, second)] == [(3, 40), (3, 40)]
    assert ("round drawn" in first.log, "round drawn" in second.log) == (True, False)
    job, before = evaluation.job(tmp_path), (tmp_path / ROUND / "MANIFEST.json").read_bytes()
    suites = load_suites(job, Areas.of(job), Keys(SEAL, SPLIT))
    assert [(suite.suite.name, len(suite.items)) for suite in suites] == [("target", 40), ("regression", 30), ("manners", 10)]
    assert (tmp_path / ROUND / "MANIFEST.json").read_bytes() == before


def test_0_a_round_that_was_deleted_is_drawn_again_to_the_byte(tmp_path: Path) -> None:
    evaluation.write_suites(tmp_path)
    draw(tmp_path)
    files = {path.name: path.read_bytes() for path in (tmp_path / ROUND).iterdir()}
    for path in (tmp_path / ROUND).iterdir():
        path.unlink()
    (tmp_path / ROUND).rmdir()
    assert draw(tmp_path).code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / ROUND).iterdir()} == files


def test_0_draws_at_the_same_time_leave_one_round(tmp_path: Path) -> None:
    evaluation.write_suites(tmp_path)
    environment = trainer_environment(tmp_path, job_of(tmp_path, evaluation.policy()), DrawInput)
    command = [sys.executable, "-m", "gatevalve_trainer.main", "draw"]
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert [path.name for path in (tmp_path / ROUND).parent.iterdir()] == ["000003"]
    RoundManifest.parse_json((tmp_path / ROUND / "MANIFEST.json").read_bytes())


JUDGE = {"url": "https://judge.example/v1", "model": "tiny-words", "canaries": {"uri": "suites/canaries.jsonl", "digest": evaluation.TEST}}


def _judged(model: str) -> Change:
    def change(spec: dict[str, Any]) -> None:
        del spec["suites"][1]["verifier"]
        spec["suites"][1]["judge"] = JUDGE | {"model": model}

    return change


def _item_source(**items: Any) -> Change:
    return lambda spec: spec["suites"][1].update(items=items)


def _suite(index: int, **fields: Any) -> Change:
    return lambda spec: spec["suites"][index].update(fields)


BROKEN: dict[str, tuple[Change, str]] = {
    "a misspelt verifier": (_suite(1, verifier="exact-macth"), "task exact-macth: is not installed in the trainer image"),
    "a misspelt generator": (_suite(0, items={"generator": "word-problms", "count": 40}), "task word-problms: is not installed"),
    "a task that generates nothing": (_suite(0, items={"generator": "exact-match", "count": 40}), "task exact-match: generates no items"),
    "a fixed file that is not there": (_item_source(uri="suites/none.jsonl", digest=evaluation.TEST), "suite regression.items.uri: "),
    "a fixed file with other bytes": (
        _item_source(uri="suites/regression.jsonl", digest=evaluation.TEST),
        "suite regression.items.digest: suites/regression.jsonl has digest",
    ),
    "a judge that is what it judges": (_judged("tiny-words"), "suite regression.judge.model: tiny-words is what is judged"),
    "a judge without canaries": (_judged("judge"), "suite regression.judge.canaries.uri: "),
    "captured items for a task without a reference": (
        _suite(0, items={"traffic": {"min": 30}}, verifier="exact-match"),
        "suite target.items.traffic: task exact-match has no reference",
    ),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_10_a_policy_that_names(sentence: str, tmp_path: Path) -> None:
    change, says = BROKEN[sentence]
    evaluation.write_suites(tmp_path)
    ended = draw(tmp_path, change)
    assert (ended.code, ended.said.exit_code, ended.said.reason) == (10, 10, "ContractError")
    assert ended.said.message.startswith(says)


def test_10_a_round_that_was_planted(tmp_path: Path) -> None:
    evaluation.write_suites(tmp_path)
    draw(tmp_path)
    path = tmp_path / ROUND / "MANIFEST.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"mark": "0" * 64}))
    ended = draw(tmp_path)
    assert ended.code == 10
    assert "000003/MANIFEST.json: was not written by an evaluation that holds this namespace's seal" in ended.said.message


ARMS = {"incumbent_digest": "incumbentDigest", "anchor_digest": "anchorDigest"}
SPOILT: dict[str, Callable[[Path], object]] = {
    "gone": shutil.rmtree,
    "without its weights": lambda directory: (directory / "adapter_model.safetensors").unlink(),
    "with other weights": lambda directory: (directory / "adapter_model.safetensors").write_bytes(b"other"),
}


def draw_against(root: Path, **arms: str) -> Ended:
    """A drawing for a candidate of the tiny base that will be measured against these arms."""
    evaluation.write_suites(root)
    return run_trainer("draw", DrawInput, root, job_of(root, evaluation.policy()) | {"base": training.tiny_base()} | arms)


def published(root: Path) -> tuple[str, Path]:
    """A published adapter of the tiny base: its digest and its directory."""
    made = root / "made"
    digest = made_adapter(made)
    directory = root / "data" / adapter_dir("channel-uid", digest)
    directory.parent.mkdir(parents=True)
    return digest, made.rename(directory)


def test_0_the_arms_are_sound(tmp_path: Path) -> None:
    digest, _ = published(tmp_path)
    assert draw_against(tmp_path, **dict.fromkeys(ARMS, digest)).code == 0


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("arm", ARMS)
def test_10_an_arm_that_is(arm: str, spoilt: str, tmp_path: Path) -> None:
    digest, directory = published(tmp_path)
    SPOILT[spoilt](directory)
    ended = draw_against(tmp_path, **{arm: digest})
    assert (ended.code, ended.said.exit_code, ended.said.reason) == (10, 10, "ContractError")
    assert ended.said.message.startswith(f"{ARMS[arm]}: the published adapter is not sound (")
    assert "find out who wrote to it, and restore it, or " in ended.said.message
    assert not (tmp_path / ROUND).exists()


def test_10_without_the_seals_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_SEAL_SEED)
    assert draw(tmp_path).said.message.startswith(ENV_SEAL_SEED)
    monkeypatch.setenv(ENV_SEAL_SEED, SEAL.hex())
    monkeypatch.setattr(training, "SPLIT_KEY", b"")
    assert draw(tmp_path).said.message.startswith(ENV_SPLIT_KEY)


def test_16_too_few_captured_conversations_and_enough_after_more_traffic(tmp_path: Path) -> None:
    evaluation.write_suites(tmp_path)
    captured = _suite(0, items={"traffic": {"min": 30}})
    prompts = [first_user_message(item) for item in word_problems.stream(700, seed=1)]
    sealed = [prompt for prompt in prompts if split_side(SPLIT, prompt) == "sealed"]
    capture(tmp_path, prompts[:200], "pod-0-b1-0.jsonl.zst")
    known = sum(prompt in prompts[:200] for prompt in sealed)
    ended = draw(tmp_path, captured)
    assert (ended.code, ended.said.exit_code, ended.said.reason, ended.said.round) == (16, 16, "ItemSupply", None)
    assert f"suite target: {known} fresh conversations of the sealed side" in ended.said.message
    assert "30 are needed" in ended.said.message
    assert not any(prompt in ended.log + ended.said.message for prompt in prompts)
    assert not (tmp_path / ROUND).exists()
    capture(tmp_path, prompts, "pod-0-b1-1.jsonl.zst")
    again = draw(tmp_path, captured)
    assert (again.code, again.said.round and again.said.round.items) == (0, 30)
    assert not any(prompt in again.log for prompt in prompts)


def capture(root: Path, prompts: list[str], name: str) -> None:
    told = (training.reply(number, messages=[{"role": "user", "content": prompt}]) for number, prompt in enumerate(prompts))
    training.write_segment(root / "data", told, name=name)
