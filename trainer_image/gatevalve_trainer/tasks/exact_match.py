"""exact-match: a reply is right when its text equals the reference, character for character."""

from __future__ import annotations

from gatevalve.contracts.files import Item
from gatevalve_trainer.tasks.plugin import Task


def verify(item: Item, text: str) -> float:
    """1 when text equals the item's answer, else 0; raises ValueError for an item without an answer."""
    if item.answer is None:
        raise ValueError(f"item {item.id} has no answer to compare with")
    return float(text == item.answer)


TASK = Task(name="exact-match", verify=verify)
