"""An external log that is full, read-only or silent: nothing half-written shows, promotions wait and say so, a rollback does not wait."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gatevalve.io.ports import ADAPTER_CANDIDATES
from gatevalve.io.store import within
from support.candidate_life import STORY, Life, is_quiet, until
from support.crashing import BrokenDisk, behind, crashing_disk

pytestmark = pytest.mark.component

STEPS: dict[str, tuple[str, int]] = {
    "there is no room for a copy's bytes": ("bytes of", errno.ENOSPC),
    "a copy's bytes do not reach the disk": ("fsync of .", errno.EIO),
    "the file system became read-only before the link": ("link", errno.EROFS),
    "there is no room for the copy's name": ("link", errno.ENOSPC),
}


@pytest.fixture(autouse=True)
def disk_steps() -> Iterator[None]:
    with crashing_disk():
        yield


@pytest.mark.parametrize("sentence", STEPS)
async def test_a_promotion_waits_and_says_so_and_goes_on_once_the_disk_is_mended_when(sentence: str, tmp_path: Path) -> None:
    life, disk = Life.begin(tmp_path), BrokenDisk(step=STEPS[sentence][0], number=STEPS[sentence][1])
    life.open_channel()
    async with life.operator(behind(disk, life.ports())) as engine:
        await until(lambda: life.condition("Ready") == "AsExpected", "the channel is Ready")
        disk.is_broken = True
        life.apply_candidate()
        await until(lambda: life.condition("Ready") == "ExternalLogUnavailable", "the channel says what it waits for")
        _is_explained(life, disk)
        assert life.actions == ["Open", "Test"]
        assert [name for name in life.cluster.jobs_made if "evaluate" in name] == []
        disk.is_broken = False
        await until(lambda: life.is_live(3) and life.condition("Ready") == "AsExpected" and is_quiet(engine), "the promotion is live")
    assert life.actions == STORY[:-1]
    assert life.condition("LogValid") == "AsExpected"
    life.must_be_sound()


@pytest.mark.parametrize("sentence", STEPS)
async def test_a_rollback_acts_at_once_and_is_copied_later_when(sentence: str, tmp_path: Path) -> None:
    life, disk = Life.begin(tmp_path), BrokenDisk(step=STEPS[sentence][0], number=STEPS[sentence][1])
    life.open_channel()
    life.apply_candidate()
    async with life.operator(behind(disk, life.ports())) as engine:
        await until(lambda: life.is_live(3), "the promotion is live")
        disk.is_broken = True
        life.pin()
        await until(lambda: life.is_live(4), "the rollback is live")
        await until(lambda: life.condition("Ready") == "ExternalLogUnavailable", "the channel says what is not copied")
        _is_explained(life, disk)
        disk.is_broken = False
        await until(lambda: life.condition("Ready") == "AsExpected" and is_quiet(engine), "all is well again")
    assert life.actions == STORY
    life.must_be_sound()


def _is_explained(life: Life, disk: BrokenDisk) -> None:
    """In words that name the disk's error and what it means; and what readers see of the log are whole entries."""
    for kind, status in (("Ready", "False"), ("LogValid", "Unknown")):
        told = life.channel_condition(kind)
        assert told is not None
        assert told["status"] == status
        assert os.strerror(disk.number) in told["message"]
        assert "promotions wait, a rollback does not" in told["message"]
    assert set(life.copies.items()) <= {(f"{entry.sequence:06d}.json", entry.canonical()) for entry in life.log}


async def test_a_log_that_cannot_be_read_is_told_as_well(tmp_path: Path) -> None:
    life = Life.begin(tmp_path)
    life.open_channel()
    async with life.operator(life.ports()) as engine:
        await until(lambda: life.condition("Ready") == "AsExpected", "the channel is Ready")
        (tmp_path / "log").rename(tmp_path / "gone")
        (tmp_path / "log").write_text("no directory")
        engine.queue.add("support")
        await until(lambda: life.condition("Ready") == "ExternalLogUnavailable", "the channel says that its log cannot be read")
        assert "cannot be read" in (life.channel_condition("Ready") or {})["message"]
        (tmp_path / "log").unlink()
        (tmp_path / "gone").rename(tmp_path / "log")
        engine.queue.add("support")
        await until(lambda: life.condition("Ready") == "AsExpected", "all is well again")
    assert life.cluster.objects.get((ADAPTER_CANDIDATES.plural, "c1")) is None
    life.must_be_sound()


async def test_an_operator_that_is_told_to_stop_while_the_store_answers_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(task.cancel)

    async def operator() -> None:
        await within(lambda: None)
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio, "to_thread", answered)
    task = asyncio.create_task(operator())
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done == {task}
    assert task.cancelled()


REAL_DISK = """
import asyncio, os, subprocess, sys
from pathlib import Path
from gatevalve.contracts.errors import StoreError
from gatevalve.io.store import Area, FileLog

root = Path(sys.argv[1])
mount = lambda *options: subprocess.run(["mount", *options, str(root)], check=True)
mount("-t", "tmpfs", "-o", "size=64k", "tmpfs")
log = FileLog(Area(f"file://{root}"))
entry = b"x" * 20_000

async def refused(sequence):
    try:
        await log.publish("uid", sequence, entry)
    except StoreError as error:
        return str(error)
    raise SystemExit("it was not refused")

async def main():
    await log.publish("uid", 0, entry)
    (root / "filler").write_bytes(b"y" * 30_000)
    assert "No space left on device" in await refused(1)
    assert await log.sequences("uid") == {0} and os.listdir(root / "uid") == ["000000.json"], os.listdir(root / "uid")
    (root / "filler").unlink()
    await log.publish("uid", 1, entry)
    mount("-o", "remount,ro")
    assert "Read-only file system" in await refused(2)
    assert await log.read("uid", 1) == entry and await log.sequences("uid") == {0, 1}
    mount("-o", "remount,rw")
    await log.publish("uid", 2, entry)
    assert await log.sequences("uid") == {0, 1, 2}

asyncio.run(main())
"""


def test_a_real_file_system_that_is_full_and_then_read_only_shows_no_half_written_entry(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", REAL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
