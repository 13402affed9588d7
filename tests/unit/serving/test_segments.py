"""Traffic segments on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from gatevalve.contracts.errors import ContractError
from gatevalve_serving import segments as module
from gatevalve_serving.segments import Segments


def lines_of(path: Path) -> list[str]:
    with zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True) as stream:
        return stream.read().decode().splitlines()


def files(data: Path) -> list[str]:
    return sorted(path.name for path in data.rglob("*.zst*"))


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[Segments]:
    made = Segments(f"file://{tmp_path}", "pod-b00t")
    yield made
    made.close()


def test_an_open_segment_is_readable_frame_by_frame(tmp_path: Path, segments: Segments) -> None:
    for number in range(3):
        segments.add("support", "uid", 60, json.dumps({"n": number}).encode())
        assert segments.flush() == {}
    (path,) = tmp_path.rglob("*.open")
    assert path.parent.parent == tmp_path / "uid" / "traffic"
    assert path.name == "pod-b00t-000001.jsonl.zst.open"
    assert lines_of(path) == ['{"n": 0}', '{"n": 1}', '{"n": 2}']


def test_nothing_said_leaves_no_file(tmp_path: Path, segments: Segments) -> None:
    segments.flush()
    segments.close()
    assert files(tmp_path) == []


def test_a_segment_is_closed_when_its_time_is_up_also_an_idle_one(tmp_path: Path, segments: Segments) -> None:
    segments.add("support", "uid", 0, b"{}")
    segments.flush()
    assert files(tmp_path) == ["pod-b00t-000001.jsonl.zst"]
    segments.add("support", "uid", 60, b"{}")
    segments.flush()
    assert files(tmp_path) == ["pod-b00t-000001.jsonl.zst", "pod-b00t-000002.jsonl.zst.open"]


def test_a_full_segment_is_closed(tmp_path: Path, segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_SEGMENT", 10)
    segments.add("support", "uid", 60, b"x" * 100)
    segments.flush()
    assert files(tmp_path) == ["pod-b00t-000001.jsonl.zst"]


def test_a_segment_never_crosses_midnight(tmp_path: Path, segments: Segments, monkeypatch: pytest.MonkeyPatch) -> None:
    segments.add("support", "uid", 3600, b"{}")
    monkeypatch.setattr(module, "_today", lambda: "2999-01-01")
    segments.flush()
    segments.add("support", "uid", 3600, b"{}")
    segments.flush()
    assert files(tmp_path) == ["pod-b00t-000001.jsonl.zst", "pod-b00t-000002.jsonl.zst.open"]


def test_closing_writes_what_was_not_flushed(tmp_path: Path, segments: Segments) -> None:
    segments.add("support", "uid", 60, b"last words")
    segments.close()
    (path,) = tmp_path.rglob("*.zst")
    assert lines_of(path) == ["last words"]


def test_channels_do_not_share_segments(tmp_path: Path, segments: Segments) -> None:
    segments.add("support", "uid-1", 60, b"{}")
    segments.add("sales", "uid-2", 60, b"{}")
    segments.close()
    assert [len(files(tmp_path / uid)) for uid in ("uid-1", "uid-2")] == [1, 1]


def test_lines_that_cannot_be_written_are_counted_and_the_next_go_to_a_new_segment(tmp_path: Path, segments: Segments) -> None:
    segments.add("support", "uid", 60, b"{}")
    segments._open["uid"].file.close()  # as a volume that went away
    segments._open["uid"].file = open("/dev/full", "wb")  # noqa: PTH123, SIM115
    assert segments.flush() == {"support": 1}
    segments.add("support", "uid", 60, b"next")
    assert segments.flush() == {}
    newest = max(tmp_path.rglob("*.open"), key=lambda path: path.name)
    assert lines_of(newest) == ["next"]


def test_a_segment_that_cannot_be_opened_costs_its_line(tmp_path: Path, segments: Segments) -> None:
    (tmp_path / "uid").write_text("a file where the channel's directory should be")
    segments.add("support", "uid", 60, b"{}")
    assert segments.flush() == {"support": 1}


def test_a_data_area_without_appends_is_refused_with_the_remedy() -> None:
    with pytest.raises(ContractError, match=r"GATEVALVE_DATA_URL.*mount the data area"):
        Segments("memory://x", "pod").check()


def test_writing_is_quick_enough_for_a_busy_pod(segments: Segments) -> None:
    line, started = b'{"kind":"reply"}' * 100, time.monotonic()
    for _ in range(2000):
        segments.add("support", "uid", 60, line)
    segments.flush()
    assert time.monotonic() - started < 5
