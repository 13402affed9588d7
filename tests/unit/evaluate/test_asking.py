from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item, Likelihood, Progress
from gatevalve.contracts.policy import Judge
from gatevalve_trainer.evaluate.answers import behaviour_answer, scored_answer, verified
from gatevalve_trainer.evaluate.engine import Replies, Reply, Unusable, chat_body, logprobs_of, replies_of, scoring_body
from gatevalve_trainer.evaluate.progress import Pace
from gatevalve_trainer.evaluate.rounds import Areas, Keys
from gatevalve_trainer.evaluate.schedule import Question, arm_models, units
from gatevalve_trainer.evaluate.style import style_of
from gatevalve_trainer.evaluate.suites import load_suites
from gatevalve_trainer.tasks import exact_match
from gatevalve_trainer.tasks.plugin import Task, single_turn
from support.evaluation import SEAL, SPLIT, job, policy, write_suites

ARMS = {"candidate": "c", "incumbent": "i", "anchor": "base"}
GUARD = policy().suites[1]
ITEM = single_turn("Last of: Ann Ben", "Ben")
WEIGHED = Likelihood(candidate=-1, incumbent=-2, anchor=-3, k3_incumbent=1, k3_anchor=2)
QUESTION = Question(GUARD, ITEM, "candidate", "c", 7)


def asked(root: Path, **arms: str) -> list[tuple[str, str, str]]:
    write_suites(root)
    work = job(root, arms=ARMS | arms)
    suites = load_suites(work, Areas.of(work), Keys(SEAL, SPLIT))
    return [(question.item.id, question.arm, question.model) for unit in units(work, suites) for question in unit]


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


def test_the_screen_is_asked_of_candidate_and_incumbent_only(tmp_path: Path) -> None:
    write_suites(tmp_path)
    work = job(tmp_path, arms=ARMS, policy=policy(futility={"items": 20, "alphaBasisPoints": 5000}))
    found = [unit[0] for unit in units(work, load_suites(work, Areas.of(work), Keys(SEAL, SPLIT)))]
    assert {question.arm for question in found if question.suite.name == "screen"} == {"candidate", "incumbent"}
    assert found[0].suite.name == "screen"


def test_all_arms_of_an_item_that_a_judge_compares_are_one_unit(tmp_path: Path) -> None:
    write_suites(tmp_path)
    work = job(tmp_path, arms=ARMS)
    judge = {"url": "http://judge", "model": "m", "canaries": {"uri": "suites/canaries.jsonl", "digest": sha256(b"")}}
    judged = GUARD.model_copy(update={"verifier": None, "judge": Judge.parse(judge)})
    loaded = [replace(each, suite=judged) for each in load_suites(work, Areas.of(work), Keys(SEAL, SPLIT)) if each.suite == GUARD]
    found = list(units(work, loaded))
    assert len(found) == 30
    assert [[question.arm for question in unit] for unit in found] == [["candidate", "incumbent", "anchor"]] * 30
    assert all(len({question.item.id for question in unit}) == 1 for unit in found)


WRONG_ARMS = {"an arm too few": {"candidate": "c", "incumbent": "i"}, "an arm too many": ARMS | {"judge": "j"}, "no arm": {}}


@pytest.mark.parametrize("arms", WRONG_ARMS.values(), ids=WRONG_ARMS)
def test_exactly_three_arms_are_named(arms: dict[str, str]) -> None:
    with pytest.raises(ContractError, match="name exactly candidate, incumbent, anchor"):
        arm_models(arms)


def test_a_request_asks_for_all_decodes_and_switches_every_filter_off() -> None:
    assert chat_body(QUESTION) == {
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
    found = replies_of({"prompt_token_ids": [7, 8], "choices": [choice(1), choice(0, finish_reason="length", token_ids=[])]}, 2)
    assert found == (Reply("text 0", "length", (7, 8), ()), Reply("text 1", "stop", (7, 8), (1, 2)))


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
    "no token ids of the prompt": {"prompt_token_ids": None, "choices": [choice(0), choice(1)]},
    "a choice whose token ids are no numbers": {"choices": [choice(0), choice(1, token_ids=["1"])]},
    "a choice without an index": {"choices": [choice(0), {"message": {"content": "x"}, "token_ids": [], "finish_reason": "stop"}]},
}


@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE)
def test_a_completion_that_is_not_the_decodes_asked_for_is_unusable(body: Any) -> None:
    whole = {"prompt_token_ids": [7], **body} if isinstance(body, dict) else body
    with pytest.raises(Unusable):
        replies_of(whole, 2)


def boom(item: Item, text: str) -> float:
    raise RuntimeError("boom")


RIGHT, WRONG = Reply("Ben", "stop", (7, 8), (1, 2, 3)), Reply("Ann", "length", (7, 8), (1, 2, 3, 4))
SCORED: dict[str, tuple[Replies, Task, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]] = {
    "right and wrong": ((RIGHT, WRONG), exact_match.TASK, (1_000_000, 0), (3, 4), (None, None)),
    "a missing reply is missing everywhere": ((None, RIGHT), exact_match.TASK, (None, 1_000_000), (None, 3), ("Engine", None)),
    "a verifier that raises makes a missing answer, not a 0": ((RIGHT,), Task("t", boom), (None,), (None,), ("Verifier",)),
    "parts of a point are millionths": ((RIGHT,), Task("t", lambda item, text: 1 / 3), (333_333,), (3,), (None,)),
}


@pytest.mark.parametrize(("replies", "task", "scores", "tokens", "failures"), SCORED.values(), ids=SCORED)
def test_replies_become_scores_lengths_and_failures(
    replies: Replies, task: Task, scores: tuple[Any, ...], tokens: tuple[Any, ...], failures: tuple[Any, ...]
) -> None:
    answer = scored_answer(QUESTION, replies, verified(task, ITEM, replies))
    assert (answer.scores, answer.tokens, answer.failures) == (scores, tokens, failures)
    present = [count is not None for count in tokens]
    assert [finish is not None for finish in answer.finishes] == [text is not None for text in answer.texts] == present
    assert (answer.missing, answer.styles, answer.likelihoods) == (present.count(False), None, None)


def test_of_a_behaviour_suite_only_form_is_kept() -> None:
    answer = behaviour_answer(QUESTION, (RIGHT, None), (WEIGHED, None))
    assert (answer.scores, answer.tokens, answer.failures, answer.missing) == ((None, None), (3, None), (None, "Engine"), 1)
    assert (answer.styles, answer.likelihoods) == ((style_of("Ben", (1, 2, 3)), None), (WEIGHED, None))


def test_a_reply_is_weighed_as_the_end_of_its_prompt_without_sampling() -> None:
    body = {"model": "i", "prompt": [7, 8, 1, 2, 3], "prompt_logprobs": 0, "max_tokens": 1, "temperature": 0}
    assert scoring_body("i", RIGHT) == body


def weights(*values: float) -> dict[str, Any]:
    rows = [None, {"8": {"logprob": -9.0}}, *({str(token): {"logprob": value}} for token, value in enumerate(values, start=1))]
    return {"choices": [{"prompt_logprobs": rows}]}


def test_log_probabilities_are_those_of_the_replys_own_tokens() -> None:
    assert logprobs_of(weights(-0.5, -0.25, 0.0), RIGHT) == (-0.5, -0.25, 0.0)


NO_WEIGHTS: dict[str, Any] = {
    "an error object": {"error": {"message": "no"}},
    "nothing": None,
    "no choice": {"choices": []},
    "no log-probabilities": {"choices": [{"prompt_logprobs": None}]},
    "one too few": weights(-0.5, -0.25),
    "one too many": weights(-0.5, -0.25, -0.5, -0.5),
    "another token than the reply's": {"choices": [{"prompt_logprobs": [None, *({"5": {"logprob": -1.0}} for _ in range(4))]}]},
    "one that is no number": weights(-0.5, float("nan"), -0.5),
    "one that is infinite": weights(-0.5, float("-inf"), -0.5),
    "one above 0": weights(-0.5, 0.25, -0.5),
}


@pytest.mark.parametrize("body", NO_WEIGHTS.values(), ids=NO_WEIGHTS)
def test_a_completion_without_a_sound_log_probability_a_token_is_unusable(body: Any) -> None:
    with pytest.raises(Unusable):
        logprobs_of(body, RIGHT)


def test_texts_are_kept_as_digests_only() -> None:
    assert scored_answer(QUESTION, (RIGHT,), (0,)).texts == (sha256(b"Ben"),)


def test_progress_is_told_every_five_seconds_at_the_rate_of_this_attempt() -> None:
    clock = iter([100.0, 104.0, 106.0, 106.0, 107.0, 110.0])
    told: list[Progress] = []
    pace = Pace(total=140, done=40, tell=told.append, clock=lambda: next(clock))
    pace.taken_over(40)
    for _ in range(20):
        pace.count()
    pace.count()
    assert [pace.due(), pace.due(), pace.due()] == [False, True, False]
    pace.report()
    assert told == [Progress(answered=101, of=140, per_second="2.1", seconds_left=19)]
