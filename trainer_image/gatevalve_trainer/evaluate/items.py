"""Items of a suite: drawn afresh from the sealed side of the split, and written and read as JSON lines."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from gatevalve.contracts.errors import ContractError, GatevalveError
from gatevalve.contracts.files import Item
from gatevalve_trainer.errors import ItemSupply
from gatevalve_trainer.evaluate.conversations import conversation_of
from gatevalve_trainer.split import split_side
from gatevalve_trainer.tasks.plugin import Generator, Task, first_user_message

BARREN_DRAWS = 100_000
"""Draws in a row without a new sealed item after which a generator's supply counts as used up."""


@dataclass(frozen=True, slots=True)
class Held:
    """Conversations that no item may begin with: those `taken` by other suites of the round, and those `used` before it."""

    taken: Collection[str] = frozenset()
    used: Collection[str] = frozenset()


NOTHING_HELD = Held()


def draw(task: Task, count: int, rng: random.Random, split_key: bytes, held: Held = NOTHING_HELD) -> tuple[Item, ...]:
    """`count` items of different conversations that lie on the sealed side and are not held; equal ids are drawn once as well.

    Raises ContractError when the task cannot supply them, ItemSupply when it could but for what was used before.
    """
    if task.generate is None:
        raise ContractError(f"task {task.name}", "generates no items", "name a task with a generator, or give uri and digest")
    found = _Found(held, [], set(), set(), set())
    while len(found.items) < count:
        found.add(_next_sealed(task.name, task.generate, rng, split_key, found, count))
    return tuple(found.items)


@dataclass(frozen=True, slots=True)
class _Found:
    held: Held
    items: list[Item]
    conversations: set[str]
    ids: set[str]
    met: set[str]  # used before, and generated again: the generator's supply without its past

    def add(self, item: Item) -> None:
        self.items.append(item)
        self.conversations.add(conversation_of(item))
        self.ids.add(item.id)

    def is_new(self, item: Item) -> bool:
        conversation = conversation_of(item)
        if conversation in self.held.used:
            self.met.add(conversation)
            return False
        return conversation not in self.conversations and conversation not in self.held.taken and item.id not in self.ids


def _next_sealed(name: str, generate: Generator, rng: random.Random, split_key: bytes, found: _Found, count: int) -> Item:
    for _ in range(BARREN_DRAWS):
        item = generate(rng)
        if split_side(split_key, first_user_message(item)) == "sealed" and found.is_new(item):
            return item
    raise _barren(name, found, count)


def _barren(name: str, found: _Found, count: int) -> GatevalveError:
    """The end of a generator's supply: of that for a round, or of its whole, which earlier rounds have used."""
    fresh, used = len(found.items), len(found.met)
    if fresh + used >= count:
        return ItemSupply(
            f"task {name}: supplies {fresh} fresh sealed items, {count} are needed: earlier rounds and sentinels hold {used} more, "
            f"and {BARREN_DRAWS} draws brought nothing new; apply a policy with another generator, or smaller items.count and screen"
        )
    problem = f"supplies only {fresh + used} sealed items, {count} are needed: {BARREN_DRAWS} more draws brought nothing new"
    return ContractError(f"task {name}", problem, "lower items.count, or widen the generator")


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
