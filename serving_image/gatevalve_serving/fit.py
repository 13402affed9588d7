"""Fit: an adapter is exactly what the engine serves, on exactly this base.

vLLM answers 200 to an adapter of a smaller base or with more layers and serves garbage, so the check is ours, and it comes first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import EngineLimits
from gatevalve_serving.problem import AdapterProblem
from gatevalve_serving.safetensors_file import Shapes, not_finite, shapes_in

PREFIX, A_SUFFIX, B_SUFFIX = "base_model.model.", ".lora_A.weight", ".lora_B.weight"

LARGEST_CONFIG = 1 << 20

SERVED_OR_CHECKED = frozenset({"r", "lora_alpha", "target_modules", "peft_type", "bias", "init_lora_weights", "use_rslora"})
WITHOUT_EFFECT = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "layers_pattern",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "task_type",
    }
)
"""Keys of adapter_config.json that change nothing at inference.

Every key in neither set must be absent, null, false or empty: it is a feature that the engine lacks.
"""

PLAIN_INITS = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""Initialisations that leave the base's weights alone; others (PiSSA, OLoRA, CorDA, LoftQ) need another base."""


def check_fit(path: Path, manifest: AdapterManifest, base_digest: str, base: Shapes, limits: EngineLimits) -> None:
    """Check a local adapter against base and engine; blocking. Raises AdapterProblem with the first finding."""
    if manifest.base_digest != base_digest:
        raise AdapterProblem(PodReason.BASE_MISMATCH, f"made for base {manifest.base_digest}, this pod serves {base_digest}")
    config = _config(path / ADAPTER_CONFIG)
    _check_features(config)
    _check_against_manifest(config, manifest)
    if manifest.rank > limits.max_lora_rank:
        raise _unsupported(f"rank {manifest.rank} is above the engine's --max-lora-rank {limits.max_lora_rank}")
    try:
        _check_shapes(shapes_in(path / ADAPTER_WEIGHTS), expected_shapes(base, manifest))
        if bad := not_finite(path / ADAPTER_WEIGHTS):
            raise _unsupported(f"tensor {bad[0]} (and {len(bad) - 1} more) is not finite, or not F32, F16 or BF16")
    except SafetensorError as error:
        raise _unsupported(f"{ADAPTER_WEIGHTS} is not a safetensors file: {error}") from error


def expected_shapes(base: Shapes, manifest: AdapterManifest) -> dict[str, tuple[int, ...]]:
    """Every tensor the adapter must hold: A (rank, in) and B (out, rank) for each linear layer that a target module names."""
    shapes: dict[str, tuple[int, ...]] = {}
    for target in manifest.target_modules:
        layers = {name.removesuffix(".weight"): shape for name, shape in base.items() if name.endswith(f".{target}.weight")}
        if not layers or any(len(shape) != 2 for shape in layers.values()):
            raise _unsupported(f"target module {target} names no linear layers of the base")
        for layer, (out, into) in layers.items():
            shapes[f"{PREFIX}{layer}{A_SUFFIX}"] = (manifest.rank, into)
            shapes[f"{PREFIX}{layer}{B_SUFFIX}"] = (out, manifest.rank)
    return shapes


def _check_shapes(got: Shapes, expected: Shapes) -> None:
    if extra := sorted(got.keys() - expected.keys()):
        raise _unsupported(f"tensor {extra[0]} (and {len(extra) - 1} more) belongs to no target module of the base")
    if missing := sorted(expected.keys() - got.keys()):
        raise _unsupported(f"tensor {missing[0]} (and {len(missing) - 1} more) is missing")
    for name, shape in expected.items():
        if got[name] != shape:
            raise _unsupported(f"tensor {name} has shape {list(got[name])}, the base needs {list(shape)}")


def _config(path: Path) -> Mapping[str, Any]:
    if path.stat().st_size > LARGEST_CONFIG:
        raise _unsupported(f"{ADAPTER_CONFIG} is longer than {LARGEST_CONFIG} bytes")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _unsupported(f"{ADAPTER_CONFIG} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise _unsupported(f"{ADAPTER_CONFIG} is no object")
    return config


def _check_features(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise _unsupported(f"peft_type is {config.get('peft_type')}, the engine serves LORA")
    if config.get("bias", "none") != "none":
        raise _unsupported(f"bias is {config['bias']}, the engine serves none")
    if config.get("init_lora_weights", True) not in PLAIN_INITS:
        raise _unsupported(f"init_lora_weights {config['init_lora_weights']} changes the base's weights; convert it to a plain LoRA")
    for key in sorted(config.keys() - SERVED_OR_CHECKED - WITHOUT_EFFECT):
        if config[key]:
            raise _unsupported(f"{key} is set, and the engine does not serve that kind of adapter; train a plain LoRA")


def _check_against_manifest(config: Mapping[str, Any], manifest: AdapterManifest) -> None:
    modules = config.get("target_modules")
    named = tuple(sorted(map(str, modules))) if isinstance(modules, list) else modules
    for what, got, want in (
        ("r", config.get("r"), manifest.rank),
        ("lora_alpha", config.get("lora_alpha"), manifest.alpha),
        ("target_modules", named, tuple(sorted(manifest.target_modules))),
    ):
        if got != want:
            raise _unsupported(f"{ADAPTER_CONFIG} says {what} {got}, the MANIFEST says {want}")


def _unsupported(message: str) -> AdapterProblem:
    return AdapterProblem(PodReason.ADAPTER_UNSUPPORTED, message)
