"""Traffic segments: waiting for open ones, adopting dead ones, reading what is whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.snapshot.segments import Clock, Window, instant, read_segment, settled_segments
from gatevalve_trainer.store import Area
from support.training import CHANNEL_UID, START, WINDOW, feedback, reply, write_segment

SPAN = Window(instant(WINDOW["window_from"]), instant(WINDOW["window_to"]))
NOW = START.timestamp() + 3610
WAIT = 120


@dataclass
class Time:
    """A clock that moves when it is slept on; `then` happens at its moments."""

    seconds: float = NOW
    then: dict[float, list[tuple[Path, Path]]] = field(default_factory=dict)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        for moment in [moment for moment in self.then if moment <= self.seconds]:
            for old, new in self.then.pop(moment):
                old.rename(new)

    def clock(self) -> Clock:
        return Clock(lambda: self.seconds, self.sleep)


def segment(data: Path, name: str, age: float, date: str = "2026-05-04", at: str | None = None) -> Path:
    """A segment of one reply that was last written `age` seconds before now."""
    path = write_segment(data, [reply(0) if at is None else reply(0, at=at)], name, date=date)
    os.utime(path, (NOW - age, NOW - age))
    return path


def settle(data: Path, time: Time) -> list[str]:
    return [path.rsplit("/", 1)[1] for path in settled_segments(Area(data.as_uri()), CHANNEL_UID, SPAN, WAIT, time.clock())]


def test_closed_segments_need_no_waiting(tmp_path: Path) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst", age=1)
    time = Time()
    assert settle(tmp_path, time) == ["pod-0-b1-0.jsonl.zst"]
    assert time.seconds == NOW


def test_the_last_replies_of_a_window_that_just_ended_are_waited_for(tmp_path: Path) -> None:
    time = Time(seconds=SPAN.end.timestamp())
    settle(tmp_path, time)
    assert time.seconds == SPAN.end.timestamp() + 2


def test_a_window_that_ends_in_the_future_is_another_try_later(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="not yet over"):
        settle(tmp_path, Time(seconds=SPAN.end.timestamp() - WAIT))


def test_an_open_segment_is_waited_for(tmp_path: Path) -> None:
    path = segment(tmp_path, "pod-0-b1-0.jsonl.zst.open", age=1)
    time = Time(then={NOW + 30: [(path, path.with_suffix(""))]})
    assert settle(tmp_path, time) == ["pod-0-b1-0.jsonl.zst"]
    assert NOW + 30 <= time.seconds < NOW + 32


def test_an_open_segment_nobody_writes_any_more_is_adopted(tmp_path: Path) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst.open", age=WAIT)
    time = Time()
    assert settle(tmp_path, time) == ["pod-0-b1-0.jsonl.zst.open"]
    assert time.seconds == NOW


def test_a_boot_that_died_just_now_is_adopted_within_the_wait(tmp_path: Path) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst.open", age=1)
    time = Time()
    assert settle(tmp_path, time) == ["pod-0-b1-0.jsonl.zst.open"]
    assert time.seconds <= NOW + WAIT


def test_a_segment_that_stays_open_and_written_ends_the_wait(tmp_path: Path) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst.open", age=-10_000)
    time = Time()
    with pytest.raises(BackendUnavailable, match=r"pod-0-b1-0\.jsonl\.zst\.open .*still open after 120 s"):
        settle(tmp_path, time)
    assert time.seconds == NOW + WAIT


def test_an_open_segment_whose_records_come_after_the_window_is_not_waited_for(tmp_path: Path) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst.open", age=1, at="2026-05-04T13:00:00Z")
    time = Time()
    settle(tmp_path, time)
    assert time.seconds == NOW


def test_an_open_segment_without_a_record_yet_is_waited_for(tmp_path: Path) -> None:
    path = segment(tmp_path, "pod-0-b1-0.jsonl.zst.open", age=1)
    path.write_bytes(b"")
    os.utime(path, (NOW - 1, NOW - 1))
    time = Time()
    settle(tmp_path, time)
    assert time.seconds > NOW


@pytest.mark.parametrize(
    ("date", "age", "read"),
    [
        pytest.param("2026-05-04", 0, True, id="the window's own date is read"),
        pytest.param("2026-05-03", 0, False, id="the day before a window that starts at noon is not read"),
        pytest.param("2026-05-05", 0, False, id="the day after is not read"),
        pytest.param("2026-05-04", 2 * 3600 + 60, False, id="a segment last written an hour before the window is not read"),
        pytest.param("2026-05-04", 2 * 3600 - 60, True, id="one written later may hold its records"),
    ],
)
def test_which_segments_may_hold_the_windows_records(tmp_path: Path, date: str, age: float, read: bool) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst", age=age, date=date)
    assert settle(tmp_path, Time()) == (["pod-0-b1-0.jsonl.zst"] if read else [])


def test_the_day_before_is_read_when_the_window_starts_at_midnight(tmp_path: Path) -> None:
    segment(tmp_path, "pod-0-b1-0.jsonl.zst", age=0, date="2026-05-03")
    span = Window(instant("2026-05-04T00:00:00Z"), SPAN.end)
    assert len(settled_segments(Area(tmp_path.as_uri()), CHANNEL_UID, span, WAIT, Time().clock())) == 1


def test_files_that_are_no_segments_are_left_alone(tmp_path: Path) -> None:
    (segment(tmp_path, "pod-0-b1-0.jsonl.zst", age=0).parent / "notes.txt").write_text("hello")
    assert settle(tmp_path, Time()) == ["pod-0-b1-0.jsonl.zst"]


def test_every_complete_frame_is_read(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [reply(0), feedback(0), reply(1)], frames=3)
    found = read_segment(Area(tmp_path.as_uri()), path.relative_to(tmp_path).as_posix())
    assert [record.kind for record in found.records] == ["reply", "feedback", "reply"]
    assert (found.torn, found.unreadable_lines, found.fact.path) == (False, 0, "traffic/2026-05-04/pod-0-b1-0.jsonl.zst")


@pytest.mark.parametrize("cut", [1, 10])
def test_a_torn_last_frame_is_counted_not_read(tmp_path: Path, cut: int) -> None:
    path = write_segment(tmp_path, [reply(0), reply(1)], frames=2)
    path.write_bytes(path.read_bytes()[:-cut])
    found = read_segment(Area(tmp_path.as_uri()), path.relative_to(tmp_path).as_posix())
    assert ([record.id for record in found.records], found.torn) == (["chatcmpl-0000"], True)


def test_bytes_that_are_no_frame_end_the_segment(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [reply(0)])
    path.write_bytes(path.read_bytes() + b"garbage, not zstd")
    found = read_segment(Area(tmp_path.as_uri()), path.relative_to(tmp_path).as_posix())
    assert (len(found.records), found.torn) == (1, True)


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    strange = reply(0).model_copy(update={"kind": "gossip"})
    path = write_segment(tmp_path, [reply(0), strange, feedback(0)])
    found = read_segment(Area(tmp_path.as_uri()), path.relative_to(tmp_path).as_posix())
    assert (len(found.records), found.unreadable_lines) == (2, 1)


def test_a_segment_closed_between_listing_and_reading_is_read_by_its_new_name(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [reply(0)])
    listed = path.relative_to(tmp_path).as_posix() + ".open"
    assert len(read_segment(Area(tmp_path.as_uri()), listed).records) == 1
