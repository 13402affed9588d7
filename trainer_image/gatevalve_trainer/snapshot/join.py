"""Joining replies with their scores: which replies become rows, on which side, and why the others do not."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gatevalve.contracts.files import FeedbackRecord, SnapshotRow, TrafficRecord
from gatevalve_trainer.snapshot.segments import Window, instant
from gatevalve_trainer.split import Side, split_side

BASE = "base"
"""What a row says in place of an adapter's digest when the base answered."""

LOGPROB_TOLERANCE = 1e-4
"""How far above 0 rounding may lift a log-probability."""

SCORED_CHOICE = 0
"""Feedback names a response, not one of its choices: it scores the first; other choices stay unscored."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which replies a snapshot is about."""

    window: Window
    base_digest: str
    incumbent_digest: str | None


@dataclass(slots=True)
class Joined:
    """Rows of the train and drift sides by row id, and counts of everything else."""

    train: list[SnapshotRow] = field(default_factory=list)
    drift: list[SnapshotRow] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    split: Counter[Side] = field(default_factory=Counter)


def join(replies: Iterable[TrafficRecord], feedback: Iterable[FeedbackRecord], wanted: Wanted, key: bytes) -> Joined:
    """Rows of the wanted replies with their latest score, sorted by row id; the sealed side is counted and left out."""
    joined = Joined()
    scores = latest_scores(feedback, wanted.window)
    for reply in _first_of_each(replies, joined.dropped):
        if (reason := drop_reason(reply, wanted)) is not None:
            joined.dropped[reason] += 1
            continue
        side = split_side(key, first_user_text(reply) or "")
        joined.split[side] += 1
        if side != "sealed":
            (joined.train if side == "train" else joined.drift).append(_row(reply, scores))
    return joined


def drop_reason(reply: TrafficRecord, wanted: Wanted) -> str | None:
    """Why a reply cannot be a row, or None; the first reason counts.

    A reply cut at its token limit stays a row: training leaves it out of the loss and counts it.
    """
    if reply.base_digest != wanted.base_digest:
        return "foreignBase"
    if reply.adapter_digest != wanted.incumbent_digest:
        return "foreignAdapter"
    if not reply.exact:
        return "notExact"
    if reply.finish_reason is None:
        return "unfinished"
    if not reply.token_ids or not reply.prompt_token_ids:
        return "noTokens"
    if first_user_text(reply) is None:
        return "noUserText"
    return _logprob_problem(reply)


def latest_scores(feedback: Iterable[FeedbackRecord], window: Window) -> dict[str, float]:
    """The last score from 0 to 1 of each response among those given before the window's end; at the same instant the lower counts."""
    latest: dict[str, tuple[Any, float]] = {}
    for record in feedback:
        at = instant(record.at)
        if at >= window.end or not 0 <= record.score <= 1:
            continue
        fact = (at, -record.score)
        if record.id not in latest or fact > latest[record.id]:
            latest[record.id] = fact
    return {response: -negated for response, (_, negated) in latest.items()}


def first_user_text(reply: TrafficRecord) -> str | None:
    """The text that decides the side: a chat's first user message, or a completion's prompt; None when there is none.

    The route decides which: a client may send the other field along, which the engine never read.
    """
    if reply.route == "completions":
        return reply.prompt
    return next((content_text(message.get("content")) for message in reply.messages or () if message.get("role") == "user"), None)


def _first_of_each(replies: Iterable[TrafficRecord], dropped: Counter[str]) -> list[TrafficRecord]:
    ordered = sorted(replies, key=lambda reply: (_row_id(reply), instant(reply.at), reply.entry))
    kept: dict[str, TrafficRecord] = {}
    for reply in ordered:
        if kept.setdefault(_row_id(reply), reply) is not reply:
            dropped["duplicate"] += 1
    return list(kept.values())


def _logprob_problem(reply: TrafficRecord) -> str | None:
    if len(reply.logprobs) != len(reply.token_ids):
        return "lengthMismatch"
    if not all(math.isfinite(value) for value in reply.logprobs):
        return "notFinite"
    return "positiveLogprob" if max(reply.logprobs) > LOGPROB_TOLERANCE else None


def _row(reply: TrafficRecord, scores: dict[str, float]) -> SnapshotRow:
    return SnapshotRow(
        row_id=_row_id(reply),
        created_at=reply.at,
        entry=reply.entry,
        adapter_digest=reply.adapter_digest or BASE,
        prompt_token_ids=reply.prompt_token_ids,
        response_token_ids=reply.token_ids,
        response_logprobs=reply.logprobs,
        behavior_exact=reply.exact,
        finish_reason=reply.finish_reason or "",
        score=scores.get(reply.id) if reply.choice == SCORED_CHOICE else None,
        response_text=reply.text,
        messages=json.dumps(reply.messages if reply.route == "chat" else reply.prompt, ensure_ascii=False, sort_keys=True),
    )


def _row_id(reply: TrafficRecord) -> str:
    return f"{reply.id}/{reply.choice}"


def content_text(content: Any) -> str:
    """The text of a chat message's content: a text, or the texts of its parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
