"""What the engine is asked in the client's place, and what the client sees of it."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve.contracts.kinds import Capture
from gatevalve.contracts.serving import Route as DocumentRoute
from gatevalve_serving.generation import Job, Route, job, to_client
from gatevalve_serving.routes import ChannelRoutes, Target

ENTRY = "support-000001"


def routes(capture: Capture | None = None) -> ChannelRoutes:
    return ChannelRoutes(
        channel="support",
        uid="u",
        alias="support",
        base_digest="sha256:" + "0" * 64,
        capture=capture or Capture(),
        routes=(DocumentRoute(adapter="a", entry=ENTRY),),
        targets=(Target(ENTRY, "a", None, 100),),
    )


def made(route: Route, asked: dict[str, Any], capturable: bool = True, capture: Capture | None = None) -> Job:
    return job(route, routes(capture), "id", {"model": "support", **asked}, capturable)


def test_a_captured_chat_is_asked_for_token_ids_and_log_probabilities_at_neutral_sampling() -> None:
    sent = made("chat", {"messages": []}).sent
    assert (sent["model"], sent["return_token_ids"], sent["logprobs"]) == ("a", True, True)
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (1.0, 1.0, 0)


def test_a_captured_completion_asks_for_no_more_log_probabilities_than_the_client() -> None:
    assert made("completions", {"prompt": "x"}).sent["logprobs"] == 0
    assert made("completions", {"prompt": "x", "logprobs": 3}).sent["logprobs"] == 3


def test_stated_sampling_is_left_alone() -> None:
    sent = made("chat", {"messages": [], "top_p": 0.5}).sent
    assert (sent["top_p"], "temperature" in sent) == (0.5, False)


def test_outside_the_learning_slice_sampling_is_left_alone() -> None:
    assert "temperature" not in made("chat", {"messages": []}, capture=Capture(learning_permille=0)).sent


def test_the_learning_slice_has_its_share() -> None:
    in_slice = [
        "temperature" in job("chat", routes(Capture(learning_permille=300)), f"id-{number}", {"messages": []}, True).sent
        for number in range(2000)
    ]
    assert 0.25 < sum(in_slice) / len(in_slice) < 0.35


def test_a_client_cannot_choose_its_replys_id() -> None:
    assert "request_id" not in made("chat", {"messages": [], "request_id": "somebody-elses"}).sent


@pytest.mark.parametrize("asked", [{"echo": True}, {"use_beam_search": True}], ids=["echo", "beam search"])
def test_what_cannot_be_logged_token_by_token_is_not_captured(asked: dict[str, Any]) -> None:
    assert not made("completions", {"prompt": "x", **asked}).captured


def test_a_request_that_is_not_captured_is_sent_as_it_is_but_for_the_model() -> None:
    assert made("chat", {"messages": [], "temperature": 0.3}, capturable=False).sent == {"model": "a", "messages": [], "temperature": 0.3}


REPLY = {
    "id": "chatcmpl-1",
    "model": "a",
    "prompt_token_ids": [1, 2],
    "choices": [{"index": 0, "message": {"content": "x"}, "logprobs": {"content": []}, "token_ids": [3]}],
}


def seen(asked: dict[str, Any], payload: dict[str, Any], capturable: bool = True) -> dict[str, Any] | None:
    copy = {**payload, "choices": [dict(choice) for choice in payload["choices"]]}
    return copy if to_client(made("chat", {"messages": [], **asked}, capturable), copy) else None


def test_what_the_client_did_not_ask_for_is_null_as_the_engine_would_have_written() -> None:
    reply = seen({}, REPLY)
    assert reply is not None
    assert (reply["model"], reply["prompt_token_ids"]) == ("support", None)
    assert reply["choices"] == [{"index": 0, "message": {"content": "x"}, "logprobs": None, "token_ids": None}]


def test_what_the_client_asked_for_stays() -> None:
    reply = seen({"logprobs": True, "return_token_ids": True}, REPLY)
    assert reply == REPLY | {"model": "support"}


def test_log_probabilities_alone_stay_alone() -> None:
    reply = seen({"logprobs": True}, REPLY)
    assert reply is not None
    assert (reply["prompt_token_ids"], reply["choices"][0]["token_ids"], reply["choices"][0]["logprobs"]) == (None, None, {"content": []})


def test_a_field_that_the_engine_left_out_is_not_made_up() -> None:
    chunk = {"id": "1", "model": "a", "choices": [{"index": 0, "delta": {"content": "x"}}]}
    assert seen({}, chunk) == chunk | {"model": "support"}


HELD_BACK: dict[str, Any] = {"index": 0, "delta": {}, "logprobs": {"content": []}, "token_ids": [3], "finish_reason": None}
EMPTY: dict[str, Any] = {"id": "1", "model": "a", "choices": [HELD_BACK]}


def test_a_chunk_that_exists_only_for_our_token_ids_is_left_out() -> None:
    assert seen({}, EMPTY) is None


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ({"return_token_ids": True}, {}),
        ({}, {"usage": {"total_tokens": 3}}),
        ({}, {"choices": [HELD_BACK | {"finish_reason": "stop"}]}),
    ],
    ids=["the client wants token ids", "it carries usage", "it carries the end"],
)
def test_an_empty_chunk_that_the_client_would_have_had_stays(asked: dict[str, Any], change: dict[str, Any]) -> None:
    assert seen(asked, EMPTY | change) is not None


def test_without_capture_nothing_is_taken_away() -> None:
    assert seen({}, REPLY, capturable=False) == REPLY | {"model": "support"}
