from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item
from gatevalve_trainer.evaluate.answers import answer_of
from gatevalve_trainer.evaluate.engine import Replies, Reply, Unusable, replies_of, request_body
from gatevalve_trainer.evaluate.progress import Progress
from gatevalve_trainer.evaluate.schedule import Question, arm_models, questions
from gatevalve_trainer.evaluate.suites import Keys, load_suites
from gatevalve_trainer.store import Area
from gatevalve_trainer.tasks import exact_match
from gatevalve_trainer.tasks.plugin import Task, single_turn
from support.evaluation import SEAL, SPLIT, job, policy, write_suites

ARMS = {"candidate": "c", "incumbent": "i", "anchor": "base"}
GUARD = policy().suites[1]
ITEM = single_turn("Last of: Ann Ben", "Ben")
QUESTION = Question(GUARD, ITEM, "candidate", "c", 7)


def asked(root: Path, **arms: str) -> list[tuple[str, str, str]]:
    write_suites(root)
    work = job(root, arms=ARMS | arms)
    suites = load_suites(work, Area(work.data), Area(work.sealed), Keys(SEAL, SPLIT))
    return [(question.item.id, question.arm, question.model) for question in questions(work, suites)]


def test_every_item_is_asked_of_every_arm_before_the_next_item(tmp_path: Path) -> None:
    found = asked(tmp_path)
    assert len(found) == 3 * (40 + 30 + 10)
    for start in range(0, len(found), 3):
        assert [(arm, model) for _, arm, model in found[start : start + 3]] == [("candidate", "c"), ("incumbent", "i"), ("anchor", "base")]
        assert len({item for item, _, _ in found[start : start + 3]}) == 1


SHARED = {
    "an anchor that is the incumbent is not asked again": ({"anchor": "i"}, ["candidate", "incumbent"]),
    "a candidate that is the incumbent's model is asked itself": ({"candidate": "i"}, ["candidate", "incumbent", "anchor"]),
    "a candidate that is the anchor's model is asked itself": ({"candidate": "base"}, ["candidate", "incumbent", "anchor"]),
}


@pytest.mark.parametrize(("arms", "speakers"), SHARED.values(), ids=SHARED)
def test_only_incumbent_and_anchor_share_answers(arms: dict[str, str], speakers: list[str], tmp_path: Path) -> None:
    assert [arm for _, arm, _ in asked(tmp_path, **arms)[: len(speakers)]] == speakers
    assert len(asked(tmp_path, **arms)) == 80 * len(speakers)


WRONG_ARMS = {"an arm too few": {"candidate": "c", "incumbent": "i"}, "an arm too many": ARMS | {"judge": "j"}, "no arm": {}}


@pytest.mark.parametrize("arms", WRONG_ARMS.values(), ids=WRONG_ARMS)
def test_exactly_three_arms_are_named(arms: dict[str, str]) -> None:
    with pytest.raises(ContractError, match="name exactly candidate, incumbent, anchor"):
        arm_models(arms)


def test_a_request_asks_for_all_decodes_and_switches_every_filter_off() -> None:
    assert request_body(QUESTION) == {
        "model": "c",
        "messages": [{"role": "user", "content": "Last of: Ann Ben"}],
        "n": 1,
        "temperature": 0.0,
        "max_tokens": 48,
        "seed": 7,
        "return_token_ids": True,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "repetition_penalty": 1,
    }


def choice(index: int, **changes: Any) -> dict[str, Any]:
    return {"index": index, "message": {"content": f"text {index}"}, "token_ids": [1, 2], "finish_reason": "stop"} | changes


def test_decodes_are_taken_in_the_order_of_their_index() -> None:
    found = replies_of({"choices": [choice(1), choice(0, finish_reason="length", token_ids=[])]}, 2)
    assert found == (Reply("text 0", 0, "length"), Reply("text 1", 2, "stop"))


UNUSABLE: dict[str, Any] = {
    "no choices": {},
    "an error object": {"error": {"message": "no"}},
    "a list": [],
    "nothing": None,
    "too few choices": {"choices": [choice(0)]},
    "too many choices": {"choices": [choice(0), choice(1), choice(2)]},
    "a choice twice": {"choices": [choice(0), choice(0)]},
    "a choice twice beside the right ones": {"choices": [choice(0), choice(1), choice(1)]},
    "a choice without text": {"choices": [choice(0), choice(1, message={"content": None})]},
    "a choice without token ids": {"choices": [choice(0), choice(1, token_ids=None)]},
    "a choice whose token ids are text": {"choices": [choice(0), choice(1, token_ids="12")]},
    "a choice whose end is a number": {"choices": [choice(0), choice(1, finish_reason=3)]},
    "a choice without an index": {"choices": [choice(0), {"message": {"content": "x"}, "token_ids": [], "finish_reason": "stop"}]},
}


@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE)
def test_a_completion_that_is_not_the_decodes_asked_for_is_unusable(body: Any) -> None:
    with pytest.raises(Unusable):
        replies_of(body, 2)


def boom(item: Item, text: str) -> float:
    raise RuntimeError("boom")


RIGHT, WRONG = Reply("Ben", 3, "stop"), Reply("Ann", 4, "length")
SCORED: dict[str, tuple[Replies, Task | None, tuple[Any, ...], tuple[Any, ...]]] = {
    "right and wrong": ((RIGHT, WRONG), exact_match.TASK, (1_000_000, 0), (3, 4)),
    "a missing reply is missing everywhere": ((None, RIGHT), exact_match.TASK, (None, 1_000_000), (None, 3)),
    "a verifier that raises makes a missing answer, not a 0": ((RIGHT,), Task("t", boom), (None,), (None,)),
    "parts of a point are millionths": ((RIGHT,), Task("t", lambda item, text: 1 / 3), (333_333,), (3,)),
    "without a verifier only form is kept": ((RIGHT, None), None, (None, None), (3, None)),
}


@pytest.mark.parametrize(("replies", "task", "scores", "tokens"), SCORED.values(), ids=SCORED)
def test_replies_become_scores_and_lengths(replies: Replies, task: Task | None, scores: tuple[Any, ...], tokens: tuple[Any, ...]) -> None:
    answer = answer_of(QUESTION, replies, task)
    assert (answer.scores, answer.tokens) == (scores, tokens)
    present = [count is not None for count in tokens]
    assert [finish is not None for finish in answer.finishes] == [text is not None for text in answer.texts] == present
    assert answer.missing == present.count(False)


def test_texts_are_kept_as_digests_only() -> None:
    assert answer_of(QUESTION, (RIGHT,), exact_match.TASK).texts == (sha256(b"Ben"),)


def test_progress_reports_every_five_seconds_at_the_rate_of_this_attempt() -> None:
    clock = iter([100.0, 104.0, 106.0, 106.0, 107.0, 110.0])
    progress = Progress(total=100, done=40, clock=lambda: next(clock))
    for _ in range(20):
        progress.count(missing=0)
    progress.count(missing=2)
    assert [progress.due(), progress.due(), progress.due()] == [False, True, False]
    assert progress.facts() == {"answers": 61, "of": 100, "resumed": 40, "missing_decodes": 2, "per_second": 2.1, "seconds_left": 19}
