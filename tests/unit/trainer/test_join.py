"""Which replies become rows, with what score, on which side, and why others do not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gatevalve.contracts.files import FeedbackRecord, TrafficRecord
from gatevalve_trainer.snapshot.join import Joined, Wanted, drop_reason, first_user_text, join, latest_scores
from gatevalve_trainer.snapshot.segments import Window, instant
from support.training import SPLIT_KEY, WINDOW, feedback, reply, tiny_base

ADAPTER, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
SPAN = Window(instant(WINDOW["window_from"]), instant(WINDOW["window_to"]))
OF_BASE = Wanted(SPAN, tiny_base().digest, None)
OF_ADAPTER = Wanted(SPAN, tiny_base().digest, ADAPTER)


def joined(replies: list[TrafficRecord], scores: list[FeedbackRecord], wanted: Wanted = OF_BASE) -> Joined:
    return join(replies, scores, wanted, SPLIT_KEY)


@pytest.mark.parametrize(
    ("changes", "wanted", "reason"),
    [
        pytest.param({}, OF_BASE, None, id="the base's own exact reply is a row while the base serves"),
        pytest.param({"adapter_digest": ADAPTER}, OF_ADAPTER, None, id="the incumbent's reply is a row"),
        pytest.param({"finish_reason": "length"}, OF_BASE, None, id="a truncated reply stays a row"),
        pytest.param({"logprobs": [-0.5, 0.00005]}, OF_BASE, None, id="rounding may lift a log-probability a little above 0"),
        pytest.param({"adapter_digest": ADAPTER}, OF_BASE, "foreignAdapter", id="an adapter's reply is foreign while the base serves"),
        pytest.param({}, OF_ADAPTER, "foreignAdapter", id="the base's reply is foreign while an adapter serves"),
        pytest.param({"adapter_digest": OTHER}, OF_ADAPTER, "foreignAdapter", id="another adapter's reply is foreign"),
        pytest.param({"base_digest": OTHER}, OF_BASE, "foreignBase", id="another base's reply is foreign"),
        pytest.param({"exact": False}, OF_BASE, "notExact", id="filtered sampling has no exact log-probabilities"),
        pytest.param({"finish_reason": None}, OF_BASE, "unfinished", id="an aborted reply is unfinished"),
        pytest.param({"token_ids": [], "logprobs": []}, OF_BASE, "noTokens", id="an empty reply has no tokens"),
        pytest.param({"prompt_token_ids": []}, OF_BASE, "noTokens", id="a reply without its prompt cannot be replayed"),
        pytest.param({"logprobs": [-0.5]}, OF_BASE, "lengthMismatch", id="log-probabilities are never padded to fit"),
        pytest.param({"logprobs": [-0.5, math.nan]}, OF_BASE, "notFinite", id="NaN is no log-probability"),
        pytest.param({"logprobs": [-math.inf, -0.5]}, OF_BASE, "notFinite", id="minus infinity is no log-probability"),
        pytest.param({"logprobs": [-0.5, 0.01]}, OF_BASE, "positiveLogprob", id="a probability above 1 is a broken capture"),
        pytest.param(
            {"messages": [{"role": "system", "content": "x"}]}, OF_BASE, "noUserText", id="without a user message no side is known"
        ),
        pytest.param({"route": "completions", "prompt": None}, OF_BASE, "noUserText", id="a completion of bare token ids has no side"),
        pytest.param({"messages": None, "prompt": "p"}, OF_BASE, "noUserText", id="a chat without messages has no side"),
    ],
)
def test_why_a_reply_is_no_row(changes: dict[str, Any], wanted: Wanted, reason: str | None) -> None:
    assert drop_reason(reply(**changes), wanted) == reason


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}, "u", id="the first user message"
        ),
        pytest.param({"messages": [{"role": "user", "content": "1"}, {"role": "user", "content": "2"}]}, "1", id="not a later one"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
            "a\nb",
            id="text parts",
        ),
        pytest.param({"messages": None, "prompt": "p", "route": "completions"}, "p", id="a completion's prompt"),
        pytest.param({"prompt": "p", "route": "completions"}, "p", id="a completion's prompt, whatever messages came along"),
        pytest.param({"prompt": "p"}, "question 0", id="a chat's message, whatever prompt came along"),
    ],
)
def test_the_text_that_decides_the_side(changes: dict[str, Any], text: str) -> None:
    assert first_user_text(reply(**changes)) == text


@pytest.mark.parametrize(
    ("records", "score"),
    [
        pytest.param([feedback(0, 1.0), feedback(0, 0.25, at="2026-05-04T12:30:00Z")], 0.25, id="the latest score counts"),
        pytest.param([feedback(0, 0.25, at="2026-05-04T12:30:00Z"), feedback(0, 1.0)], 0.25, id="in whatever order it is read"),
        pytest.param([feedback(0, 1.0), feedback(0, 0.0)], 0.0, id="at the same instant the lower counts"),
        pytest.param(
            [feedback(0, 1.0), feedback(0, 0.0, at="2026-05-04T13:00:00Z")], 1.0, id="a score given at the window's end is too late"
        ),
        pytest.param(
            [feedback(0, 1.0, at="2026-05-04T12:00:01.5Z"), feedback(0, 0.0, at="2026-05-04T12:00:01Z")], 1.0, id="fractions order"
        ),
        pytest.param([feedback(0, 1.0), feedback(0, math.nan, at="2026-05-04T12:30:00Z")], 1.0, id="NaN is no score"),
        pytest.param([feedback(0, 1.0), feedback(0, 1.5, at="2026-05-04T12:30:00Z")], 1.0, id="a score above 1 is none"),
    ],
)
def test_which_score_a_response_has(records: list[FeedbackRecord], score: float) -> None:
    assert latest_scores(records, SPAN) == {"chatcmpl-0000": score}


def test_a_reply_without_feedback_is_a_row_without_a_score() -> None:
    (row,) = joined([reply(0)], []).train
    assert row.score is None


def test_feedback_scores_the_first_choice_only() -> None:
    rows = joined([reply(0, choice=0), reply(0, choice=1)], [feedback(0, 1.0)]).train
    assert {row.row_id: row.score for row in rows} == {"chatcmpl-0000/0": 1.0, "chatcmpl-0000/1": None}


def test_a_reply_recorded_twice_is_one_row() -> None:
    found = joined([reply(0), reply(0, at="2026-05-04T12:10:00Z"), reply(1)], [])
    assert [row.row_id for row in found.train] == ["chatcmpl-0000/0", "chatcmpl-0001/0"]
    assert found.dropped == {"duplicate": 1}


def test_the_sealed_side_is_counted_and_left_out() -> None:
    replies = [reply(number) for number in range(400)]
    found = joined(replies, [])
    assert sum(found.split.values()) == 400
    assert found.split["sealed"] > 0
    assert (len(found.train), len(found.drift)) == (found.split["train"], found.split["drift"])
    sealed = {row.row_id for row in found.train + found.drift} ^ {f"{one.id}/0" for one in replies}
    assert len(sealed) == found.split["sealed"]


def test_a_row_keeps_what_training_needs() -> None:
    (row,) = joined([reply(0)], [feedback(0, 0.75)]).train
    assert (row.prompt_token_ids, row.response_token_ids, row.response_logprobs, row.score) == ([5, 6, 7, 0], [8, 9], [-0.5, -0.25], 0.75)
    assert (row.adapter_digest, json.loads(row.messages)) == ("base", [{"role": "user", "content": "question 0"}])
