"""train_report.json: what went in, what was done, what came out; for people and metrics, never for the gate."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import peft
import safetensors
import torch
import transformers

from gatevalve.contracts.jobs import TrainInput
from gatevalve_trainer.train.loop import Figures
from gatevalve_trainer.train.parameters import Parameters

REPORT = "train_report.json"
FIGURE_DIGITS = 6


def report_bytes(job: TrainInput, parameters: Parameters, facts: Mapping[str, Any], series: list[Figures]) -> bytes:
    """The report as indented JSON; real numbers are rounded to FIGURE_DIGITS."""
    report = {
        "inputs": job.wire(),
        "parameters": asdict(parameters),
        **facts,
        "series": series,
        "environment": _environment(),
    }
    return json.dumps(_rounded(report), indent=1, ensure_ascii=False).encode()


def _environment() -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "safetensors": safetensors.__version__,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "peakMemoryBytes": torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, FIGURE_DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
