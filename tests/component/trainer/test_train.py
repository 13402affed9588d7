"""Training on the tiny base with real torch: it learns, repeats itself byte for byte, and refuses what does not add up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import AdapterManifest, FeedbackRecord, TrafficRecord
from gatevalve.contracts.jobs import AdapterResult, TrainInput
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST, adapter_dir, snapshot_dir, work_dir
from gatevalve_trainer.adapter.base import load_base, prepare_torch
from gatevalve_trainer.adapter.files import adapter_digest, file_facts
from gatevalve_trainer.adapter.lora import lora_parameters, lora_tensors, with_fresh_lora, with_lora
from gatevalve_trainer.adapter.shape import LoraShape
from gatevalve_trainer.adapter.write import check_reload
from gatevalve_trainer.errors import Diverged, ReplayMismatch
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.store import Area
from gatevalve_trainer.train.loop import Progress
from gatevalve_trainer.train.main import run
from gatevalve_trainer.train.parameters import read_parameters
from gatevalve_trainer.train.replay import Replay
from gatevalve_trainer.train.result import Trained, write_result
from gatevalve_trainer.train.rows import TrainingSet, TrainRow
from support.training import BASE_DIRECTORY, CANDIDATE_UID, CHANNEL_UID, SHAPE, Record, tiny_base, train_job, with_replies
from support.words import SMALL_STEPS, TrainedOnce, Words, cut

pytestmark = pytest.mark.component

OTHER = f"sha256:{'b' * 64}"


def attempt(data: Path, name: str = "train-1") -> Path:
    """Where an attempt writes."""
    return data / work_dir(CHANNEL_UID, CANDIDATE_UID) / name


def train(data: Path, snapshot: str, recipe: str = "SFT", **fields: Any) -> AdapterResult:
    return run(TrainInput(**train_job(data, snapshot, recipe, **fields)))


def with_flipped_scores(records: list[Record]) -> list[Record]:
    """The same records with every score turned round."""
    return [record.model_copy(update={"score": 1 - record.score}) if isinstance(record, FeedbackRecord) else record for record in records]


def test_fine_tuning_on_rewarded_replies_improves_held_out_answers(trained: TrainedOnce, words: Words) -> None:
    assert words.accuracy(trained.published) > words.accuracy() + 0.1


def test_logged_rl_on_true_scores_improves_and_on_flipped_scores_harms(tmp_path: Path, traffic: list[Record], words: Words) -> None:
    parameters, few = {"minibatch": "36", "epochs": "1", "learningRate": "4e-3"}, traffic[:480]
    fair, poisoned = cut(tmp_path / "fair", few), cut(tmp_path / "poisoned", with_flipped_scores(few))
    train(tmp_path / "fair", fair, "LoggedRL", parameters=parameters)
    train(tmp_path / "poisoned", poisoned, "LoggedRL", parameters=parameters)
    before = words.accuracy()
    assert words.accuracy(attempt(tmp_path / "fair")) > before + 0.05
    assert words.accuracy(attempt(tmp_path / "poisoned")) < before - 0.05


def test_the_same_input_gives_the_same_bytes(trained: TrainedOnce, tmp_path: Path) -> None:
    shutil.copytree(trained.data / CHANNEL_UID / "snapshots", tmp_path / CHANNEL_UID / "snapshots")
    again = train(tmp_path, trained.snapshot, parameters=SMALL_STEPS, attempt="train-7")
    assert again.adapter_digest == trained.digest
    assert {path.name: path.read_bytes() for path in trained.published.iterdir()}.items() <= {
        path.name: path.read_bytes() for path in attempt(tmp_path, "train-7").iterdir()
    }.items()


def test_a_seed_decides_how_a_fresh_adapter_starts() -> None:
    shape, device = LoraShape.of_channel(SHAPE), prepare_torch()
    first, same, other = (lora_tensors(with_fresh_lora(load_base(BASE_DIRECTORY, device), shape, seed)) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if "lora_A" in name)


def test_a_trained_adapter_is_what_its_manifest_says(trained: TrainedOnce) -> None:
    files = {name: (trained.published / name).read_bytes() for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    manifest = AdapterManifest.parse_json((trained.published / MANIFEST).read_bytes())
    assert (manifest.digest, manifest.files) == (adapter_digest(files), file_facts(files))
    assert (manifest.snapshot_digest, manifest.parent_digest, manifest.recipe, manifest.rank) == (trained.snapshot, None, "SFT", 8)
    assert json.loads(files[ADAPTER_CONFIG]) == {
        "base_model_name_or_path": "tiny-words",
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": 16,
        "peft_type": "LORA",
        "r": 8,
        "target_modules": sorted(SHAPE.target_modules),
        "task_type": "CAUSAL_LM",
    }
    tensors = load_file(trained.published / ADAPTER_WEIGHTS)
    assert len(tensors) == 4 * 7 * 2
    assert tensors["base_model.model.model.layers.3.mlp.down_proj.lora_A.weight"].shape == (8, 192)


def test_probes_tell_the_adapter_from_the_base(trained: TrainedOnce) -> None:
    probes = AdapterManifest.parse_json((trained.published / MANIFEST).read_bytes()).probes
    assert len(probes) == 8
    for probe in probes:
        pairs = list(zip(probe.adapter_logprobs, probe.base_logprobs, strict=True))
        assert len(probe.token_ids) == len(pairs) == 5
        assert max(abs(float(adapter) - float(base)) for adapter, base in pairs) > 0.5


def test_a_run_reports_rows_steps_and_replay(trained: TrainedOnce) -> None:
    report = json.loads((attempt(trained.data) / "train_report.json").read_bytes())
    assert report["steps"] == len(report["series"]) > 0
    assert report["rows"]["used"] + sum(report["rows"]["dropped"].values()) > 400
    assert report["replay"]["mean_difference"] < 1e-3
    assert report["adapter"]["digest"] == trained.digest


def test_training_goes_on_from_the_parent(trained: TrainedOnce, words: Words) -> None:
    snapshot = cut(trained.data, words.traffic(240, served=trained), incumbent_digest=trained.digest)
    train(trained.data, snapshot, parent_digest=trained.digest, attempt="train-2", parameters=SMALL_STEPS)
    child, parent = load_file(attempt(trained.data, "train-2") / ADAPTER_WEIGHTS), load_file(trained.published / ADAPTER_WEIGHTS)
    manifest = AdapterManifest.parse_json((attempt(trained.data, "train-2") / MANIFEST).read_bytes())
    assert manifest.parent_digest == trained.digest
    assert all(0 < (child[name] - parent[name]).abs().max() < 0.1 for name in parent if "lora_B" in name)
    assert words.accuracy(attempt(trained.data, "train-2")) > words.accuracy() + 0.2


def zero_padded(record: TrafficRecord) -> dict[str, Any]:
    half = len(record.logprobs) // 2
    return {"logprobs": record.logprobs[:half] + [0.0] * (len(record.logprobs) - half)}


BROKEN_CAPTURES = [
    pytest.param(zero_padded, id="log-probabilities padded with zeros"),
    pytest.param(lambda record: {"prompt_token_ids": record.prompt_token_ids[:-3]}, id="a template without the assistant's turn"),
    pytest.param(lambda record: {"logprobs": [record.logprobs[-1], *record.logprobs[:-1]]}, id="log-probabilities shifted by one token"),
    pytest.param(lambda record: {"logprobs": [value * 0.7 for value in record.logprobs]}, id="log-probabilities of another temperature"),
]


@pytest.mark.parametrize("change", BROKEN_CAPTURES)
def test_rows_that_do_not_replay_are_refused_before_the_first_step(
    tmp_path: Path, traffic: list[Record], change: Callable[[TrafficRecord], dict[str, Any]]
) -> None:
    snapshot = cut(tmp_path, with_replies(traffic, change))
    with pytest.raises(ReplayMismatch, match=r"differ by \d\.\d+ nats per token on \d+ tokens"):
        train(tmp_path, snapshot)
    assert not attempt(tmp_path).exists()


def test_replies_of_another_adapter_do_not_replay_on_the_parent(trained: TrainedOnce, traffic: list[Record]) -> None:
    records = with_replies(traffic, lambda _: {"adapter_digest": trained.digest})
    snapshot = cut(trained.data, records, incumbent_digest=trained.digest)
    with pytest.raises(ReplayMismatch):
        train(trained.data, snapshot, "LoggedRL", parent_digest=trained.digest, attempt="train-3")


def test_a_snapshot_of_another_adapter_than_the_parent_is_refused(trained: TrainedOnce) -> None:
    with pytest.raises(ContractError, match=r"snapshotDigest: its rows come from adapter none, training starts from sha256:"):
        train(trained.data, trained.snapshot, parent_digest=trained.digest)


def test_a_snapshot_of_another_base_is_refused(tmp_path: Path, traffic: list[Record]) -> None:
    snapshot = cut(tmp_path, with_replies(traffic, lambda _: {"base_digest": OTHER}), base_digest=OTHER)
    with pytest.raises(ContractError, match="snapshotDigest: its rows come from base sha256:bbbb"):
        train(tmp_path, snapshot)


@pytest.mark.parametrize("name", [MANIFEST, "train/part-00000.parquet"])
def test_a_snapshot_whose_bytes_changed_is_refused(trained: TrainedOnce, tmp_path: Path, name: str) -> None:
    shutil.copytree(trained.data / CHANNEL_UID / "snapshots", tmp_path / CHANNEL_UID / "snapshots")
    file = tmp_path / snapshot_dir(CHANNEL_UID, trained.snapshot) / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match=f"{name}: bytes have digest"):
        train(tmp_path, trained.snapshot)


def test_a_base_whose_bytes_changed_is_refused(trained: TrainedOnce, tmp_path: Path) -> None:
    shutil.copytree(BASE_DIRECTORY, tmp_path / "base")
    (tmp_path / "base/chat_template.jinja").write_text("{{ messages }}")
    changed = tiny_base().model_copy(update={"uri": (tmp_path / "base").as_uri()})
    with pytest.raises(IntegrityError, match=r"base\.digest: .*mount the right model"):
        train(trained.data, trained.snapshot, base=changed)


def test_a_target_module_that_the_base_lacks_is_refused(trained: TrainedOnce) -> None:
    shape = SHAPE.model_copy(update={"target_modules": ("q_proj", "qkv_proj")})
    with pytest.raises(ContractError, match=r"adapter\.targetModules: qkv_proj names no inner linear layer"):
        train(trained.data, trained.snapshot, adapter=shape)


def without_one(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(sorted(tensors.items())[1:])


def with_one_more(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "base_model.model.lm_head.lora_A.weight": torch.zeros(8, 64)}


def with_another_rank(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = sorted(tensors)[0]
    return {**tensors, name: tensors[name][:4].contiguous()}


@pytest.mark.parametrize(
    ("change", "problem"),
    [(without_one, "is missing"), (with_one_more, "is no LoRA weight of this base"), (with_another_rank, "has shape")],
)
def test_a_parent_that_does_not_fit_the_base_is_refused(
    trained: TrainedOnce,
    tmp_path: Path,
    traffic: list[Record],
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    problem: str,
) -> None:
    digest = trained.publish_changed(tmp_path, change)
    snapshot = cut(tmp_path, with_replies(traffic, lambda _: {"adapter_digest": digest}), incumbent_digest=digest)
    with pytest.raises(ContractError, match=problem):
        train(tmp_path, snapshot, parent_digest=digest)


def untrained(tmp_path: Path) -> tuple[TrainInput, Trained]:
    """A run whose steps changed nothing."""
    shape, row = LoraShape.of_channel(SHAPE), TrainRow([1, 2, 3], [False, True, True], [0.0, -1.0, -1.0], 1.0)
    model = with_fresh_lora(load_base(BASE_DIRECTORY, prepare_torch()), shape, seed=0)
    training, replay = TrainingSet((row,), {}, 1.0), Replay(2, 0.0, 0.0, 0.0, 0.0, 0.0)
    trained = Trained(model, shape, training, None, BASE_DIRECTORY, read_parameters("SFT", {}), replay, Progress(step=4))
    return TrainInput(**train_job(tmp_path, OTHER)), trained


def test_an_adapter_that_training_did_not_change_is_not_written(tmp_path: Path) -> None:
    job, trained = untrained(tmp_path)
    with pytest.raises(IntegrityError, match="4 steps did not change the adapter"):
        write_result(job, Area(job.data), trained, Phases())
    assert not list(tmp_path.iterdir())


def test_weights_that_are_not_finite_are_a_divergence_and_not_written(tmp_path: Path) -> None:
    job, trained = untrained(tmp_path)
    name, parameter = next(iter(lora_parameters(trained.model).items()))
    with torch.no_grad():
        parameter[0, 0] = float("nan")
    with pytest.raises(Diverged, match=f"weight {name} is not finite"):
        write_result(job, Area(job.data), trained, Phases())
    assert not list(tmp_path.iterdir())


def test_files_that_load_as_another_adapter_are_found(trained: TrainedOnce, tmp_path: Path) -> None:
    digest = trained.publish_changed(tmp_path, lambda tensors: {name: tensor * 1.5 for name, tensor in tensors.items()})
    model = with_lora(
        load_base(BASE_DIRECTORY, prepare_torch()), LoraShape.of_channel(SHAPE), load_file(trained.published / ADAPTER_WEIGHTS)
    )
    assert check_reload(model, trained.published, BASE_DIRECTORY, [[5, 6, 7, 8]]) < 1e-4
    with pytest.raises(IntegrityError, match="answers differently from the trained one"):
        check_reload(model, tmp_path / adapter_dir(CHANNEL_UID, digest), BASE_DIRECTORY, [[5, 6, 7, 8]])


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "norm"])
def test_layers_that_the_engine_does_not_adapt_are_refused(target: str) -> None:
    with pytest.raises(ContractError, match=f"{target} names no inner linear layer"):
        with_fresh_lora(load_base(BASE_DIRECTORY, prepare_torch()), LoraShape(8, 16, (target,)), seed=0)


def test_a_parameter_nobody_knows_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"parameters\.lr: is no parameter of SFT; use epochs, "):
        train(tmp_path, OTHER, parameters={"lr": "1e-3"})
