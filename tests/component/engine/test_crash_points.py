"""One candidate's life with the operator killed, or its answer lost, at every single write: it always ends as the life that went well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.candidate_life import STORY, Life, is_quiet, until
from support.crashing import Died, Fuse, Moment, behind, crashing_disk

pytestmark = pytest.mark.component

AT_ONCE = 6


@pytest.fixture(autouse=True)
def disk() -> Iterator[None]:
    with crashing_disk():
        yield


async def live_through(life: Life, fuse: Fuse) -> None:
    """The whole life under one operator after the other: the first with this fuse, those that follow its death with none."""
    asyncio.get_running_loop().set_exception_handler(_bury)
    people = asyncio.create_task(life.people())
    while not await _work(life, people, fuse):
        fuse = Fuse()
    await people
    life.must_be_sound()


def _bury(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody retrieves the exceptions of a process that was killed."""
    if not isinstance(context.get("exception"), Died):
        loop.default_exception_handler(context)


async def _work(life: Life, people: asyncio.Task[None], fuse: Fuse) -> bool:
    """One operator's work, until all is settled; False when it died before."""
    async with life.operator(behind(fuse, life.ports())) as engine:
        await until(lambda: people.done() or fuse.is_dead, "the people's story ends")
        await until(lambda: is_quiet(engine) or fuse.is_dead, "the operator is done")
    return not fuse.is_dead


async def life_with(root: Path, fuse: Fuse) -> Life:
    """A life of its own below a new directory."""
    life = Life.begin(root)
    await live_through(life, fuse)
    return life


FAULTS = {
    "is killed before a write takes effect": (Moment.BEFORE, False),
    "is killed after a write took effect": (Moment.AFTER, False),
    "sees a write fail": (Moment.BEFORE, True),
    "sees a write fail that took effect": (Moment.AFTER, True),
}


@pytest.mark.parametrize("sentence", FAULTS)
async def test_every_write_of_a_life_may_be_the_one_at_which_an_operator(sentence: str, tmp_path: Path) -> None:
    moment, lives = FAULTS[sentence]
    well, writes = await undisturbed(tmp_path)
    few = asyncio.Semaphore(AT_ONCE)

    async def disturbed(at: int) -> str | None:
        async with few:
            fuse = Fuse(at, moment, lives)
            found = difference(well, (await life_with(tmp_path / str(at), fuse)).outcome())
            return f"{at}, {(*fuse.writes, 'never came')[at - 1]}: {found}" if found else None

    told = await asyncio.gather(*(disturbed(at) for at in range(1, writes + 1)))
    assert [line for line in told if line] == []


async def undisturbed(root: Path) -> tuple[dict[str, Any], int]:
    """What a life leaves in which nothing goes wrong, and how many writes it takes."""
    fuse = Fuse()
    life = await life_with(root / "well", fuse)
    assert life.actions == STORY
    return life.outcome(), len(fuse.writes)


def difference(wanted: Any, found: Any, where: str = "") -> list[str]:
    """Where two outcomes differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = sorted(wanted.keys() | found.keys())
        return [line for key in keys for line in difference(wanted.get(key), found.get(key), f"{where}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [line for i, pair in enumerate(zip(wanted, found, strict=True)) for line in difference(*pair, f"{where}[{i}]")]
    return [] if wanted == found else [f"{where}: {str(found)[:200]} instead of {str(wanted)[:200]}"]
