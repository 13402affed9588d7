"""Records made from replies, whole or streamed."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve.contracts.files import TrafficRecord
from gatevalve.contracts.kinds import Capture
from gatevalve_serving.generation import Job, Route, job
from gatevalve_serving.routes import ChannelRoutes, Target
from gatevalve_serving.tally import Incomplete, Tally, records

DIGEST = "sha256:" + "1" * 64
AT = "2026-01-02T03:04:05.000006Z"


def work(route: Route, **asked: Any) -> Job:
    routes = ChannelRoutes("support", "u", "support", DIGEST, Capture(), (), (Target("support-000001", "a", DIGEST, 100),))
    return job(route, routes, "id", {"model": "support", **asked}, True)


def made(done: Job, *payloads: dict[str, Any], defaults: dict[str, Any] | None = None) -> list[TrafficRecord]:
    tally = Tally()
    for payload in payloads:
        tally.add(payload)
    return list(records(done, tally, AT, defaults or {}, True))


def chat_choice(index: int, tokens: list[int], text: str, finish: str | None = "stop") -> dict[str, Any]:
    logprobs = {"content": [{"token": "x", "logprob": -0.5 * token} for token in tokens]}
    return {"index": index, "message": {"content": text}, "token_ids": tokens, "logprobs": logprobs, "finish_reason": finish}


def test_a_chat_gives_one_record_for_each_choice() -> None:
    reply = {"id": "chatcmpl-1", "prompt_token_ids": [1, 2], "choices": [chat_choice(0, [3, 4], "ab"), chat_choice(1, [5], "c")]}
    first, second = made(work("chat", messages=[{"role": "user", "content": "hi"}], n=2, seed=7, max_tokens=9), reply)
    assert (first.id, first.choice, first.entry, first.adapter_digest, first.at) == ("chatcmpl-1", 0, "support-000001", DIGEST, AT)
    assert (first.prompt_token_ids, first.token_ids, first.logprobs, first.text) == ([1, 2], [3, 4], [-1.5, -2.0], "ab")
    assert (first.messages, first.seed, first.max_tokens, first.exact) == ([{"role": "user", "content": "hi"}], 7, 9, True)
    assert (second.choice, second.token_ids, second.text) == (1, [5], "c")


def test_a_stream_adds_up_to_the_same_record() -> None:
    def part(tokens: list[int], text: str, finish: str | None) -> dict[str, Any]:
        choice = chat_choice(0, tokens, "", finish)
        return {"id": "chatcmpl-1", "choices": [choice | {"delta": {"content": text}, "message": None}]}

    opening = {"id": "chatcmpl-1", "prompt_token_ids": [1, 2], "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    usage = {"id": "chatcmpl-1", "choices": [], "usage": {}}
    streamed = made(work("chat", messages=[]), opening, part([3], "a", None), part([], "b", None), part([4], "", "stop"), usage)
    whole = made(work("chat", messages=[]), {"id": "chatcmpl-1", "prompt_token_ids": [1, 2], "choices": [chat_choice(0, [3, 4], "ab")]})
    assert streamed == whole


def test_completions_of_several_prompts_keep_their_own_prompt() -> None:
    def choice(index: int) -> dict[str, Any]:
        prompt = [10 + index // 2]
        logprobs = {"token_logprobs": [-1.0]}
        return {"index": index, "text": "t", "prompt_token_ids": prompt, "token_ids": [9], "logprobs": logprobs, "finish_reason": "length"}

    found = made(work("completions", prompt=["one", "two"], n=2), {"id": "cmpl-1", "choices": [choice(index) for index in range(4)]})
    assert [(record.prompt, record.prompt_token_ids) for record in found] == [("one", [10]), ("one", [10]), ("two", [11]), ("two", [11])]


@pytest.mark.parametrize(
    ("route", "kept"), [("chat", ([{"role": "user", "content": "m"}], None)), ("completions", (None, "p"))], ids=["chat", "completions"]
)
def test_only_what_the_engine_answered_is_recorded(route: Route, kept: tuple[Any, ...]) -> None:
    choice = GOOD if route == "chat" else GOOD | {"text": "a", "logprobs": {"token_logprobs": [-1.0]}}
    both = work(route, messages=[{"role": "user", "content": "m"}], prompt="p")
    (record,) = made(both, {"id": "1", "prompt_token_ids": [1], "choices": [choice]})
    assert (record.messages, record.prompt) == kept


def test_sampling_outside_the_learning_slice_is_recorded_as_the_engine_had_it() -> None:
    outside = work("chat", messages=[], temperature=0)
    (record,) = made(outside, {"id": "1", "prompt_token_ids": [1], "choices": [chat_choice(0, [3], "a")]}, defaults={"top_p": 0.9})
    assert (record.temperature, record.top_p, record.exact) == (0.0, 0.9, False)


def test_logits_in_the_place_of_log_probabilities_are_never_exact() -> None:
    tally = Tally()
    tally.add({"id": "1", "prompt_token_ids": [1], "choices": [chat_choice(0, [3], "a")]})
    (record,) = records(work("chat", messages=[]), tally, AT, {}, False)
    assert not record.exact


GOOD = chat_choice(0, [3], "a")
UNFINISHED: dict[str, dict[str, Any]] = {
    "no choices": {"id": "1", "prompt_token_ids": [1], "choices": []},
    "no id": {"prompt_token_ids": [1], "choices": [GOOD]},
    "no prompt token ids": {"id": "1", "choices": [GOOD]},
    "no token ids": {"id": "1", "prompt_token_ids": [1], "choices": [GOOD | {"token_ids": None}]},
    "fewer log-probabilities than tokens": {"id": "1", "prompt_token_ids": [1], "choices": [GOOD | {"logprobs": None}]},
    "no end": {"id": "1", "prompt_token_ids": [1], "choices": [GOOD | {"finish_reason": None}]},
}


@pytest.mark.parametrize("payload", UNFINISHED.values(), ids=UNFINISHED.keys())
def test_an_incomplete_reply_gives_no_record(payload: dict[str, Any]) -> None:
    with pytest.raises(Incomplete):
        made(work("chat", messages=[]), payload)
