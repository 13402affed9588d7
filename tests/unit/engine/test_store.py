"""The store: an entry's copy is written whole and once; evidence is read only as its digests name it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, GatevalveError, IntegrityError, MissingError, StoreError
from gatevalve.contracts.names import evidence_dir, log_file
from gatevalve.io import store
from gatevalve.io.store import PAIRS_BYTES, REPORT_BYTES, Area, FileLog, SealedEvidence, within
from support.engine_world import CHANNEL_UID, DIGEST

TEST_ENTRY = "support-000001"


def area(tmp_path: Path) -> Area:
    return Area(f"file://{tmp_path}")


async def test_a_published_entry_is_read_back_and_listed(tmp_path: Path) -> None:
    log = FileLog(area(tmp_path))
    assert await log.sequences(CHANNEL_UID) == frozenset()
    await log.publish(CHANNEL_UID, 0, b"zero")
    await log.publish(CHANNEL_UID, 7, b"seven")
    assert await log.sequences(CHANNEL_UID) == {0, 7}
    assert await log.read(CHANNEL_UID, 7) == b"seven"


async def test_publishing_the_same_bytes_again_is_done_already(tmp_path: Path) -> None:
    log = FileLog(area(tmp_path))
    await log.publish(CHANNEL_UID, 0, b"zero")
    await log.publish(CHANNEL_UID, 0, b"zero")
    assert await log.read(CHANNEL_UID, 0) == b"zero"


async def test_publishing_other_bytes_under_the_same_sequence_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    log = FileLog(area(tmp_path))
    await log.publish(CHANNEL_UID, 0, b"zero")
    with pytest.raises(IntegrityError):
        await log.publish(CHANNEL_UID, 0, b"another")
    assert await log.read(CHANNEL_UID, 0) == b"zero"


async def test_of_many_publishers_exactly_one_wins(tmp_path: Path) -> None:
    log = FileLog(area(tmp_path))
    results = await asyncio.gather(*(log.publish(CHANNEL_UID, 0, b"%d" % n) for n in range(12)), return_exceptions=True)
    assert results.count(None) == 1
    assert await log.read(CHANNEL_UID, 0) == b"%d" % results.index(None)


async def test_a_publish_that_is_killed_before_its_link_leaves_no_entry_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(area(tmp_path))
    killed = monkeypatch.context()
    with killed as patch:
        patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            log._area.publish(log_file(CHANNEL_UID, 0), b"zero")
    assert [path.name[:1] for path in (tmp_path / CHANNEL_UID).iterdir()] == ["."]
    assert await log.sequences(CHANNEL_UID) == frozenset()
    await log.publish(CHANNEL_UID, 0, b"zero")
    assert await log.sequences(CHANNEL_UID) == {0}


async def test_the_same_rules_hold_in_a_store_that_is_no_local_directory() -> None:
    log = FileLog(Area("memory://log"))
    await log.publish(CHANNEL_UID, 0, b"zero")
    await log.publish(CHANNEL_UID, 0, b"zero")
    with pytest.raises(IntegrityError):
        await log.publish(CHANNEL_UID, 0, b"another")
    assert await log.sequences(CHANNEL_UID) == {0}


async def test_a_missing_entry_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        await FileLog(area(tmp_path)).read(CHANNEL_UID, 3)


def test_a_url_that_no_file_system_handles_is_refused_at_start() -> None:
    with pytest.raises(StoreError):
        Area("nosuch://bucket/path")


async def test_a_store_that_hangs_is_given_up() -> None:
    with pytest.raises(StoreError, match="does not answer"):
        await within(time.sleep, 0.5, seconds=0.05)


# ---- what somebody puts among the copies


async def test_names_that_are_no_entrys_are_ignored(tmp_path: Path) -> None:
    log = FileLog(area(tmp_path))
    await log.publish(CHANNEL_UID, 0, b"zero")
    for name in ("1.json", "0000002.json", "00000\u00b2.json", "000003.json.bak", "notes.txt", "-00004.json"):
        (tmp_path / CHANNEL_UID / name).write_bytes(b"x")
    assert await log.sequences(CHANNEL_UID) == {0}


def _linked(path: Path) -> None:
    (path.parent.parent / "elsewhere").write_bytes(b"zero")
    path.symlink_to(path.parent.parent / "elsewhere")


def _huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(REPORT_BYTES + 1)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a link to the right bytes": _linked,
    "a link to nothing": lambda path: path.symlink_to("/nowhere"),
    "a pipe that nobody writes to": os.mkfifo,
    "a directory": Path.mkdir,
    "a huge file": _huge,
}


@pytest.mark.parametrize("sentence", FOREIGN)
async def test_no_entrys_copy_is_read_from_or_written_over(sentence: str, tmp_path: Path) -> None:
    path = tmp_path / log_file(CHANNEL_UID, 0)
    path.parent.mkdir()
    FOREIGN[sentence](path)
    log = FileLog(area(tmp_path))
    for attempt in (log.read(CHANNEL_UID, 0), log.publish(CHANNEL_UID, 0, b"zero")):
        with pytest.raises(IntegrityError):
            await attempt


async def test_a_missing_file_is_told_from_a_missing_volume(tmp_path: Path) -> None:
    log = FileLog(area(tmp_path / "volume"))
    with pytest.raises(StoreError, match="mount the volume") as unmounted:
        await log.read(CHANNEL_UID, 0)
    assert not isinstance(unmounted.value, MissingError)
    (tmp_path / "volume").mkdir()
    with pytest.raises(MissingError):
        await log.read(CHANNEL_UID, 0)


# ---- a disk that is full or read-only

FULL_DISK = """
import asyncio, os, subprocess, sys
from pathlib import Path
from gatevalve.contracts.errors import StoreError
from gatevalve.io.store import Area, FileLog

root, uid = Path(sys.argv[1]), "uid"
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", root], check=True)
log, entry = FileLog(Area(str(root))), b"x" * 40_000

def refused(reason):
    try:
        asyncio.run(log.publish(uid, 1, entry))
    except StoreError as error:
        assert reason in str(error), error
    else:
        raise AssertionError("published")
    assert asyncio.run(log.sequences(uid)) == {0}
    assert os.listdir(root / uid) == ["000000.json"]

asyncio.run(log.publish(uid, 0, b"zero"))
(root / "ballast").write_bytes(b"x" * 30_000)
refused("No space left on device")
subprocess.run(["mount", "-o", "remount,ro", root], check=True)
refused("Read-only file system")
subprocess.run(["mount", "-o", "remount,rw", root], check=True)
(root / "ballast").unlink()
asyncio.run(log.publish(uid, 1, entry))
assert asyncio.run(log.read(uid, 1)) == entry
"""


def test_on_a_full_or_read_only_disk_nothing_half_written_is_seen_and_the_copy_is_made_once_there_is_room(tmp_path: Path) -> None:
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


# ---- evidence


def row(item: str) -> dict[str, Any]:
    arms: dict[str, Any] = {"candidate": [1_000_000], "incumbent": [0], "anchor": [None]}
    return {
        "suite": "target",
        "item": item,
        "cluster": item,
        "scores": arms,
        "tokens": {arm: [3] for arm in arms},
        "finishes": {arm: ["stop"] for arm in arms},
        "texts": {arm: [DIGEST] for arm in arms},
        "failures": {arm: [None] for arm in arms},
    }


def write_evidence(root: Path, pairs: bytes | None = None, size: int | None = None, **changes: Any) -> tuple[str, str]:
    """(report digest, pairs digest) of evidence as an evaluation Job leaves it."""
    directory = root / evidence_dir(CHANNEL_UID, TEST_ENTRY)
    directory.mkdir(parents=True)
    packed = gzip.compress(b"".join(json.dumps(row(f"i{n}")).encode() + b"\n" for n in range(3))) if pairs is None else pairs
    (directory / "pairs.jsonl.gz").write_bytes(packed)
    report = {
        "testEntry": TEST_ENTRY,
        "testDigest": DIGEST,
        "channelUid": CHANNEL_UID,
        "candidateUid": "c",
        "round": 1,
        "policyDigest": DIGEST,
        "baseDigest": DIGEST,
        "candidateDigest": DIGEST,
        "stage": "Full",
        "suites": [],
        "pairs": {"path": "pairs.jsonl.gz", "size": size or len(packed), "sha256": sha256(packed)},
        "engine": "vllm 0.32.0",
        "arms": {"candidate": "candidate", "incumbent": "tiny", "anchor": "tiny"},
    } | changes
    raw = json.dumps(report).encode()
    (directory / "report.json").write_bytes(raw)
    return sha256(raw), sha256(packed)


async def test_evidence_that_matches_its_digests_is_read(tmp_path: Path) -> None:
    report, pairs = write_evidence(tmp_path)
    found = await SealedEvidence(area(tmp_path)).read(CHANNEL_UID, TEST_ENTRY, report, pairs)
    assert found.report.test_entry == TEST_ENTRY
    assert [r.item for r in found.rows] == ["i0", "i1", "i2"]
    assert found.rows[0].scores["candidate"] == (1_000_000,)


def _truncate(root: Path) -> None:
    path = root / evidence_dir(CHANNEL_UID, TEST_ENTRY) / "pairs.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-10])


def _touch_report(root: Path) -> None:
    path = root / evidence_dir(CHANNEL_UID, TEST_ENTRY) / "report.json"
    path.write_bytes(path.read_bytes() + b" ")


def _remove(root: Path) -> None:
    (root / evidence_dir(CHANNEL_UID, TEST_ENTRY) / "pairs.jsonl.gz").unlink()


SPOILT: dict[str, tuple[Callable[[Path], None], type[GatevalveError]]] = {
    "the pairs were cut short": (_truncate, IntegrityError),
    "the report was touched": (_touch_report, IntegrityError),
    "the pairs are gone": (_remove, MissingError),
}


@pytest.mark.parametrize("sentence", SPOILT)
async def test_evidence_is_refused_when(sentence: str, tmp_path: Path) -> None:
    spoil, error = SPOILT[sentence]
    report, pairs = write_evidence(tmp_path)
    spoil(tmp_path)
    with pytest.raises(error):
        await SealedEvidence(area(tmp_path)).read(CHANNEL_UID, TEST_ENTRY, report, pairs)
    with pytest.raises(error):
        await SealedEvidence(area(tmp_path)).recorded(CHANNEL_UID, TEST_ENTRY, report)


MISFITS: dict[str, tuple[dict[str, Any], type[GatevalveError]]] = {
    "the pairs are not gzip": ({"pairs": b"plain"}, ContractError),
    "a line is empty": ({"pairs": gzip.compress(b"\n")}, ContractError),
    "a row breaks its contract": ({"pairs": gzip.compress(b'{"suite":"target"}\n')}, ContractError),
    "the report has a field that nobody knows": ({"verdict": "Accepted"}, ContractError),
}


@pytest.mark.parametrize("sentence", MISFITS)
async def test_evidence_is_refused_although_its_digests_match_when(sentence: str, tmp_path: Path) -> None:
    changes, error = MISFITS[sentence]
    report, pairs = write_evidence(tmp_path, **changes)
    with pytest.raises(error):
        await SealedEvidence(area(tmp_path)).read(CHANNEL_UID, TEST_ENTRY, report, pairs)


async def test_evidence_is_refused_when_the_report_names_other_pairs_than_the_job(tmp_path: Path) -> None:
    report, _ = write_evidence(tmp_path)
    other = gzip.compress(json.dumps(row("other")).encode())
    (tmp_path / evidence_dir(CHANNEL_UID, TEST_ENTRY) / "pairs.jsonl.gz").write_bytes(other)
    with pytest.raises(IntegrityError, match="the report names pairs"):
        await SealedEvidence(area(tmp_path)).read(CHANNEL_UID, TEST_ENTRY, report, sha256(other))


# ---- evidence that is too much, or takes too long

OVERSIZED: dict[str, dict[str, Any]] = {
    "the pairs unpack to more than the operator holds": {"pairs": gzip.compress(b" " * (PAIRS_BYTES + 1), compresslevel=1)},
    "the report says that the pairs are larger": {"size": PAIRS_BYTES + 1},
}


@pytest.mark.parametrize("sentence", OVERSIZED)
async def test_evidence_is_unsound_and_not_asked_for_again_when(sentence: str, tmp_path: Path) -> None:
    report, pairs = write_evidence(tmp_path, **OVERSIZED[sentence])
    with pytest.raises(ContractError, match="holds more than 48 MiB of answers; name a policy with fewer items or decodes"):
        await SealedEvidence(area(tmp_path)).read(CHANNEL_UID, TEST_ENTRY, report, pairs)


class StuckArea(Area):
    """A real area, whose reads wait to be let through; it knows what was read."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.begun: list[str] = []
        self.entered, self.open = threading.Event(), threading.Event()

    def read(self, name: str, limit: int) -> bytes:
        self.begun.append(name)
        self.entered.set()
        self.open.wait(30)
        return super().read(name, limit)


async def test_evidence_that_takes_long_has_one_reader_however_often_it_is_asked_for_and_is_read_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "EVIDENCE_SECONDS", 0.02)
    report, pairs = write_evidence(tmp_path)
    stuck = StuckArea(f"file://{tmp_path}")
    evidence = SealedEvidence(stuck)
    for name in (TEST_ENTRY, "support-000002", TEST_ENTRY, "support-000003", TEST_ENTRY):
        with pytest.raises(StoreError, match="is still being read"):
            await evidence.read(CHANNEL_UID, name, report, pairs)
    await asyncio.to_thread(stuck.entered.wait, 30)
    assert len(stuck.begun) == 1
    stuck.open.set()
    monkeypatch.setattr(store, "EVIDENCE_SECONDS", 30.0)
    assert len((await evidence.read(CHANNEL_UID, TEST_ENTRY, report, pairs)).rows) == 3
    assert stuck.begun.count(f"{evidence_dir(CHANNEL_UID, TEST_ENTRY)}/report.json") == 1


async def test_evidence_that_nobody_asks_for_again_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "EVIDENCE_SECONDS", 0.02)
    monkeypatch.setattr(store, "KEPT_SECONDS", 0.02)
    report, pairs = write_evidence(tmp_path)
    stuck = StuckArea(f"file://{tmp_path}")
    evidence = SealedEvidence(stuck)
    with pytest.raises(StoreError):
        await evidence.read(CHANNEL_UID, TEST_ENTRY, report, pairs)
    stuck.open.set()
    for _ in range(500):
        if not evidence._readings:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is still held")
