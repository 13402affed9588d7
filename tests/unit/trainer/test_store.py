"""The data area: reads are checked, writes are whole or absent, published names are never reused."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.files import FileFact
from gatevalve_trainer.evaluate.evidence import publish_file
from gatevalve_trainer.store import Area, local_directory


@pytest.fixture
def area(tmp_path: Path) -> Area:
    return Area(tmp_path.as_uri())


def test_a_published_directory_holds_all_its_files(area: Area, tmp_path: Path) -> None:
    assert area.publish("a/b", {"MANIFEST.json": b"{}", "inner/x": b"1"})
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == {"a/b/MANIFEST.json", "a/b/inner/x"}


def test_publishing_again_changes_nothing_and_leaves_nothing(area: Area, tmp_path: Path) -> None:
    area.publish("a/b", {"x": b"first"})
    assert not area.publish("a/b", {"x": b"second", "y": b"more"})
    assert [(path.relative_to(tmp_path).as_posix(), path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()] == [
        ("a/b/x", b"first")
    ]


def test_published_files_can_be_read_by_other_users(area: Area, tmp_path: Path) -> None:
    area.publish("a/b", {"x": b"1"})
    assert ((tmp_path / "a/b").stat().st_mode & 0o755, (tmp_path / "a/b/x").stat().st_mode & 0o644) == (0o755, 0o644)


def test_writing_replaces_a_file_as_a_whole(area: Area, tmp_path: Path) -> None:
    area.write("d/x", b"one")
    area.write("d/x", b"two")
    assert [path.read_bytes() for path in (tmp_path / "d").iterdir()] == [b"two"]


def test_names_leave_out_what_a_killed_writer_left(area: Area, tmp_path: Path) -> None:
    area.write("d/x", b"1")
    (tmp_path / "d/.tmp-0123").write_bytes(b"half")
    assert area.names("d") == ["x"]
    assert area.names("absent") == []


def aged(path: Path, hours: float) -> Path:
    """The same path, last written so many hours ago."""
    then = time.time() - hours * 3600
    os.utime(path, (then, then), follow_symlinks=False)
    return path


def leavings(directory: Path, hours: float) -> None:
    """What killed writers left: half an adapter, and a file."""
    (directory / ".tmp-0123/inner").mkdir(parents=True)
    (directory / ".tmp-0123/inner/x").write_bytes(b"half")
    (directory / ".tmp-4567").write_bytes(b"half")
    aged(directory / ".tmp-0123", hours)
    aged(directory / ".tmp-4567", hours)


@pytest.mark.parametrize(("hours", "left"), [(25, []), (23, [".tmp-0123", ".tmp-4567"])], ids=["a day later", "on the same day"])
def test_publishing_sweeps_what_killed_writers_left(area: Area, tmp_path: Path, hours: float, left: list[str]) -> None:
    leavings(tmp_path / "adapters", hours)
    area.publish("adapters/b", {"x": b"1"})
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == [*left, "b"]


@pytest.mark.parametrize(("hours", "left"), [(25, []), (23, [".tmp-0123", ".tmp-4567"])], ids=["a day later", "on the same day"])
def test_publishing_evidence_sweeps_what_killed_writers_left(tmp_path: Path, hours: float, left: list[str]) -> None:
    leavings(tmp_path / "evidence", hours)
    publish_file(tmp_path / "evidence/report.json", b"{}")
    assert sorted(path.name for path in (tmp_path / "evidence").iterdir()) == [*left, "report.json"]


def test_sweeping_follows_no_link_and_takes_nothing_else(area: Area, tmp_path: Path) -> None:
    area.publish("adapters/a", {"x": b"1"})
    aged(tmp_path / "adapters/a", 1000)
    link = tmp_path / "adapters/.tmp-89ab"
    link.symlink_to("a")
    aged(link, 1000)
    area.publish("adapters/b", {"x": b"1"})
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == ["a", "b"]
    assert (tmp_path / "adapters/a/x").read_bytes() == b"1"


def test_a_missing_file_is_a_store_error(area: Area) -> None:
    with pytest.raises(StoreError, match="d/x: does not exist"):
        area.read("d/x")


def test_other_bytes_than_named_are_an_integrity_error(area: Area) -> None:
    area.write("d/x", b"other")
    with pytest.raises(IntegrityError, match="d/x: bytes have digest"):
        area.read_named("d", FileFact(path="x", size=5, sha256=sha256(b"named")))


@pytest.mark.parametrize("url", ["s3://bucket/x", "https://example.org/x"])
def test_other_protocols_are_refused_by_name(url: str) -> None:
    with pytest.raises(ContractError, match="is not supported; give a file:// URL"):
        Area(url)


def test_a_directory_may_be_named_by_url_or_by_path(tmp_path: Path) -> None:
    assert local_directory("base.uri", tmp_path.as_uri()) == local_directory("base.uri", str(tmp_path)) == tmp_path
    with pytest.raises(ContractError, match=r"base\.uri: .* is not a directory"):
        local_directory("base.uri", str(tmp_path / "absent"))
