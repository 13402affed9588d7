"""Adapters as train and fetch leave them in work/, with weights that nobody looks into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gatevalve.contracts.canonical import Digest
from gatevalve.contracts.files import AdapterManifest, Probe
from gatevalve_trainer.adapter.files import adapter_digest, file_facts
from gatevalve_trainer.adapter.shape import LoraShape, canonical_config
from support.training import tiny_base

SHAPE_MADE = LoraShape(8, 16, ("q_proj", "v_proj"))
PROBE = Probe(prompt_token_ids=(1,), token_ids=(2,), adapter_logprobs=("-0.5",), base_logprobs=("-1.5",))


def made_adapter(directory: Path, weights: bytes = b"weights", config: bytes | None = None, **changes: Any) -> Digest:
    """Write an adapter of the tiny base to a directory; `changes` replace fields of its manifest. Returns its digest."""
    files = {"adapter_config.json": config or canonical_config("tiny-words", SHAPE_MADE), "adapter_model.safetensors": weights}
    facts: dict[str, Any] = {
        "digest": adapter_digest(files),
        "files": file_facts(files),
        "base_digest": tiny_base().digest,
        "rank": 8,
        "alpha": 16,
        "target_modules": SHAPE_MADE.target_modules,
        "probes": (PROBE,),
    }
    manifest = AdapterManifest(**{**facts, **changes})
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in {**files, "MANIFEST.json": manifest.canonical()}.items():
        (directory / name).write_bytes(content)
    return adapter_digest(files)
