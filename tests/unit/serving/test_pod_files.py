"""What a pod reads from its mounts: environment, ConfigMap files, the base, and published adapters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import AdapterOnPod
from gatevalve_serving.base import read_base
from gatevalve_serving.config import Settings
from gatevalve_serving.fetch import LocalAdapter, fetch, local_path
from gatevalve_serving.pool_files import PoolFiles
from gatevalve_serving.problem import AdapterProblem
from gatevalve_serving.safetensors_file import not_finite
from support.serving import lora_config, lora_tensors, publish, scripted_probes, tiny_base, write_peft

ENVIRONMENT = {
    "GATEVALVE_NAMESPACE": "shop",
    "GATEVALVE_POOL": "pool-a",
    "GATEVALVE_POD_NAME": "pool-a-0",
    "GATEVALVE_POD_UID": "uid",
    "GATEVALVE_KEY_SHA256": "sha256:1",
}


def test_settings_come_from_the_environment_with_the_charts_mounts_as_defaults() -> None:
    settings = Settings.from_environment(ENVIRONMENT)
    assert (settings.pod, str(settings.pool_path), settings.data_url) == ("pool-a-0", "/gatevalve/pool", "file:///gatevalve/data")


def test_every_process_start_is_another_boot() -> None:
    assert Settings.from_environment(ENVIRONMENT).boot != Settings.from_environment(ENVIRONMENT).boot


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(ContractError, match=f"{name}: is not set"):
        Settings.from_environment({**ENVIRONMENT, name: ""})


def test_a_file_is_read_once_and_again_when_the_kubelet_swaps_it(tmp_path: Path) -> None:
    """The kubelet's layout: <key> -> ..data/<key>, and ..data -> a directory that is replaced."""
    pool = PoolFiles(tmp_path)
    for version in ("one", "two"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "support").write_text(version)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "support").symlink_to("..data/support")
    assert pool.changed() == {"support": b"one"}
    assert pool.changed() == {}
    (tmp_path / "..tmp").symlink_to("..two")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert pool.changed() == {"support": b"two"}


def test_a_forgotten_file_is_given_again(tmp_path: Path) -> None:
    pool = PoolFiles(tmp_path)
    (tmp_path / "support").write_text("x")
    pool.changed()
    pool.forget("support")
    assert pool.changed() == {"support": b"x"}


def test_only_channel_names_are_channels(tmp_path: Path) -> None:
    for name in ("Support", "a.json", "..2026"):
        (tmp_path / name).write_text("x")
    assert PoolFiles(tmp_path).changed() == {}
    assert PoolFiles(tmp_path / "none").changed() == {}


def test_the_base_is_hashed_once_per_set_of_files(tmp_path: Path) -> None:
    base, cache = tiny_base(tmp_path / "base"), tmp_path / "cache" / "base.json"
    first = read_base(base, cache)
    assert first.digest == directory_digest(base)
    assert first.shapes["model.layers.1.mlp.down_proj.weight"] == (8, 16)
    known = json.loads(cache.read_text())
    cache.write_text(json.dumps(known | {"digest": "sha256:remembered"}))
    assert read_base(base, cache).digest == "sha256:remembered"
    os.utime(base / "config.json", (1, 1))
    assert read_base(base, cache).digest == first.digest


@pytest.mark.parametrize(
    "break_it", [lambda base: None, lambda base: (base / "model.safetensors").write_bytes(b"x")], ids=["absent", "torn"]
)
def test_a_base_that_cannot_be_read_says_why(tmp_path: Path, break_it: Callable[[Path], object]) -> None:
    path = tmp_path / "nowhere"
    if break_it(tiny_base(tmp_path / "base")) is not None:
        path = tmp_path / "base"
    found = read_base(path, tmp_path / "cache.json")
    assert found.digest is None
    assert str(path) in (found.problem or "")


def published(tmp_path: Path) -> tuple[Path, AdapterOnPod]:
    write_peft(tmp_path / "peft", lora_tensors(0), lora_config())
    data = tmp_path / "data"
    adapter = publish(data, tmp_path / "peft", "sha256:" + "1" * 64, scripted_probes(tmp_path / "peft"))
    return data, adapter


def fetched(tmp_path: Path, data: Path, adapter: AdapterOnPod) -> LocalAdapter:
    return fetch(f"file://{data}", adapter, local_path(tmp_path / "cache", "support", adapter))


def test_every_channel_and_name_has_a_directory_of_its_own_for_the_same_bytes(tmp_path: Path) -> None:
    _, adapter = published(tmp_path)
    renamed = adapter.model_copy(update={"name": "../another"})
    paths = [local_path(tmp_path, channel, named) for channel in ("support", "sales") for named in (adapter, renamed)]
    assert len(set(paths)) == 4
    assert {path.parent for path in paths} == {tmp_path}


def test_a_published_adapter_is_copied_byte_by_byte_to_its_own_directory(tmp_path: Path) -> None:
    data, adapter = published(tmp_path)
    local = fetched(tmp_path, data, adapter)
    assert local.path == local_path(tmp_path / "cache", "support", adapter)
    assert (local.path / ADAPTER_WEIGHTS).read_bytes() == (data / adapter.uri / ADAPTER_WEIGHTS).read_bytes()
    assert local.manifest.digest == adapter.digest
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [local.path.name]


def test_a_good_local_copy_needs_no_store(tmp_path: Path) -> None:
    data, adapter = published(tmp_path)
    fetched(tmp_path, data, adapter)
    data.rename(tmp_path / "gone")
    assert fetched(tmp_path, data, adapter).manifest.digest == adapter.digest


def test_a_spoilt_local_copy_is_fetched_again(tmp_path: Path) -> None:
    data, adapter = published(tmp_path)
    weights = fetched(tmp_path, data, adapter).path / ADAPTER_WEIGHTS
    good = weights.read_bytes()
    weights.write_bytes(good[:-1])
    fetched(tmp_path, data, adapter)
    assert weights.read_bytes() == good


def link_elsewhere(copy: Path) -> None:
    elsewhere = copy.rename(copy.with_name("elsewhere"))
    copy.symlink_to(elsewhere)


def file_instead(copy: Path) -> None:
    copy.rename(copy.with_name("elsewhere"))
    copy.write_text("x")


def link_weights(copy: Path) -> None:
    weights = copy / ADAPTER_WEIGHTS
    weights.symlink_to(weights.rename(copy.parent / "weights"))


CHANGED: dict[str, Callable[[Path], object]] = {
    "a file more": lambda copy: (copy / "adapter_model.bin").write_bytes(b"a pickle"),
    "a directory more": lambda copy: (copy / "more").mkdir(),
    "weights that are a link": link_weights,
    "a link in its place": link_elsewhere,
    "a file in its place": file_instead,
    "no MANIFEST": lambda copy: (copy / MANIFEST).unlink(),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_a_local_copy_that_somebody_changed_is_made_anew_from_the_store(tmp_path: Path, change: Callable[[Path], object]) -> None:
    data, adapter = published(tmp_path)
    copy = fetched(tmp_path, data, adapter).path
    change(copy)
    fetched(tmp_path, data, adapter)
    assert not copy.is_symlink()
    assert sorted(path.name for path in copy.iterdir()) == [MANIFEST, ADAPTER_CONFIG, ADAPTER_WEIGHTS]
    assert not any(path.is_symlink() for path in copy.iterdir())
    assert (copy / ADAPTER_WEIGHTS).read_bytes() == (data / adapter.uri / ADAPTER_WEIGHTS).read_bytes()


def test_what_lies_beside_the_two_files_never_comes_along(tmp_path: Path) -> None:
    data, adapter = published(tmp_path)
    (data / adapter.uri / "adapter_model.bin").write_bytes(b"a pickle")
    local = fetched(tmp_path, data, adapter)
    assert sorted(path.name for path in local.path.iterdir()) == [MANIFEST, ADAPTER_CONFIG, ADAPTER_WEIGHTS]


def edit_manifest(path: Path, **changes: object) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | changes))


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Something else in the place of a published adapter's file."""

    def spoil(path: Path) -> None:
        (path / name).unlink()
        make(path / name)

    return spoil


SPOILT: dict[str, tuple[Callable[[Path], object], PodReason]] = {
    "no directory": (lambda path: path.rename(path.with_name("elsewhere")), PodReason.ADAPTER_MISSING),
    "no MANIFEST, as while it is being published": (lambda path: (path / MANIFEST).unlink(), PodReason.ADAPTER_MISSING),
    "no weights": (lambda path: (path / ADAPTER_WEIGHTS).unlink(), PodReason.ADAPTER_MISSING),
    "a flipped byte": (
        lambda path: rewrite(path / ADAPTER_WEIGHTS, lambda raw: raw[:-1] + b"\xff"),
        PodReason.DIGEST_MISMATCH,
    ),
    "a byte too many": (lambda path: rewrite(path / ADAPTER_WEIGHTS, lambda raw: raw + b"x"), PodReason.DIGEST_MISMATCH),
    "a MANIFEST of another adapter": (lambda path: edit_manifest(path, digest="sha256:" + "9" * 64), PodReason.DIGEST_MISMATCH),
    "weights that are a directory": (
        instead(ADAPTER_WEIGHTS, Path.mkdir),
        PodReason.ADAPTER_UNSUPPORTED,
    ),
    "weights that are a pipe": (
        instead(ADAPTER_WEIGHTS, os.mkfifo),
        PodReason.ADAPTER_UNSUPPORTED,
    ),
    "weights that lead to another file": (
        instead(ADAPTER_WEIGHTS, lambda path: path.symlink_to("/etc/hostname")),
        PodReason.DIGEST_MISMATCH,
    ),
    "a MANIFEST that never ends": (
        instead(MANIFEST, lambda path: path.symlink_to("/dev/zero")),
        PodReason.ADAPTER_UNSUPPORTED,
    ),
    "a MANIFEST that nests too deep": (lambda path: (path / MANIFEST).write_text("[" * 100_000), PodReason.ADAPTER_UNSUPPORTED),
    "a MANIFEST with other files": (lambda path: edit_manifest(path, files=[]), PodReason.ADAPTER_UNSUPPORTED),
    "a MANIFEST that is none": (lambda path: (path / MANIFEST).write_text("{}"), PodReason.ADAPTER_UNSUPPORTED),
}


@pytest.mark.parametrize(("spoil", "reason"), SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_adapter_leaves_nothing_behind(tmp_path: Path, spoil: Callable[[Path], object], reason: PodReason) -> None:
    data, adapter = published(tmp_path)
    spoil(data / adapter.uri)
    with pytest.raises(AdapterProblem) as caught:
        fetched(tmp_path, data, adapter)
    assert caught.value.problem.reason is reason
    assert list((tmp_path / "cache").glob("*")) == []


def test_a_file_longer_than_stated_is_cut_off_and_does_not_fill_the_disk(tmp_path: Path) -> None:
    data, adapter = published(tmp_path)
    stated = (data / adapter.uri / ADAPTER_WEIGHTS).stat().st_size
    os.truncate(data / adapter.uri / ADAPTER_WEIGHTS, 8 << 20)
    with pytest.raises(AdapterProblem, match="does not have the size"):
        fetched(tmp_path, data, adapter)
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.safetensors")) <= stated


@pytest.mark.parametrize("uri", ["/etc/{hex}", "../{hex}", "u/../../{hex}", "s3://bucket/{hex}", "u/adapters/other"])
def test_an_adapter_outside_the_data_area_is_refused(tmp_path: Path, uri: str) -> None:
    data, adapter = published(tmp_path)
    named = adapter.model_copy(update={"uri": uri.format(hex=adapter.digest.removeprefix("sha256:"))})
    with pytest.raises(AdapterProblem, match="is not <channel uid>/adapters/"):
        fetched(tmp_path, data, named)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.finfo(np.float16).max])
def test_only_finite_numbers_are_finite(tmp_path: Path, dtype: type, value: float) -> None:
    save_file({"good": np.ones(3, dtype), "odd": np.array([1, value], dtype)}, tmp_path / "x.safetensors")
    assert not_finite(tmp_path / "x.safetensors") == ([] if np.isfinite(value) else ["odd"])


def test_bfloat16_is_read_too(tmp_path: Path) -> None:
    raw = np.array([0x3F80, 0x7F80], np.uint16).tobytes()
    header = json.dumps({"t": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + raw)
    assert not_finite(tmp_path / "x.safetensors") == ["t"]
