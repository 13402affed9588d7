"""The fetch Job: an adapter made elsewhere is verified against the channel's base and shape, and written as one of ours."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.jobs import AdapterResult, FetchInput
from gatevalve.contracts.kinds import Artifact
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, work_dir
from gatevalve_trainer.adapter.base import load_base, prepare_torch
from gatevalve_trainer.adapter.files import adapter_digest, file_facts
from gatevalve_trainer.adapter.lora import A_SUFFIX, B_SUFFIX, first_not_finite, has_effect, lora_tensors, with_lora
from gatevalve_trainer.adapter.memory import out_of_memory_typed
from gatevalve_trainer.adapter.probes import CONTEXTS, Context, find_probes, largest_difference
from gatevalve_trainer.adapter.shape import LoraShape, check_fits_channel
from gatevalve_trainer.adapter.write import adapter_bytes, check_reload, write_files, write_manifest
from gatevalve_trainer.fetch.config import rank_and_alpha
from gatevalve_trainer.phases import Phases
from gatevalve_trainer.store import Area, local_directory, readable, verified_base

ALLOWED_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md")
"""What an artifact may hold; PEFT writes the README, and it is not taken over."""

LARGEST_WEIGHTS_BYTES = 16 << 30

FLOATS = (torch.float32, torch.bfloat16, torch.float16)

CONTEXT_TOKENS = 24
"""Length of the sequences that probes are looked for in."""

LEAST_EFFECT_NATS = 1e-3
"""An adapter whose every probe is nearer to the base than this cannot be told from it on a serving pod."""


def run(job: FetchInput) -> AdapterResult:
    """Verify an artifact and leave it as an adapter in this attempt's directory, its manifest last.

    Raises ContractError that names field and remedy when it is not a plain LoRA adapter of this channel, IntegrityError when bytes differ.
    """
    area, phases = Area(job.data), Phases()
    with out_of_memory_typed():
        with phases.phase("read") as counts:
            directory = artifact_directory(job.artifact)
            rank, alpha = rank_and_alpha((directory / ADAPTER_CONFIG).read_bytes())
            tensors = _tensors(directory / ADAPTER_WEIGHTS)
            shape = LoraShape(rank, alpha, target_suffixes(tensors))
            _check_shape(job, shape)
            counts.update(tensors=len(tensors), rank=rank, alpha=alpha)
        return _write(job, area, phases, shape, tensors)


def artifact_directory(artifact: Artifact) -> Path:
    """The artifact's directory; raises IntegrityError for another digest, ContractError unless it holds exactly an adapter's files."""
    directory = local_directory("artifact.uri", artifact.uri)
    with readable("artifact.uri", artifact.uri):
        actual = directory_digest(directory)
    if actual != artifact.digest:
        raise IntegrityError(
            f"artifact.digest: {artifact.uri} has digest {actual}, expected {artifact.digest}; copy it again or correct the digest"
        )
    present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    for name in sorted(present - set(ALLOWED_FILES)):
        raise ContractError(
            f"artifact.{name}", "is no file of an adapter", f"leave {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} only; pickles are never read"
        )
    for name in sorted({ADAPTER_CONFIG, ADAPTER_WEIGHTS} - present):
        raise ContractError(f"artifact.{name}", "is missing", "save the adapter with PEFT's save_pretrained(safe_serialization=True)")
    return directory


def target_suffixes(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The suffixes of the layers that carry LoRA weights, from the tensors' names: these, not the configuration, decide what is served."""
    suffixes: set[str] = set()
    for name in tensors:
        module = name.removesuffix(A_SUFFIX).removesuffix(B_SUFFIX)
        if module == name:
            raise ContractError(f"{ADAPTER_WEIGHTS}.{name}", "is no LoRA weight", f"keep only *{A_SUFFIX} and *{B_SUFFIX}")
        suffixes.add(module.rsplit(".", 1)[-1])
    return tuple(sorted(suffixes))


def _tensors(path: Path) -> dict[str, Tensor]:
    if path.stat().st_size > LARGEST_WEIGHTS_BYTES:
        raise ContractError(ADAPTER_WEIGHTS, f"has {path.stat().st_size} bytes", f"an adapter has at most {LARGEST_WEIGHTS_BYTES}")
    try:
        tensors = load(path.read_bytes())
    except SafetensorError as error:
        raise ContractError(ADAPTER_WEIGHTS, f"is not safetensors: {error}", "copy it again, or save it anew") from error
    if not tensors:
        raise ContractError(ADAPTER_WEIGHTS, "holds no tensors", "save a trained adapter")
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype not in FLOATS:
            raise ContractError(f"{ADAPTER_WEIGHTS}.{name}", f"has dtype {tensor.dtype}", "save it as float32, bfloat16 or float16")
    return {name: tensor.float() for name, tensor in tensors.items()}


def _check_shape(job: FetchInput, shape: LoraShape) -> None:
    check_fits_channel(ADAPTER_CONFIG, shape, job.adapter)
    if shape.rank > job.max_rank:
        raise ContractError(f"{ADAPTER_CONFIG}.r", f"rank {shape.rank} is above the engine's {job.max_rank}", "train with a lower rank")


def _write(job: FetchInput, area: Area, phases: Phases, shape: LoraShape, tensors: Mapping[str, Tensor]) -> AdapterResult:
    directory = f"{work_dir(job.channel_uid, job.candidate_uid)}/{job.attempt}"
    _check_values(tensors)
    with phases.phase("load"):
        device, base_directory = prepare_torch(), verified_base(job.base)
        model = with_lora(load_base(base_directory, device), shape, tensors)
    with phases.phase("write") as counts:
        contexts = _contexts(model.get_input_embeddings().num_embeddings, job.artifact.digest)
        files = adapter_bytes(job.base.name, shape, lora_tensors(model))
        write_files(area, directory, files)
        check_reload(model, area.path(directory), base_directory, [context.token_ids for context in contexts])
        manifest = AdapterManifest(
            digest=adapter_digest(files),
            files=file_facts(files),
            base_digest=job.base.digest,
            rank=shape.rank,
            alpha=shape.alpha,
            target_modules=shape.target_modules,
            artifact_digest=job.artifact.digest,
            probes=find_probes(model, contexts),
        )
        _check_effect(manifest)
        counts.update(digest=manifest.digest, probeDifference=largest_difference(manifest.probes))
    write_manifest(area, directory, manifest)
    return AdapterResult(adapter_digest=manifest.digest)


def _check_values(tensors: Mapping[str, Tensor]) -> None:
    if (name := first_not_finite(tensors)) is not None:
        raise ContractError(f"{ADAPTER_WEIGHTS}.{name}", "holds NaN or infinity", "train again with a lower learning rate")
    if not has_effect(tensors):
        raise ContractError(ADAPTER_WEIGHTS, "has zero effect: every B is zero", "save the adapter after training")


def _check_effect(manifest: AdapterManifest) -> None:
    largest = largest_difference(manifest.probes)
    if largest < LEAST_EFFECT_NATS:
        raise ContractError(
            ADAPTER_WEIGHTS, f"moves no probed log-probability by more than {largest:.6f}", "train it further: it answers as the base does"
        )


def _contexts(vocabulary: int, digest: str) -> list[Context]:
    """Fixed sequences of tokens for this artifact: there is no traffic to take prompts from."""
    draw = random.Random(digest)
    return [Context([draw.randrange(vocabulary) for _ in range(CONTEXT_TOKENS)], first=0) for _ in range(CONTEXTS)]
