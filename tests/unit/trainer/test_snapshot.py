"""Cutting a snapshot: what is published, and that the same traffic gives the same digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SnapshotManifest
from gatevalve.contracts.jobs import SnapshotInput, SnapshotResult
from gatevalve.contracts.names import ENV_SPLIT_KEY, snapshot_dir
from gatevalve_trainer.errors import NoSignal
from gatevalve_trainer.snapshot.main import run
from gatevalve_trainer.snapshot.parquet import read_train_rows
from gatevalve_trainer.split import split_side
from support.training import CHANNEL_UID, SPLIT_KEY, Record, feedback, reply, snapshot_job, write_segment


@pytest.fixture(autouse=True)
def _split_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_SPLIT_KEY, SPLIT_KEY.hex())


def traffic(count: int = 60) -> list[Record]:
    """Replies with scores 0 and 1 in turn; every fifth is unscored."""
    scores = [feedback(number, float(number % 2)) for number in range(count) if number % 5]
    return [*(reply(number) for number in range(count)), *scores]


def cut(data: Path, **fields: Any) -> SnapshotResult:
    return run(SnapshotInput(**snapshot_job(data, **fields)))


def manifest_of(data: Path, result: SnapshotResult) -> SnapshotManifest:
    return SnapshotManifest.parse_json((data / snapshot_dir(CHANNEL_UID, result.snapshot_digest) / "MANIFEST.json").read_bytes())


def test_a_snapshot_is_named_by_its_manifest_and_holds_what_it_lists(tmp_path: Path) -> None:
    write_segment(tmp_path, traffic())
    result = cut(tmp_path)
    directory, manifest = tmp_path / snapshot_dir(CHANNEL_UID, result.snapshot_digest), manifest_of(tmp_path, result)
    assert sha256((directory / "MANIFEST.json").read_bytes()) == result.snapshot_digest
    assert [fact.path for fact in manifest.files] == ["drift/part-00000.parquet", "train/part-00000.parquet"]
    assert all(sha256((directory / fact.path).read_bytes()) == fact.sha256 for fact in manifest.files)
    rows = read_train_rows("train", (directory / "train/part-00000.parquet").read_bytes())
    assert (len(rows), manifest.rows, result.rows) == (manifest.split["train"],) * 3
    assert sum(row.score is not None for row in rows) == manifest.rewarded == result.rewarded


def test_the_same_traffic_gives_the_same_digest_however_it_was_written(tmp_path: Path) -> None:
    records = traffic()
    write_segment(tmp_path / "one", records)
    write_segment(tmp_path / "two", records)
    write_segment(tmp_path / "two", [reply(70, at="2026-05-04T13:00:01Z")], "pod-0-b1-1.jsonl.zst")
    assert cut(tmp_path / "one") == cut(tmp_path / "two") == cut(tmp_path / "two")


def test_rows_do_not_depend_on_the_order_of_records(tmp_path: Path) -> None:
    write_segment(tmp_path / "one", traffic())
    write_segment(tmp_path / "two", list(reversed(traffic())))
    one, two = (manifest_of(data, cut(data)) for data in (tmp_path / "one", tmp_path / "two"))
    assert one.files == two.files


def test_replies_outside_the_window_are_not_its_rows(tmp_path: Path) -> None:
    early, late = reply(900, at="2026-05-04T11:59:59.999Z"), reply(901, at="2026-05-04T13:00:00Z")
    write_segment(tmp_path, [*traffic(), early, late])
    assert sum(manifest_of(tmp_path, cut(tmp_path)).split.values()) == 60


def test_what_could_not_be_read_is_counted(tmp_path: Path) -> None:
    write_segment(tmp_path, [*traffic(), reply(900, exact=False), reply(901).model_copy(update={"kind": "gossip"})])
    torn = write_segment(tmp_path, [reply(902), reply(903)], "pod-0-b0-0.jsonl.zst")
    torn.write_bytes(torn.read_bytes()[:-1])
    assert manifest_of(tmp_path, cut(tmp_path)).dropped == {"notExact": 1, "unreadableLine": 1, "tornFrame": 1}


def test_nothing_of_the_sealed_side_is_in_the_snapshot(tmp_path: Path) -> None:
    write_segment(tmp_path, traffic(400))
    result = cut(tmp_path)
    parts = sorted((tmp_path / snapshot_dir(CHANNEL_UID, result.snapshot_digest)).rglob("*.parquet"))
    written = {row["row_id"] for part in parts for row in pq.read_table(part).to_pylist()}
    sealed = {f"chatcmpl-{number:04d}/0" for number in range(400) if split_side(SPLIT_KEY, f"question {number}") == "sealed"}
    assert len(sealed) == manifest_of(tmp_path, result).split["sealed"] > 0
    assert written.isdisjoint(sealed)
    assert len(written) == 400 - len(sealed)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        pytest.param([], r"0 of 0 rows carry a score", id="no traffic"),
        pytest.param([reply(number) for number in range(60)], r"0 of 5\d rows carry a score", id="no feedback"),
        pytest.param(
            [*(reply(n, exact=False) for n in range(60)), *(feedback(n) for n in range(60))], r"notExact 60", id="no exact replies"
        ),
        pytest.param([*(reply(n) for n in range(60)), *(feedback(n) for n in range(9))], r"\d of 5\d rows carry a score", id="few scores"),
    ],
)
def test_too_few_scored_rows_are_no_signal_and_nothing_is_published(tmp_path: Path, records: list[Record], said: str) -> None:
    write_segment(tmp_path, records)
    with pytest.raises(NoSignal, match=said):
        cut(tmp_path)
    assert not (tmp_path / CHANNEL_UID / "snapshots").exists()


def test_a_window_that_ends_before_it_starts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="windowTo"):
        cut(tmp_path, window_to="2026-05-04T12:00:00Z")
