"""An adapter must be exactly what the engine serves, on exactly this base."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gatevalve.contracts.files import AdapterManifest, FileFact, Probe
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import EngineLimits
from gatevalve_serving.fit import check_fit
from gatevalve_serving.problem import AdapterProblem
from gatevalve_serving.safetensors_file import shapes_below
from support.serving import Tensors, lora_config, lora_tensors, tiny_base, write_peft

BASE_DIGEST, OTHER_DIGEST = "sha256:" + "1" * 64, "sha256:" + "2" * 64
LIMITS = EngineLimits(max_loras=2, max_lora_rank=16, max_cpu_loras=4, runtime_lora=True)
PROBE = Probe(prompt_token_ids=(1,), token_ids=(1,), adapter_logprobs=("-1",), base_logprobs=("-2",))
FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def manifest(rank: int = 4, base_digest: str = BASE_DIGEST, targets: tuple[str, ...] = ("q_proj", "down_proj")) -> AdapterManifest:
    fact = FileFact(path="x", size=1, sha256=BASE_DIGEST)
    return AdapterManifest(
        digest=BASE_DIGEST, files=(fact,), base_digest=base_digest, rank=rank, alpha=8, target_modules=targets, probes=(PROBE,)
    )


def check(tmp_path: Path, tensors: Tensors, config: dict[str, Any], stated: AdapterManifest | None = None) -> None:
    write_peft(tmp_path / "adapter", tensors, config)
    base = tiny_base(tmp_path / "base")
    check_fit(tmp_path / "adapter", stated or manifest(), BASE_DIGEST, shapes_below(base), LIMITS)


def changed(change: Callable[[Tensors], Any]) -> Tensors:
    tensors = lora_tensors(0)
    change(tensors)
    return tensors


def not_a_number(tensors: Tensors) -> None:
    tensors[FIRST][1, 2] = np.nan


def infinite(tensors: Tensors) -> None:
    tensors[FIRST] = tensors[FIRST].astype(np.float16)
    tensors[FIRST][0, 0] = np.inf


def doubles(tensors: Tensors) -> None:
    tensors[FIRST] = tensors[FIRST].astype(np.float64)


def test_a_plain_lora_fits(tmp_path: Path) -> None:
    check(tmp_path, lora_tensors(0), lora_config())


@pytest.mark.parametrize("config", [lora_config(use_rslora=True), lora_config(peft_version="9.9", revision="main", task_type="CAUSAL_LM")])
def test_what_the_engine_serves_or_never_reads_does_not_matter(tmp_path: Path, config: dict[str, Any]) -> None:
    check(tmp_path, lora_tensors(0), config)


UNFIT: dict[str, tuple[Tensors, dict[str, Any], str]] = {
    "a smaller base, which vLLM would serve as garbage": (lora_tensors(0, hidden=4), lora_config(), "has shape"),
    "a larger base": (lora_tensors(0, hidden=16), lora_config(), "has shape"),
    "more layers, which vLLM would drop": (lora_tensors(0, layers=3), lora_config(), "belongs to no target module"),
    "fewer layers": (lora_tensors(0, layers=1), lora_config(), "is missing"),
    "another rank than stated": (lora_tensors(0, rank=8), lora_config(), "has shape"),
    "a tensor too many": (
        changed(lambda t: t.update({"base_model.model.lm_head.weight": np.zeros((2, 2), np.float32)})),
        lora_config(),
        "lm_head",
    ),
    "a tensor too few": (changed(lambda t: t.pop(FIRST)), lora_config(), "is missing"),
    "NaN": (changed(not_a_number), lora_config(), "is not finite"),
    "infinity in half precision": (changed(infinite), lora_config(), "is not finite"),
    "double precision": (changed(doubles), lora_config(), "F32, F16 or BF16"),
    "DoRA": (lora_tensors(0), lora_config(use_dora=True), "use_dora"),
    "modules_to_save": (lora_tensors(0), lora_config(modules_to_save=["lm_head"]), "modules_to_save"),
    "biases": (lora_tensors(0), lora_config(bias="all"), "bias is all"),
    "LoRA biases": (lora_tensors(0), lora_config(lora_bias=True), "lora_bias"),
    "ranks by module": (lora_tensors(0), lora_config(rank_pattern={"q_proj": 2}), "rank_pattern"),
    "PiSSA, which needs another base": (lora_tensors(0), lora_config(init_lora_weights="pissa"), "init_lora_weights pissa"),
    "another method than LoRA": (lora_tensors(0), lora_config(peft_type="IA3"), "peft_type is IA3"),
    "a feature nobody has heard of": (lora_tensors(0), lora_config(use_hyperlora={"x": 1}), "use_hyperlora"),
    "another alpha than stated": (lora_tensors(0), lora_config(lora_alpha=32), "lora_alpha 32"),
    "other target modules than stated": (lora_tensors(0), lora_config(target_modules=["q_proj"]), "target_modules"),
    "target modules that are no names": (lora_tensors(0), lora_config(target_modules=["q_proj", 1]), "target_modules"),
    "a pattern for target modules": (lora_tensors(0), lora_config(target_modules="all-linear"), "target_modules"),
}


@pytest.mark.parametrize(("tensors", "config", "words"), UNFIT.values(), ids=UNFIT.keys())
def test_an_adapter_that_the_engine_would_not_serve_as_meant_is_unsupported(
    tmp_path: Path, tensors: Tensors, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(AdapterProblem, match=words) as caught:
        check(tmp_path, tensors, config)
    assert caught.value.problem.reason is PodReason.ADAPTER_UNSUPPORTED


def test_a_rank_above_the_engines_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(AdapterProblem, match="rank 32 is above the engine's --max-lora-rank 16"):
        check(tmp_path, lora_tensors(0, rank=32), lora_config(rank=32), manifest(rank=32))


def test_a_target_that_is_no_linear_layer_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(AdapterProblem, match="target module k_proj names no linear layers"):
        check(tmp_path, lora_tensors(0), lora_config(target_modules=["k_proj"]), manifest(targets=("k_proj",)))


def test_an_adapter_for_another_base_is_a_mismatch(tmp_path: Path) -> None:
    with pytest.raises(AdapterProblem) as caught:
        check(tmp_path, lora_tensors(0), lora_config(), manifest(base_digest=OTHER_DIGEST))
    assert caught.value.problem.reason is PodReason.BASE_MISMATCH


@pytest.mark.parametrize("raw", [b"", b"pickle\x80\x04", (10**6).to_bytes(8, "little") + b"{}"], ids=["empty", "a pickle", "cut short"])
def test_weights_that_are_no_safetensors_are_unsupported(tmp_path: Path, raw: bytes) -> None:
    write_peft(tmp_path / "adapter", lora_tensors(0), lora_config())
    (tmp_path / "adapter" / ADAPTER_WEIGHTS).write_bytes(raw)
    with pytest.raises(AdapterProblem, match="is not a safetensors file"):
        check_fit(tmp_path / "adapter", manifest(), BASE_DIGEST, shapes_below(tiny_base(tmp_path / "base")), LIMITS)


@pytest.mark.parametrize(
    "raw", [b"{", json.dumps([1]).encode(), b"[" * 100_000, b"{}" + b" " * (2 << 20)], ids=["no JSON", "no object", "too deep", "too long"]
)
def test_a_config_that_is_no_object_is_unsupported(tmp_path: Path, raw: bytes) -> None:
    write_peft(tmp_path / "adapter", lora_tensors(0), lora_config())
    (tmp_path / "adapter" / ADAPTER_CONFIG).write_bytes(raw)
    with pytest.raises(AdapterProblem, match=ADAPTER_CONFIG):
        check_fit(tmp_path / "adapter", manifest(), BASE_DIGEST, shapes_below(tiny_base(tmp_path / "base")), LIMITS)
