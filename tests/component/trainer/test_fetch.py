"""Adapters made elsewhere: written by PEFT as people do, accepted or refused with field and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.jobs import AdapterResult, FetchInput
from gatevalve.contracts.kinds import Artifact
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST, work_dir
from gatevalve_trainer.fetch.main import run
from support.training import CANDIDATE_UID, CHANNEL_UID, SHAPE, job, tiny_base
from support.words import load_model

pytestmark = pytest.mark.component

FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"


def peft_directory(path: Path, **changes: Any) -> Path:
    """A PEFT adapter with random weights, saved as people save it."""
    torch.manual_seed(5)
    config: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    model = get_peft_model(load_model(), LoraConfig(**{**config, **changes}))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(str(path))
    return path


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return peft_directory(tmp_path_factory.mktemp("elsewhere") / "adapter")


@pytest.fixture
def artifact(elsewhere: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    copy = tmp_path / "artifact"
    copy.mkdir()
    for file in elsewhere.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def fetch(directory: Path, data: Path, **fields: Any) -> AdapterResult:
    named = Artifact(uri=directory.as_uri(), digest=directory_digest(directory))
    wanted = {"base": tiny_base(), "adapter": SHAPE, "artifact": named}
    return run(FetchInput(**job("fetch", data, **{**wanted, **fields})))


def written(data: Path) -> Path:
    return data / work_dir(CHANNEL_UID, CANDIDATE_UID) / "fetch-1"


def test_an_adapter_saved_by_peft_becomes_one_of_ours(artifact: Path, tmp_path: Path) -> None:
    result = fetch(artifact, tmp_path / "data")
    manifest = AdapterManifest.parse_json((written(tmp_path / "data") / MANIFEST).read_bytes())
    assert (manifest.digest, manifest.files_digest()) == (result.adapter_digest, result.adapter_digest)
    assert (manifest.rank, manifest.alpha, manifest.target_modules) == (4, 8, ("q_proj", "v_proj"))
    assert (manifest.artifact_digest, manifest.base_digest) == (directory_digest(artifact), tiny_base().digest)
    ours, theirs = (load_file(directory / ADAPTER_WEIGHTS) for directory in (written(tmp_path / "data"), artifact))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())
    assert {path.name for path in written(tmp_path / "data").iterdir()} == {ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST}
    assert len(manifest.probes) == 8


def test_the_same_artifact_gives_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    fetch(artifact, tmp_path / "one")
    fetch(artifact, tmp_path / "two")
    one, two = ({path.name: path.read_bytes() for path in written(tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def config_change(**changes: Any) -> Callable[[Path], None]:
    def spoil(artifact: Path) -> None:
        config = json.loads((artifact / ADAPTER_CONFIG).read_bytes())
        (artifact / ADAPTER_CONFIG).write_text(json.dumps({**config, **changes}))

    return spoil


def tensor_change(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[Path], None]:
    def spoil(artifact: Path) -> None:
        save_file(change(load_file(artifact / ADAPTER_WEIGHTS)), artifact / ADAPTER_WEIGHTS)

    return spoil


def extra_file(name: str) -> Callable[[Path], None]:
    def spoil(artifact: Path) -> None:
        (artifact / name).write_bytes(b"x")

    return spoil


REFUSALS = [
    pytest.param(extra_file("adapter_model.bin"), r"artifact\.adapter_model\.bin: .*pickles are never read", id="a pickle"),
    pytest.param(extra_file("tokenizer.json"), r"artifact\.tokenizer\.json: is no file of an adapter", id="a file that is no adapter's"),
    pytest.param(extra_file(".hidden.bin"), r"artifact\.\.hidden\.bin", id="a hidden file, which the digest leaves out"),
    pytest.param(lambda a: (a / ADAPTER_WEIGHTS).unlink(), r"adapter_model\.safetensors: is missing", id="no weights"),
    pytest.param(lambda a: (a / ADAPTER_CONFIG).unlink(), r"adapter_config\.json: is missing", id="no configuration"),
    pytest.param(lambda a: (a / ADAPTER_WEIGHTS).write_bytes(b"PK"), "is not safetensors", id="weights that are no safetensors"),
    pytest.param(config_change(use_dora=True), r"adapter_config\.json\.use_dora: is true", id="DoRA"),
    pytest.param(config_change(modules_to_save=["lm_head"]), r"modules_to_save", id="saved modules"),
    pytest.param(config_change(bias="lora_only"), r"adapter_config\.json\.bias", id="trained biases"),
    pytest.param(config_change(r=16), r"rank 16 is above the channel's 8", id="a rank above the channel's"),
    pytest.param(config_change(r=8), r"has shape \(4, 64\), the base needs \(8, 64\)", id="another rank than the tensors have"),
    pytest.param(tensor_change(lambda t: {k: v for k, v in t.items() if k != FIRST}), "lora_B.weight: is missing", id="a missing tensor"),
    pytest.param(
        tensor_change(lambda t: {k.replace("layers.3", "layers.4"): v for k, v in t.items()}), r"layers\.3.*is missing", id="another depth"
    ),
    pytest.param(
        tensor_change(lambda t: {**t, "base_model.model.lm_head.weight": torch.ones(2)}), "lm_head.weight: is no LoRA", id="a full layer"
    ),
    pytest.param(
        tensor_change(lambda t: {k.replace("v_proj", "qkv_proj"): v for k, v in t.items()}),
        "qkv_proj are not layers",
        id="layers of another kind",
    ),
    pytest.param(tensor_change(lambda t: {**t, FIRST: t[FIRST] * float("nan")}), "q_proj.lora_B.weight: holds NaN", id="NaN"),
    pytest.param(tensor_change(lambda t: {k: v * 0 if "_B" in k else v for k, v in t.items()}), "every B is zero", id="no effect"),
    pytest.param(tensor_change(lambda t: {k: v * 1e-9 for k, v in t.items()}), "moves no probed log-probability", id="no visible effect"),
    pytest.param(
        tensor_change(lambda t: {k: v.to(torch.float8_e4m3fn) for k, v in t.items()}), "dtype torch.float8", id="a dtype for storage only"
    ),
]


@pytest.mark.parametrize(("spoil", "said"), REFUSALS)
def test_what_cannot_be_served_as_trained_is_refused(artifact: Path, tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    spoil(artifact)
    with pytest.raises(ContractError, match=said):
        fetch(artifact, tmp_path / "data")
    assert not (written(tmp_path / "data") / MANIFEST).exists()


def test_other_bytes_than_the_candidate_names_are_refused(artifact: Path, tmp_path: Path) -> None:
    named = Artifact(uri=artifact.as_uri(), digest=f"sha256:{'0' * 64}")
    with pytest.raises(IntegrityError, match=r"artifact\.digest: .*copy it again or correct the digest"):
        fetch(artifact, tmp_path / "data", artifact=named)


def test_an_artifact_that_is_not_there_is_refused(artifact: Path, tmp_path: Path) -> None:
    named = Artifact(uri=(tmp_path / "absent").as_uri(), digest=f"sha256:{'0' * 64}")
    with pytest.raises(ContractError, match=r"artifact\.uri: .* is not a directory"):
        fetch(artifact, tmp_path / "data", artifact=named)


def test_a_rank_that_the_engine_cannot_hold_is_refused(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="rank 4 is above the engine's 2"):
        fetch(artifact, tmp_path / "data", max_rank=2)
