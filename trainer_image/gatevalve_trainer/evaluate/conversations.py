"""Captured conversations as items: of the sealed side, each once in the life of a channel, in an order that only the seal knows."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gatevalve.contracts.canonical import canonical_json
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item, TrafficRecord
from gatevalve.contracts.policy import SCREEN, Suite
from gatevalve_trainer.errors import ItemSupply
from gatevalve_trainer.snapshot.join import content_text, first_user_text
from gatevalve_trainer.snapshot.segments import closed_segments, read_segment
from gatevalve_trainer.split import normalised, split_side
from gatevalve_trainer.store import Area
from gatevalve_trainer.tasks.plugin import Task, first_user_message, load, referred

Messages = tuple[dict[str, str], ...]

ROLES = frozenset({"system", "developer", "user", "assistant"})
"""Of a request with any other role, or with content that is no text, an evaluation could not ask what was asked then."""

ID_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which a round takes conversations: whoever sends or reads traffic cannot tell which come first."""

    seal: bytes
    channel_uid: str
    number: int

    def of(self, what: object) -> bytes:
        """The place of a conversation, or of a request in its conversation."""
        return hmac.new(self.seal, canonical_json(["order", self.channel_uid, self.number, what]), hashlib.sha256).digest()


class Conversations:
    """Fresh conversations by id, in the order of a round."""

    def __init__(self, requests: Iterable[Messages], order: Order) -> None:
        """Keep one request of each conversation; which one does not depend on the order in which they come."""
        best: dict[str, tuple[bytes, Messages]] = {}
        for messages in requests:
            name, ranked = conversation_id(_first_user(messages)), (order.of(list(messages)), messages)
            best[name] = min(best.get(name, ranked), ranked)
        self._fresh = {name: best[name][1] for name in sorted(best, key=order.of)}

    def take(self, suite: Suite, count: int, taken: Collection[str] = frozenset()) -> tuple[Item, ...]:
        """The first `count` conversations that the suite can score and no other suite of the round has `taken`.

        Raises ItemSupply when there are fewer, ContractError when the suite's task has no reference to work answers out with.
        """
        task, left = _task_of(suite), {name: messages for name, messages in self._fresh.items() if name not in taken}
        items = tuple(item for item, _ in zip(_items(task, left), range(count), strict=False))
        if len(items) < count:
            scored = "" if task is None else f", of which {task.name} has an answer to {len(items)}"
            field = "futility.items" if suite.name == SCREEN else "items.traffic.min"
            raise ItemSupply(
                f"suite {suite.name}: {len(left)} fresh conversations of the sealed side{scored}, {count} are needed; "
                f"wait for traffic, or apply a policy with a smaller {field}"
            )
        return items


def _items(task: Task | None, conversations: Mapping[str, Messages]) -> Iterator[Item]:
    for name, messages in conversations.items():
        answer = None if task is None else referred(task, messages)
        if task is None or answer is not None:
            yield Item(id=name, cluster=name, messages=messages, answer=answer)


def conversation_id(first_user_message: str) -> str:
    """The name of a conversation: what is one question for the split is one conversation."""
    return hashlib.sha256(normalised(first_user_message).encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]


def conversation_of(item: Item) -> str:
    """The name of the conversation that an item begins with."""
    return conversation_id(first_user_message(item))


def fresh_requests(data: Area, channel_uid: str, split_key: bytes, used: Collection[str]) -> Iterator[Messages]:
    """Requests of closed segments whose conversation lies on the sealed side and is not among the `used` ones."""
    for path in closed_segments(data, channel_uid):
        for record in read_segment(data, path).records:
            messages = _request(record) if isinstance(record, TrafficRecord) else None
            if messages is not None and _is_fresh(_first_user(messages), split_key, used):
                yield messages


def _is_fresh(first: str, split_key: bytes, used: Collection[str]) -> bool:
    return split_side(split_key, first) == "sealed" and conversation_id(first) not in used


def _task_of(suite: Suite) -> Task | None:
    """The task whose reference answers for a suite; None for one that a judge scores."""
    if suite.verifier is None:
        return None
    task = load(suite.verifier)
    if task.refer is None:
        problem = f"task {task.name} has no reference, so that nothing tells the right answer to a captured request"
        raise ContractError(f"suite {suite.name}.items.traffic", problem, "name a task with a reference, or a judge")
    return task


def _request(reply: TrafficRecord) -> Messages | None:
    """What a client asked, when an evaluation can ask it again: a chat of nothing but texts that ends with the user."""
    if reply.route != "chat" or not reply.messages or not first_user_text(reply):
        return None
    told = [_message(message) for message in reply.messages]
    messages = tuple(message for message in told if message is not None)
    return messages if len(messages) == len(told) and messages[-1]["role"] == "user" else None


def _message(message: dict[str, Any]) -> dict[str, str] | None:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES or message.get("tool_calls") or not _is_text(content):
        return None
    return {"role": str(role), "content": content_text(content)}


def _is_text(content: Any) -> bool:
    parts = content if isinstance(content, list) else []
    return isinstance(content, str) or (bool(parts) and all(isinstance(part, dict) and part.get("type") == "text" for part in parts))


def _first_user(messages: Messages) -> str:
    return next(message["content"] for message in messages if message["role"] == "user")
