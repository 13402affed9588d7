"""Checkpoints: the state between two optimiser steps in one safetensors file, so that an interrupted run ends as an uninterrupted one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import AdamW

from gatevalve.contracts.errors import StoreError
from gatevalve_trainer.phases import log
from gatevalve_trainer.store import Area
from gatevalve_trainer.train.loop import Progress

CHECKPOINT = "checkpoint.safetensors"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def save_checkpoint(
    area: Area, directory: str, key: str, parameters: Mapping[str, nn.Parameter], optimizer: AdamW, progress: Progress
) -> None:
    """Write weights, optimiser moments and progress; the name shows the previous checkpoint or this one, never a part."""
    tensors = {f"weight/{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        tensors |= {f"{moment}/{name}": tensor for moment, tensor in optimizer.state[parameter].items() if moment in MOMENTS}
    metadata = {"key": key, "step": str(progress.step), "series": json.dumps(progress.series)}
    area.write(f"{directory}/{CHECKPOINT}", save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, metadata))


def resume(area: Area, attempts: Sequence[str], key: str, parameters: Mapping[str, nn.Parameter], optimizer: AdamW) -> Progress:
    """Put the furthest sound checkpoint with this key into parameters and optimizer; fresh progress when there is none."""
    found = [checkpoint for directory in attempts if (checkpoint := _read(area, directory, key, parameters)) is not None]
    if not found:
        return Progress()
    progress, tensors = max(found, key=lambda checkpoint: checkpoint[0].step)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"weight/{name}"])
            optimizer.state[parameter] = {moment: _on_device(moment, tensors[f"{moment}/{name}"], parameter) for moment in MOMENTS}
    log("resume", step=progress.step)
    return progress


def _read(area: Area, directory: str, key: str, parameters: Mapping[str, nn.Parameter]) -> tuple[Progress, dict[str, Tensor]] | None:
    path = f"{directory}/{CHECKPOINT}"
    if not area.exists(path):
        return None
    try:
        data = area.read(path)
        tensors, metadata = load(data), _metadata(data)
        if metadata["key"] != key or tensors.keys() != {f"{kind}/{name}" for name in parameters for kind in ("weight", *MOMENTS)}:
            return None
        return Progress(int(metadata["step"]), json.loads(metadata["series"])), tensors
    except (StoreError, SafetensorError, ValueError, KeyError) as error:
        log("checkpoint-unreadable", path=path, problem=str(error))
        return None


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + length])
    return header.get("__metadata__", {})


def _on_device(moment: str, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
    return tensor if moment == "step" else tensor.to(parameter.device)
