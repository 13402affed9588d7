"""Items of a suite: drawn afresh from the sealed side of the split, and written and read as JSON lines."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item
from gatevalve_trainer.split import split_side
from gatevalve_trainer.tasks.plugin import Generator, Task, first_user_message

BARREN_DRAWS = 100_000
"""Draws in a row without a new sealed item after which a generator's supply counts as used up."""


def draw(task: Task, count: int, rng: random.Random, split_key: bytes, taken: Collection[str] = frozenset()) -> tuple[Item, ...]:
    """`count` distinct items whose first user message lies on the sealed side and is not `taken`.

    Raises ContractError when the task cannot supply them.
    """
    if task.generate is None:
        raise ContractError(f"task {task.name}", "generates no items", "name a task with a generator, or give uri and digest")
    found = _Found([], set(taken), set())
    while len(found.items) < count:
        found.add(_next_sealed(task.name, task.generate, rng, split_key, found))
    return tuple(found.items)


@dataclass(frozen=True, slots=True)
class _Found:
    items: list[Item]
    prompts: set[str]
    ids: set[str]

    def add(self, item: Item) -> None:
        self.items.append(item)
        self.prompts.add(first_user_message(item))
        self.ids.add(item.id)


def _next_sealed(name: str, generate: Generator, rng: random.Random, split_key: bytes, found: _Found) -> Item:
    for _ in range(BARREN_DRAWS):
        item = generate(rng)
        prompt = first_user_message(item)
        if prompt not in found.prompts and item.id not in found.ids and split_side(split_key, prompt) == "sealed":
            return item
    problem = f"supplies only {len(found.items)} sealed items: {BARREN_DRAWS} more draws brought nothing new"
    raise ContractError(f"task {name}", problem, "lower items.count, or widen the generator")


def to_lines(items: tuple[Item, ...]) -> bytes:
    """Items as canonical JSON, one a line."""
    return b"".join(item.canonical() + b"\n" for item in items)


def from_lines(what: str, data: bytes) -> tuple[Item, ...]:
    """The items of a file; raises ContractError when a line is no item, an id occurs twice, or there is none."""
    numbered = [(number, _item(what, number, line)) for number, line in enumerate(data.splitlines(), start=1) if line.strip()]
    if not numbered:
        raise ContractError(what, "holds no items", "give a file with one item a line")
    ids: set[str] = set()
    for number, item in numbered:
        if item.id in ids:  # the message names the line: an id may be a sealed text
            raise ContractError(what, f"line {number} repeats the id of an earlier item", "remove one of them")
        ids.add(item.id)
    return tuple(item for _, item in numbered)


def _item(what: str, number: int, line: bytes) -> Item:
    try:
        return Item.parse_json(line)
    except ContractError as error:
        raise ContractError(f"{what} line {number}: {error.field}", error.problem, error.remedy) from error
