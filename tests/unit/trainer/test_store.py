"""The data area: reads are checked, writes are whole or absent, published names are never reused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.files import FileFact
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
