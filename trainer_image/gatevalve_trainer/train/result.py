"""The result of training: checked as vLLM and PEFT will read it, probed, and written with its report; the manifest last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import PeftModel

from gatevalve.contracts.errors import IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.jobs import AdapterResult, TrainInput
from gatevalve.contracts.names import ADAPTER_WEIGHTS, work_dir
from gatevalve_trainer.adapter.files import adapter_digest, file_facts
from gatevalve_trainer.adapter.lora import first_not_finite, has_effect, lora_tensors
from gatevalve_trainer.adapter.probes import Context, find_probes, largest_difference
from gatevalve_trainer.adapter.shape import LoraShape
from gatevalve_trainer.adapter.write import adapter_bytes, check_reload, write_files, write_manifest
from gatevalve_trainer.errors import Diverged
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.store import Area
from gatevalve_trainer.train.inputs import Parent
from gatevalve_trainer.train.loop import Progress
from gatevalve_trainer.train.parameters import Parameters
from gatevalve_trainer.train.replay import Replay
from gatevalve_trainer.train.report import REPORT, report_bytes
from gatevalve_trainer.train.rows import TrainingSet, TrainRow


@dataclass(frozen=True, slots=True)
class Trained:
    """A model after its last step, and how it came to be."""

    model: PeftModel
    shape: LoraShape
    training: TrainingSet
    parent: Parent | None
    base: Path
    parameters: Parameters
    replay: Replay
    progress: Progress


def write_result(job: TrainInput, area: Area, trained: Trained, phases: Phases) -> AdapterResult:
    """Check and write the adapter, then its report, then its manifest.

    Raises Diverged when a weight is not finite, IntegrityError when the bytes did not change or load as another adapter.
    """
    directory = f"{work_dir(job.channel_uid, job.candidate_uid)}/{job.attempt}"
    with phases.phase("write") as counts:
        files = _checked_files(job, trained)
        write_files(area, directory, files)
        difference = check_reload(trained.model, area.path(directory), trained.base, [row.token_ids for row in trained.training.rows])
        manifest = _manifest(job, trained, files)
        counts.update(digest=manifest.digest, reloadDifference=difference, probeDifference=largest_difference(manifest.probes))
    area.write(f"{directory}/{REPORT}", report_bytes(job, trained.parameters, _facts(trained, phases, counts), trained.progress.series))
    write_manifest(area, directory, manifest)
    return AdapterResult(adapter_digest=manifest.digest, steps=trained.progress.step)


def _checked_files(job: TrainInput, trained: Trained) -> dict[str, bytes]:
    tensors = lora_tensors(trained.model)
    if (name := first_not_finite(tensors)) is not None:
        raise Diverged(f"weight {name} is not finite; lower parameters.learningRate")
    files = adapter_bytes(job.base.name, trained.shape, tensors)
    if not has_effect(tensors) or (trained.parent is not None and files[ADAPTER_WEIGHTS] == trained.parent.weights):
        raise IntegrityError(
            f"{ADAPTER_WEIGHTS}: {trained.progress.step} steps did not change the adapter; report it with the training report"
        )
    return files


def _manifest(job: TrainInput, trained: Trained, files: dict[str, bytes]) -> AdapterManifest:
    return AdapterManifest(
        digest=adapter_digest(files),
        files=file_facts(files),
        base_digest=job.base.digest,
        rank=trained.shape.rank,
        alpha=trained.shape.alpha,
        target_modules=trained.shape.target_modules,
        parent_digest=job.parent_digest,
        snapshot_digest=job.snapshot_digest,
        recipe=job.recipe,
        probes=find_probes(trained.model, [_context(row) for row in trained.training.rows]),
    )


def _context(row: TrainRow) -> Context:
    """The row without its last token: what follows the end of a reply is no natural prompt."""
    return Context(row.token_ids[:-1], first=row.loss_mask.index(True) - 1)


def _facts(trained: Trained, phases: Phases, written: dict[str, Any]) -> dict[str, Any]:
    return {
        "adapter": written,
        "rows": {"used": len(trained.training.rows), "dropped": trained.training.dropped, "meanScore": trained.training.mean_score},
        "replay": trained.replay.figures(),
        "steps": trained.progress.step,
        "seconds": phases.seconds,
    }
