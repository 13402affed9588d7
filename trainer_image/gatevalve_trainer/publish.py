"""The publish step: verifies what a Job left in work/ and makes it an adapter of the channel under its digest."""

from __future__ import annotations

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, GatevalveError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.jobs import AdapterResult, PublishInput
from gatevalve.contracts.names import ADAPTER_CONFIG, MANIFEST, adapter_dir, work_dir
from gatevalve_trainer.adapter.files import check_base, read_adapter
from gatevalve_trainer.adapter.shape import LoraShape, canonical_config, check_fits_channel
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.store import Area


def run(job: PublishInput) -> AdapterResult:
    """Copy a verified adapter to adapters/<digest>/; one that is there already is done when it is the same, and is never overwritten.

    Raises ContractError or IntegrityError when the adapter is not what digest, base or channel say, or the name is taken by other bytes.
    """
    area, phases = Area(job.data), Phases()
    made, published = f"{work_dir(job.channel_uid, job.candidate_uid)}/{job.produced_by}", adapter_dir(job.channel_uid, job.adapter_digest)
    with phases.phase("verify") as counts:
        manifest, files = read_adapter(area, made, job.adapter_digest)
        _check(job, manifest, files)
        counts["bytes"] = sum(len(data) for data in files.values())
    with phases.phase("publish") as counts:
        counts["published"] = area.publish(published, {**files, MANIFEST: manifest.canonical()})
        _check_published(area, published, job)
    return AdapterResult(adapter_digest=job.adapter_digest)


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
