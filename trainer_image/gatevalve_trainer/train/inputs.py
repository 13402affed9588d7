"""What a training run reads: snapshot and parent, verified against their digests and each other."""

from __future__ import annotations

from dataclasses import dataclass

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from gatevalve.contracts.canonical import digest_of_json
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import SnapshotManifest, SnapshotRow
from gatevalve.contracts.jobs import TrainInput
from gatevalve.contracts.names import ADAPTER_WEIGHTS, MANIFEST, adapter_dir, snapshot_dir
from gatevalve_trainer.adapter.files import check_base, read_adapter
from gatevalve_trainer.adapter.shape import LoraShape, check_fits_channel
from gatevalve_trainer.snapshot.parquet import read_train_rows
from gatevalve_trainer.store import Area, checked, expected


@dataclass(frozen=True, slots=True)
class Parent:
    """The incumbent's weights: where training starts."""

    shape: LoraShape
    tensors: dict[str, Tensor]
    weights: bytes


def read_snapshot(area: Area, job: TrainInput) -> list[SnapshotRow]:
    """The snapshot's train rows; raises IntegrityError when bytes differ, ContractError when it is absent or of another base or adapter."""
    with expected("snapshotDigest", "name the digest that a snapshot ended with, or cut a new one"):
        return _snapshot_rows(area, job, snapshot_dir(job.channel_uid, job.snapshot_digest))


def _snapshot_rows(area: Area, job: TrainInput, directory: str) -> list[SnapshotRow]:
    manifest = SnapshotManifest.parse_json(checked(f"{directory}/{MANIFEST}", area.read(f"{directory}/{MANIFEST}"), job.snapshot_digest))
    if manifest.base_digest != job.base.digest:
        raise ContractError("snapshotDigest", f"its rows come from base {manifest.base_digest}", f"cut a snapshot on {job.base.digest}")
    if manifest.incumbent_digest != job.parent_digest:
        raise ContractError(
            "snapshotDigest",
            f"its rows come from adapter {manifest.incumbent_digest or 'none'}, training starts from {job.parent_digest or 'the base'}",
            "cut a snapshot of the incumbent's replies: log-probabilities of another adapter cannot be replayed",
        )
    rows: list[SnapshotRow] = []
    for fact in manifest.files:
        if fact.path.startswith("train/"):
            rows += read_train_rows(f"{directory}/{fact.path}", area.read_named(directory, fact))
    return rows


def read_parent(area: Area, job: TrainInput) -> Parent | None:
    """The parent adapter, or None when training starts from the base; raises ContractError when it is absent or does not fit."""
    if job.parent_digest is None:
        return None
    with expected("parentDigest", "restore it, or roll back to an entry whose adapter is there"):
        manifest, files = read_adapter(area, adapter_dir(job.channel_uid, job.parent_digest), job.parent_digest)
    check_base(manifest, job.base.digest)
    shape = LoraShape.of_manifest(manifest)
    check_fits_channel("parent", shape, job.adapter)
    try:
        tensors = load(files[ADAPTER_WEIGHTS])
    except SafetensorError as error:
        raise ContractError("parentDigest", f"{ADAPTER_WEIGHTS} is not safetensors: {error}", "roll back to a sound entry") from error
    return Parent(shape, tensors, files[ADAPTER_WEIGHTS])


def inputs_key(job: TrainInput) -> str:
    """The digest of everything that decides the result: attempts that share it may continue each other's checkpoints."""
    facts = job.model_dump(mode="json", include={"base", "adapter", "recipe", "parameters", "seed", "snapshot_digest", "parent_digest"})
    return digest_of_json(facts)
