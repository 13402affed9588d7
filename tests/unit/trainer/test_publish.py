"""Publishing: what a Job left in work/ becomes an adapter of the channel once, verified, and never changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import Digest
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.jobs import PublishInput
from gatevalve.contracts.kinds import AdapterShape
from gatevalve.contracts.names import adapter_dir, arm_dir, work_dir
from gatevalve_trainer.adapter.files import adapter_digest
from gatevalve_trainer.publish import run
from support.made_adapters import made_adapter
from support.training import CANDIDATE_UID, CHANNEL_UID, SHAPE, job, tiny_base

WORK = f"{work_dir(CHANNEL_UID, CANDIDATE_UID)}/train-1"
OTHER_DIGEST = f"sha256:{'1' * 64}"


def made(data: Path, weights: bytes = b"weights", config: bytes | None = None, **changes: Any) -> Digest:
    """An adapter in work/ as train leaves it; publish never looks into the weights."""
    return made_adapter(data / WORK, weights, config, **changes)


def publish(data: Path, digest: str, **fields: Any) -> None:
    wanted = {"arms": arms(data).as_uri(), "base": tiny_base(), "adapter": SHAPE, "adapter_digest": digest, "produced_by": "train-1"}
    run(PublishInput(**job("publish", data, **{**wanted, **fields})))


def arms(data: Path) -> Path:
    """The evaluation Pod's own directory."""
    return data.parent / f"{data.name}-arms"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_adapter_is_published_under_its_digest(tmp_path: Path) -> None:
    digest = made(tmp_path)
    publish(tmp_path, digest)
    assert contents(tmp_path / adapter_dir(CHANNEL_UID, digest)) == contents(tmp_path / WORK)


def test_publishing_again_is_done_and_changes_nothing(tmp_path: Path) -> None:
    digest = made(tmp_path)
    publish(tmp_path, digest)
    before = (tmp_path / adapter_dir(CHANNEL_UID, digest)).stat().st_mtime_ns
    publish(tmp_path, digest)
    assert (tmp_path / adapter_dir(CHANNEL_UID, digest)).stat().st_mtime_ns == before


def test_only_the_adapter_is_published_not_what_else_lies_in_work(tmp_path: Path) -> None:
    digest = made(tmp_path)
    (tmp_path / WORK / "checkpoint.safetensors").write_bytes(b"x")
    publish(tmp_path, digest)
    assert set(contents(tmp_path / adapter_dir(CHANNEL_UID, digest))) == {
        "MANIFEST.json",
        "adapter_config.json",
        "adapter_model.safetensors",
    }


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "MANIFEST.json"])
def test_a_name_taken_by_other_bytes_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    digest = made(tmp_path)
    publish(tmp_path, digest)
    taken = tmp_path / adapter_dir(CHANNEL_UID, digest) / name
    taken.write_bytes(b"{}")
    with pytest.raises(ContractError, match="exists with other content"):
        publish(tmp_path, digest)
    assert taken.read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_bytes_that_changed_since_training_are_refused(tmp_path: Path, name: str) -> None:
    digest = made(tmp_path)
    (tmp_path / WORK / name).write_bytes(b"{}")
    with pytest.raises(IntegrityError, match=name):
        publish(tmp_path, digest)
    assert not (tmp_path / adapter_dir(CHANNEL_UID, digest)).exists()


def test_an_adapter_with_another_digest_than_asked_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(IntegrityError, match="expected sha256:0000"):
        publish(tmp_path, f"sha256:{'0' * 64}")


@pytest.mark.parametrize("name", ["MANIFEST.json", "adapter_model.safetensors"])
def test_an_attempt_that_lacks_a_file_is_refused(tmp_path: Path, name: str) -> None:
    digest = made(tmp_path)
    (tmp_path / WORK / name).unlink()
    with pytest.raises(ContractError, match=rf"producedBy: .*{name}: does not exist; .*apply a new candidate"):
        publish(tmp_path, digest)


ARMS = ("incumbent_digest", "anchor_digest")


def test_the_engine_gets_a_copy_of_every_arm_and_nothing_else(tmp_path: Path) -> None:
    published, candidate = two_adapters(tmp_path)
    publish(tmp_path, candidate, incumbent_digest=published, anchor_digest=published)
    assert sorted(path.name for path in arms(tmp_path).iterdir()) == sorted(arm_dir(digest) for digest in (published, candidate))
    for digest in (published, candidate):
        assert adapter_digest(contents(arms(tmp_path) / arm_dir(digest))) == digest


def test_a_pod_that_starts_again_hands_over_the_same_arms(tmp_path: Path) -> None:
    published, candidate = two_adapters(tmp_path)
    publish(tmp_path, candidate, incumbent_digest=published)
    shutil.rmtree(arms(tmp_path) / arm_dir(published))  # killed between two arms
    publish(tmp_path, candidate, incumbent_digest=published)
    assert adapter_digest(contents(arms(tmp_path) / arm_dir(published))) == published


def test_an_arm_that_is_there_with_other_bytes_is_refused(tmp_path: Path) -> None:
    published, candidate = two_adapters(tmp_path)
    publish(tmp_path, candidate, incumbent_digest=published)
    (arms(tmp_path) / arm_dir(published) / "adapter_model.safetensors").write_bytes(b"other")
    with pytest.raises(IntegrityError, match="holds other bytes than were verified"):
        publish(tmp_path, candidate, incumbent_digest=published)


def two_adapters(data: Path) -> tuple[Digest, Digest]:
    """A published adapter, and a candidate in work/."""
    published = made(data, b"incumbent")
    publish(data, published)
    return published, made(data, b"candidate")


@pytest.mark.parametrize("arm", ARMS)
def test_a_candidate_is_published_beside_a_sound_arm(tmp_path: Path, arm: str) -> None:
    published, candidate = two_adapters(tmp_path)
    publish(tmp_path, candidate, **{arm: published})
    assert (tmp_path / adapter_dir(CHANNEL_UID, candidate)).is_dir()


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "MANIFEST.json"])
@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"junk"), lambda path: path.unlink()], ids=["changed", "missing"])
def test_an_arm_that_is_not_what_the_log_names_is_refused_by_its_field(
    tmp_path: Path, arm: str, name: str, spoil: Callable[[Path], object]
) -> None:
    published, candidate = two_adapters(tmp_path)
    spoil(tmp_path / adapter_dir(CHANNEL_UID, published) / name)
    with pytest.raises(ContractError, match=f"^{arm.partition('_')[0]}Digest: "):
        publish(tmp_path, candidate, **{arm: published})
    assert not (tmp_path / adapter_dir(CHANNEL_UID, candidate)).exists()


def test_an_arm_made_on_another_base_is_refused(tmp_path: Path) -> None:
    published, candidate = two_adapters(tmp_path)
    manifest = tmp_path / adapter_dir(CHANNEL_UID, published) / "MANIFEST.json"
    manifest.write_bytes(AdapterManifest.parse_json(manifest.read_bytes()).model_copy(update={"base_digest": OTHER_DIGEST}).canonical())
    with pytest.raises(ContractError, match=r"incumbentDigest: .*baseDigest"):
        publish(tmp_path, candidate, incumbent_digest=published)


def test_a_base_with_other_bytes_than_the_channels_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"not the channel's")
    candidate = made(tmp_path)
    with pytest.raises(IntegrityError, match=r"base\.digest: "):
        publish(tmp_path, candidate, base=tiny_base().model_copy(update={"uri": base.as_uri()}))
    assert not (tmp_path / adapter_dir(CHANNEL_UID, candidate)).exists()


@pytest.mark.parametrize(
    ("changes", "fields", "problem"),
    [
        pytest.param({"base_digest": f"sha256:{'1' * 64}"}, {}, "baseDigest", id="made on another base"),
        pytest.param({"rank": 16}, {}, r"adapter\.r: rank 16 is above the channel's 8", id="a higher rank than the channel's"),
        pytest.param(
            {}, {"adapter": AdapterShape(rank=8, alpha=16, target_modules=("q_proj",))}, "v_proj are not layers", id="other layers"
        ),
        pytest.param({"config": b'{"r":8}'}, {}, r"adapter_config\.json: does not say", id="a configuration that says something else"),
        pytest.param({"alpha": 32}, {}, r"adapter_config\.json: does not say", id="a manifest that says something else"),
    ],
)
def test_an_adapter_that_does_not_fit_the_channel_is_refused(
    tmp_path: Path, changes: dict[str, Any], fields: dict[str, Any], problem: str
) -> None:
    digest = made(tmp_path, **changes)
    with pytest.raises(ContractError, match=problem):
        publish(tmp_path, digest, **fields)
    assert not (tmp_path / adapter_dir(CHANNEL_UID, digest)).exists()
