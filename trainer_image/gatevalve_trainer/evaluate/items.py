"""Items of a suite: drawn afresh from the sealed side of the split, and written and read as JSON lines."""

from __future__ import annotations

import random
from collections.abc import Iterator

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item
from gatevalve_trainer.split import split_side
from gatevalve_trainer.tasks.plugin import Task, first_user_message

BARREN_DRAWS = 100_000
"""Draws in a row without a new sealed item after which a generator's supply counts as used up."""


def draw(task: Task, count: int, rng: random.Random, split_key: bytes) -> tuple[Item, ...]:
    """`count` distinct items whose first user message lies on the sealed side; raises ContractError when the task cannot supply them."""
    found: dict[str, Item] = {}
    ids: set[str] = set()
    barren = 0
    for item in _generated(task, rng):
        prompt = first_user_message(item)
        if split_side(split_key, prompt) == "sealed" and prompt not in found and item.id not in ids:
            found[prompt] = item
            ids.add(item.id)
            barren = 0
        else:
            barren += 1
        if len(found) == count:
            return tuple(found.values())
        if barren == BARREN_DRAWS:
            problem = f"supplies {len(found)} sealed items of the {count} that the policy asks for"
            raise ContractError(f"task {task.name}", problem, "lower items.count, or widen the generator")
    raise AssertionError("a generator of items never ends")


def _generated(task: Task, rng: random.Random) -> Iterator[Item]:
    if task.generate is None:
        raise ContractError(f"task {task.name}", "generates no items", "name a task with a generator, or give uri and digest")
    while True:
        yield task.generate(rng)


def to_lines(items: tuple[Item, ...]) -> bytes:
    """Items as canonical JSON, one a line."""
    return b"".join(item.canonical() + b"\n" for item in items)


def from_lines(what: str, data: bytes) -> tuple[Item, ...]:
    """The items of a file; raises ContractError when a line is no item, an id occurs twice, or there is none."""
    items = tuple(_item(what, number, line) for number, line in enumerate(data.splitlines(), start=1) if line.strip())
    if not items:
        raise ContractError(what, "holds no items", "give a file with one item a line")
    ids: set[str] = set()
    for item in items:
        if item.id in ids:
            raise ContractError(what, f"holds item {item.id} twice", "remove one of them")
        ids.add(item.id)
    return items


def _item(what: str, number: int, line: bytes) -> Item:
    try:
        return Item.parse_json(line)
    except ContractError as error:
        raise ContractError(f"{what} line {number}: {error.field}", error.problem, error.remedy) from error
