"""The committed demo base, asked by the sampler that trainer tests use: both must work, or every learning test measures noise."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from gatevalve.contracts.files import Item
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.tasks import exact_match, word_problems
from gatevalve_trainer.tasks.plugin import Task, first_user_message
from support.sampler import Reply, prompt_ids, sample

pytestmark = pytest.mark.component

DEMO = Path(__file__).parents[3] / "demo"
Base = tuple[PreTrainedModel, PreTrainedTokenizerBase]


@pytest.fixture(scope="module")
def base() -> Base:
    torch.set_num_threads(1)
    folder = DEMO / "base" / "tiny-words"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def accuracy(base: Base, task: Task, items: tuple[Item, ...], temperature: float) -> float:
    replies = sample(*base, list(map(first_user_message, items)), temperature, max_tokens=48, seed=3)
    return sum(task.verify(item, each[0].text) for item, each in zip(items, replies, strict=True)) / len(items)


def test_the_base_answers_at_least_35_in_100_word_problems(base: Base) -> None:
    """A cache handed over under a name that forward() swallows leaves about 1 in 100 right."""
    assert accuracy(base, word_problems.TASK, word_problems.held_out(480, seed=2), temperature=1.0) >= 0.35


def test_the_base_answers_at_least_98_in_100_questions_of_the_regression_suite(base: Base) -> None:
    items = from_lines("regression", (DEMO / "suites" / "regression.jsonl").read_bytes())
    assert accuracy(base, exact_match.TASK, items, temperature=0) >= 0.98


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_log_probabilities_sampled_with_the_cache_are_those_of_one_full_pass(base: Base, temperature: float) -> None:
    prompts = [first_user_message(item) for item in word_problems.stream(12, seed=4)]
    for prompt, (reply,) in zip(prompts, sample(*base, prompts, temperature, max_tokens=48, seed=5), strict=True):
        assert reply.logprobs == pytest.approx(full_pass(base, prompt, reply, temperature or 1.0), abs=1e-4)


def full_pass(base: Base, prompt: str, reply: Reply, temperature: float) -> list[float]:
    model, tokenizer = base
    ids = prompt_ids(tokenizer, prompt)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids + reply.token_ids])).logits[0, len(ids) - 1 : -1]
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return [float(row[token]) for row, token in zip(logprobs, reply.token_ids, strict=True)]


def test_a_seed_repeats_its_replies_and_n_gives_that_many_a_prompt(base: Base) -> None:
    prompts = [first_user_message(item) for item in word_problems.stream(12, seed=4)]
    first = sample(*base, prompts, 1.0, max_tokens=48, seed=6, n=3)
    assert [len(replies) for replies in first] == [3] * 12
    assert first == sample(*base, prompts, 1.0, max_tokens=48, seed=6, n=3)
    assert first != sample(*base, prompts, 1.0, max_tokens=48, seed=7, n=3)


def test_a_reply_that_reaches_the_limit_is_unfinished(base: Base) -> None:
    (reply,) = sample(*base, ["Ann has 5 boxes with 8 coins each. How many coins in all?"], 0, max_tokens=2, seed=0)[0]
    assert (reply.finished, len(reply.token_ids), len(reply.logprobs)) == (False, 2, 2)
