"""Writing an adapter: canonical files, checked by loading them again, the manifest last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import save
from torch import Tensor

from gatevalve.contracts.errors import IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST
from gatevalve_trainer.adapter.base import load_base
from gatevalve_trainer.adapter.logprobs import next_token_logits, padded
from gatevalve_trainer.adapter.shape import LoraShape, canonical_config
from gatevalve_trainer.store import Area

LOGIT_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Largest difference between the logits of the live model and of the files, by the base's dtype."""

RELOAD_ROWS, RELOAD_TOKENS = 4, 128
"""How much of the rows the comparison reads: enough to touch every weight."""


def adapter_bytes(base_name: str, shape: LoraShape, tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    """The two files of an adapter; the same weights give the same bytes."""
    weights = save({name: tensors[name] for name in sorted(tensors)}, metadata={"format": "pt"})
    return {ADAPTER_CONFIG: canonical_config(base_name, shape), ADAPTER_WEIGHTS: weights}


def write_files(area: Area, directory: str, files: Mapping[str, bytes]) -> None:
    """Write an adapter's files without the manifest: nobody reads them yet."""
    for name, data in files.items():
        area.write(f"{directory}/{name}", data)


def write_manifest(area: Area, directory: str, manifest: AdapterManifest) -> None:
    """Make a written adapter readable."""
    area.write(f"{directory}/{MANIFEST}", manifest.canonical())


@torch.no_grad()
def check_reload(model: PeftModel, written: Path, base: Path, sequences: Sequence[Sequence[int]]) -> float:
    """The largest logit difference between the live model and the written files loaded by PEFT on a fresh base.

    Raises IntegrityError when it is above LOGIT_TOLERANCE.
    """
    device = next(model.parameters()).device
    tokens_BS = padded([list(sequence[:RELOAD_TOKENS]) for sequence in sequences[:RELOAD_ROWS]], device)
    live = next_token_logits(model, tokens_BS).float()
    fresh = load_base(base, device)
    reloaded = next_token_logits(PeftModel.from_pretrained(fresh, str(written)).eval(), tokens_BS).float()
    difference = float((live - reloaded).abs().max())
    if not difference <= LOGIT_TOLERANCE[fresh.dtype]:
        raise IntegrityError(
            f"{written.name}: the written adapter answers differently from the trained one (logits differ by {difference:.3g}); report it"
        )
    return difference
