"""Publishing a sentinel: the engine gets its arms, and nothing of it is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import Digest
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import PublishInput
from gatevalve.contracts.kinds import AdapterShape, SentinelKind, SentinelRef
from gatevalve.contracts.names import adapter_dir, arm_dir, work_dir
from gatevalve_trainer.publish import run
from support.made_adapters import made_adapter
from support.training import CANDIDATE_UID, CHANNEL_UID, SHAPE, job, tiny_base


def publish(data: Path, kind: SentinelKind, number: int = 3, **fields: Any) -> None:
    ref = SentinelRef(kind=kind, number=number)
    wanted = {"arms": arms(data).as_uri(), "base": tiny_base(), "adapter": SHAPE, "adapter_digest": ref.digest_of(), "sentinel": ref}
    run(PublishInput.model_validate(job("sentinel", data, **{**wanted, **fields})))


def arms(data: Path) -> Path:
    """The evaluation Pod's own directory."""
    return data.parent / f"{data.name}-arms"


def handed_over(data: Path) -> dict[str, dict[str, bytes]]:
    """Files of every arm that the engine gets."""
    return {folder.name: {path.name: path.read_bytes() for path in folder.iterdir()} for folder in arms(data).iterdir()}


def published(data: Path) -> Digest:
    """An adapter that a candidate became."""
    work = data / work_dir(CHANNEL_UID, CANDIDATE_UID) / "train-1"
    digest = made_adapter(work, b"incumbent", None)
    fields = {"arms": f"file://{data}-first", "base": tiny_base(), "adapter": SHAPE, "adapter_digest": digest, "produced_by": "train-1"}
    run(PublishInput.model_validate(job("publish", data, **fields)))
    return digest


def tree(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_noise_is_handed_to_the_engine_under_its_recipe_and_published_nowhere(tmp_path: Path) -> None:
    incumbent = published(tmp_path)
    before = tree(tmp_path)
    publish(tmp_path, "Bad", incumbent_digest=incumbent)
    noise = arm_dir(SentinelRef(kind="Bad", number=3).digest_of())
    assert set(handed_over(tmp_path)) == {noise, arm_dir(incumbent)}
    assert set(handed_over(tmp_path)[noise]) == {"adapter_config.json", "adapter_model.safetensors"}
    assert tree(tmp_path) == before


def test_the_incumbent_against_itself_needs_nothing_but_the_incumbent(tmp_path: Path) -> None:
    incumbent = published(tmp_path)
    publish(tmp_path, "Same", incumbent_digest=incumbent)
    assert set(handed_over(tmp_path)) == {arm_dir(incumbent)}


def test_a_pod_that_starts_again_hands_over_the_same_noise_and_the_next_sentinel_other(tmp_path: Path) -> None:
    publish(tmp_path, "Bad")
    first = handed_over(tmp_path)
    publish(tmp_path, "Bad")
    assert handed_over(tmp_path) == first
    publish(tmp_path, "Bad", number=4)
    weights = [files["adapter_model.safetensors"] for files in handed_over(tmp_path).values()]
    assert len(set(weights)) == 2


def test_an_incumbent_that_is_not_what_the_log_names_is_refused_as_for_a_candidate(tmp_path: Path) -> None:
    incumbent = published(tmp_path)
    (tmp_path / adapter_dir(CHANNEL_UID, incumbent) / "adapter_model.safetensors").write_bytes(b"junk")
    with pytest.raises(ContractError, match=r"^incumbentDigest: "):
        publish(tmp_path, "Same", incumbent_digest=incumbent)


def test_a_sentinel_under_the_digest_of_an_adapter_is_refused(tmp_path: Path) -> None:
    incumbent = published(tmp_path)
    with pytest.raises(ContractError, match="adapterDigest: is sha256"):
        publish(tmp_path, "Bad", adapter_digest=incumbent)
    assert not arms(tmp_path).exists()


def test_layers_that_the_base_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="w_gate names no inner linear layer"):
        publish(tmp_path, "Bad", adapter=AdapterShape(rank=8, alpha=16, target_modules=("w_gate",)))


@pytest.mark.parametrize("fields", [{"produced_by": "train-1"}, {"sentinel": None}], ids=["both", "neither"])
def test_an_input_names_either_an_attempt_or_a_sentinel(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="set exactly one of producedBy or sentinel"):
        publish(tmp_path, "Bad", **fields)
