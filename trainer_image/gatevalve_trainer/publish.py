"""The publish step: makes what a Job left in work/ an adapter of the channel under its digest, and hands the engine its verified arms.

A sentinel is made here and handed to the engine only: nothing of it is published.
"""

from __future__ import annotations

from pathlib import Path

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, GatevalveError, IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.jobs import AdapterResult, PublishInput
from gatevalve.contracts.kinds import SentinelRef
from gatevalve.contracts.names import ADAPTER_CONFIG, MANIFEST, adapter_dir, arm_dir, digest_hex, work_dir
from gatevalve_trainer.adapter.arms import verified_arms
from gatevalve_trainer.adapter.files import check_base, read_adapter
from gatevalve_trainer.adapter.shape import LoraShape, canonical_config, check_fits_channel
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.store import Area, expected, verified_base


def run(job: PublishInput) -> AdapterResult:
    """Copy a verified adapter to adapters/<digest>/; one that is there already is done when it is the same, and is never overwritten.

    What it will be measured against is verified too. The engine starts after this step and others may write to the data area meanwhile,
    so it gets copies of its own, made of the very bytes that were verified here.
    Raises ContractError or IntegrityError when an adapter or the base is not what its digest says, the adapter does not fit the channel,
    or its name is taken by other bytes.
    """
    area, phases = Area(job.data), Phases()
    if job.sentinel is not None:
        return _sentinel(area, phases, job, job.sentinel)
    made, published = f"{work_dir(job.channel_uid, job.candidate_uid)}/{job.produced_by}", adapter_dir(job.channel_uid, job.adapter_digest)
    with phases.phase("verify") as counts:
        verified_base(job.base)
        _hand_over_arms(area, job)
        with expected("producedBy", "the attempt never finished or was removed: apply a new candidate"):
            manifest, files = read_adapter(area, made, job.adapter_digest)
        _check(job, manifest, files)
        counts["bytes"] = sum(len(data) for data in files.values())
    with phases.phase("publish") as counts:
        counts["published"] = area.publish(published, {**files, MANIFEST: manifest.canonical()})
        _check_published(area, published, job)
        _hand_over(job, job.adapter_digest, files)
    return AdapterResult(adapter_digest=job.adapter_digest)


def _sentinel(area: Area, phases: Phases, job: PublishInput, sentinel: SentinelRef) -> AdapterResult:
    """The arms of a sentinel, whose digest names its recipe: no published adapter can have it."""
    if job.adapter_digest != (recipe := sentinel.digest_of()):
        raise ContractError(
            "adapterDigest", f"is {job.adapter_digest}, the sentinel's recipe has {recipe}", "give the sentinel's own digest"
        )
    with phases.phase("verify"):
        base = verified_base(job.base)
        _hand_over_arms(area, job)
    with phases.phase("make") as counts:
        files = _noise(base, job) if sentinel.kind == "Bad" else {}
        counts["bytes"] = sum(len(data) for data in files.values())
        if files:
            _hand_over(job, job.adapter_digest, files)
    return AdapterResult(adapter_digest=job.adapter_digest)


def _noise(base: Path, job: PublishInput) -> dict[str, bytes]:
    from gatevalve_trainer.adapter.noise import noise_adapter  # torch, which publishing must not pay for

    seed = int(digest_hex(job.adapter_digest)[:8], 16)
    return noise_adapter(base, job.base.name, LoraShape.of_channel(job.adapter), seed)


def _hand_over_arms(area: Area, job: PublishInput) -> None:
    for digest, files in verified_arms(area, job):
        _hand_over(job, digest, files)


def _hand_over(job: PublishInput, digest: str, files: dict[str, bytes]) -> None:
    """Where a Pod starts again its directory is still there: equal bytes are done, and nobody else writes to it."""
    arms, directory = Area(job.arms), arm_dir(digest)
    if not arms.publish(directory, files) and any(arms.read(f"{directory}/{name}") != data for name, data in files.items()):
        raise IntegrityError(f"{job.arms}/{directory}: holds other bytes than were verified; delete the Job, a new attempt starts clean")


def _check(job: PublishInput, manifest: AdapterManifest, files: dict[str, bytes]) -> None:
    check_base(manifest, job.base.digest)
    shape = LoraShape.of_manifest(manifest)
    check_fits_channel("adapter", shape, job.adapter)
    if sha256(files[ADAPTER_CONFIG]) != sha256(canonical_config(job.base.name, shape)):
        raise ContractError(ADAPTER_CONFIG, "does not say what the manifest says", "make the adapter with gatevalve-trainer train or fetch")


def _check_published(area: Area, published: str, job: PublishInput) -> None:
    try:
        manifest, _ = read_adapter(area, published, job.adapter_digest)
        check_base(manifest, job.base.digest)
    except GatevalveError as error:
        raise ContractError(
            published, f"exists with other content ({error})", "find out who wrote it; a published name is never reused"
        ) from error
