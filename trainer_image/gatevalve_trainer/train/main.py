"""The training Job: verify, replay, train, check, write. Reads snapshot, parent and base; writes only its own attempt's directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel

from gatevalve.contracts.jobs import AdapterResult, TrainInput
from gatevalve.contracts.names import work_dir
from gatevalve_trainer.adapter.base import load_base, prepare_torch
from gatevalve_trainer.adapter.lora import lora_parameters, with_fresh_lora, with_lora
from gatevalve_trainer.adapter.memory import out_of_memory_typed
from gatevalve_trainer.adapter.shape import LoraShape
from gatevalve_trainer.phases import Every, Phases, log
from gatevalve_trainer.stopping import STOP
from gatevalve_trainer.store import Area, verified_base
from gatevalve_trainer.train.checkpoint import resume, save_checkpoint
from gatevalve_trainer.train.inputs import Parent, inputs_key, read_parent, read_snapshot
from gatevalve_trainer.train.loop import Figures, Loop, Objective, Progress, optimizer_of
from gatevalve_trainer.train.parameters import Parameters, read_parameters
from gatevalve_trainer.train.replay import Replay, replay
from gatevalve_trainer.train.result import Trained, write_result
from gatevalve_trainer.train.rows import TrainingSet, check_vocabulary, schedule, training_set

CHECKPOINT_SECONDS, PROGRESS_SECONDS = 60.0, 5.0
"""How often training saves a checkpoint and logs a step."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run starts from, read and verified before anything heavy is loaded."""

    parameters: Parameters
    training: TrainingSet
    parent: Parent | None
    base: Path

    def token_budget(self, divisor: int) -> int:
        """Padded tokens in one forward pass."""
        return max(1, self.parameters.token_budget // divisor)


def run(job: TrainInput) -> AdapterResult:
    """Train one adapter and leave it in this attempt's directory, its manifest last; the same input gives the same bytes on CPU.

    Raises ContractError, IntegrityError, NoSignal, ReplayMismatch, Diverged, OutOfMemory, or Terminated after a checkpoint.
    """
    area, phases = Area(job.data), Phases()
    with out_of_memory_typed():
        inputs = _read(job, area, phases)
        model, shape, device = _load(job, inputs, phases)
        replayed = _replay(job, inputs, model, device, phases)
        progress = _train(job, area, inputs, model, device, phases)
        trained = Trained(model, shape, inputs.training, inputs.parent, inputs.base, inputs.parameters, replayed, progress)
        return write_result(job, area, trained, phases)


def _read(job: TrainInput, area: Area, phases: Phases) -> Inputs:
    with phases.phase("read") as counts:
        parameters, rows = read_parameters(job.recipe, job.parameters), read_snapshot(area, job)
        training = training_set(job.recipe, rows)
        counts.update(snapshot=len(rows), rows=len(training.rows), dropped=training.dropped)
        return Inputs(parameters, training, read_parent(area, job), verified_base(job.base))


def _load(job: TrainInput, inputs: Inputs, phases: Phases) -> tuple[PeftModel, LoraShape, torch.device]:
    with phases.phase("load") as counts:
        device = prepare_torch()
        base = load_base(inputs.base, device)
        check_vocabulary(inputs.training.rows, base.get_input_embeddings().num_embeddings)
        shape = LoraShape.of_channel(job.adapter) if inputs.parent is None else inputs.parent.shape
        model = with_fresh_lora(base, shape, job.seed) if inputs.parent is None else with_lora(base, shape, inputs.parent.tensors)
        counts.update(device=device.type, dtype=str(base.dtype), parent=job.parent_digest)
        return model, shape, device


def _replay(job: TrainInput, inputs: Inputs, model: PeftModel, device: torch.device, phases: Phases) -> Replay:
    with phases.phase("replay") as counts:
        replayed = replay(model, inputs.training.rows, inputs.token_budget(job.token_budget_divisor), device)
        counts.update(replayed.figures())
        return replayed


def _train(job: TrainInput, area: Area, inputs: Inputs, model: PeftModel, device: torch.device, phases: Phases) -> Progress:
    work, key, parameters = work_dir(job.channel_uid, job.candidate_uid), inputs_key(job), inputs.parameters
    trainable = lora_parameters(model)
    optimizer = optimizer_of(list(trainable.values()), parameters.learning_rate)
    loop = Loop(
        model=model,
        trainable=list(trainable.values()),
        optimizer=optimizer,
        objective=Objective(job.recipe, parameters, inputs.training.mean_reply_tokens()),
        rows=inputs.training.rows,
        steps=schedule(len(inputs.training.rows), parameters.minibatch, parameters.epochs, key),
        token_budget=inputs.token_budget(job.token_budget_divisor),
        device=device,
    )
    saving, telling = Every(CHECKPOINT_SECONDS), Every(PROGRESS_SECONDS, at_once=True)
    with phases.phase("train") as counts:
        progress = resume(area, [f"{work}/{attempt}" for attempt in area.names(work)], key, trainable, optimizer)

        def save() -> None:
            save_checkpoint(area, f"{work}/{job.attempt}", key, trainable, optimizer, progress)

        def tell(figures: Figures) -> None:
            if telling.due():
                log("step", of=len(loop.steps), **figures)

        loop.run(progress, STOP, save, saving.due, tell)
        counts.update(steps=progress.step, **progress.series[-1])
    return progress
