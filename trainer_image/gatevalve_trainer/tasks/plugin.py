"""The plug-in contract of a task, and how an installed one is found by name."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item

GROUP = "gatevalve.tasks"
"""Entry point group: the entry point's name is what a GatePolicy names as generator or verifier."""

Generator = Callable[[random.Random], Item]
"""Draws one item; the only source of chance is the generator it is given."""

Verifier = Callable[[Item, str], float]
"""Scores a reply's text from 0 (wrong) to 1 (right); raises when the item cannot be scored."""


Reference = Callable[[Sequence[Mapping[str, str]]], str | None]
"""The right answer to a captured request, worked out from its messages (role and content); None for a request that is not of the task."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task: its verifier; its generator, when fresh items can be made; its reference, when captured requests can be answered."""

    name: str
    verify: Verifier
    generate: Generator | None = None
    refer: Reference | None = None


def single_turn(prompt: str, answer: str | None, kind: str | None = None) -> Item:
    """An item of one user message, named by its content, so that equal prompts have equal ids."""
    name = hashlib.sha256(prompt.encode()).hexdigest()[:16]
    return Item(id=name, cluster=name, messages=({"role": "user", "content": prompt},), answer=answer, kind=kind)


def first_user_message(item: Item) -> str:
    """The text that decides on which side of the keyed split an item lies; raises ContractError when there is none."""
    for message in item.messages:
        if message.get("role") == "user" and "content" in message:
            return message["content"]
    raise ContractError(f"item {item.id}.messages", "holds no user message with content", "start the item with a user message")


def checked_score(task: Task, item: Item, text: str) -> float | None:
    """The verifier's score when it is finite and in 0..1; None when the verifier raised or answered anything else.

    A verifier that fails says nothing about the reply, so its failure is a missing answer and never a 0.
    """
    try:
        score = float(task.verify(item, text))
    except Exception:  # noqa: BLE001 - a plug-in may raise anything
        return None
    return score if math.isfinite(score) and 0 <= score <= 1 else None


def referred(task: Task, messages: Sequence[Mapping[str, str]]) -> str | None:
    """The reference's answer when it is a text; None when it passes the request over, or fails on it: anybody may have written it."""
    try:
        answer = task.refer(messages) if task.refer is not None else None
    except Exception:  # noqa: BLE001 - a plug-in may raise anything
        return None
    return answer if isinstance(answer, str) else None


def load(name: str) -> Task:
    """The installed task of that name; raises ContractError that names the installed ones."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise ContractError(f"task {name}", "is not installed in the trainer image", f"install its package or name one of: {known}")
    return _loaded(installed[name])


def _loaded(point: EntryPoint) -> Task:
    try:
        task = point.load()
    except Exception as error:
        raise ContractError(f"task {point.name}", f"{point.value} cannot be imported: {error!r}", "mend the plug-in's package") from error
    if not isinstance(task, Task):
        raise ContractError(
            f"task {point.name}", f"{point.value} is a {type(task).__name__}", "export a gatevalve_trainer.tasks.plugin.Task"
        )
    return task
