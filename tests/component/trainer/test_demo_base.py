"""The scripts that made the demo's base model and its fixed suites."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.tasks import exact_match, short_answers, word_problems
from gatevalve_trainer.tasks.plugin import first_user_message
from support.sampler import sample

pytestmark = pytest.mark.component

ROOT = Path(__file__).parents[3]


def run_module(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def test_the_committed_suites_are_made_by_their_script_byte_for_byte() -> None:
    ended = run_module("demo.suites.make", "--check")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_suites_hold_600_questions_and_60_problems_without_answers() -> None:
    regression = from_lines("regression", (ROOT / "demo/suites/regression.jsonl").read_bytes())
    assert (len(regression), {item.kind for item in regression}) == (600, set(short_answers.KINDS))
    assert all(exact_match.verify(item, item.answer or "") == 1 for item in regression)
    manners = from_lines("manners", (ROOT / "demo/suites/manners.jsonl").read_bytes())
    assert (len(manners), {item.kind for item in manners}, {item.answer for item in manners}) == (60, set(word_problems.KINDS), {None})
    assert not any(word_problems.is_held_out(first_user_message(item)) for item in manners)


def test_a_few_steps_of_pretraining_give_a_model_that_loads_and_speaks(tmp_path: Path) -> None:
    ended = run_module("demo.base.pretrain", "--out", str(tmp_path), "--documents", "100")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "tokenizer_config.json").read_text() == (ROOT / "demo/base/tiny-words/tokenizer_config.json").read_text()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert str(model.dtype) == "torch.bfloat16"
    assert len(sample(model, tokenizer, ["Sort: 3 1 2"], 0, max_tokens=4, seed=0)[0][0].token_ids) > 0
