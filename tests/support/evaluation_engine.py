"""The evaluation engine for tests: vLLM with the arguments of the demo's channel and adapters by name, as an evaluation Pod starts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from support.vllm_process import VllmProcess

CHANNEL = Path(__file__).resolve().parents[2] / "demo/manifests/channel.yaml"


@contextmanager
def evaluation_engine(directory: Path, adapters: Mapping[str, Path]) -> Iterator[VllmProcess]:
    """An engine that has started; it and its workers end with the block. Its log lies in `directory`."""
    engine = VllmProcess(directory / "engine.log", _arguments(adapters))
    engine.start()
    try:
        yield engine
    finally:
        engine.kill()


def _arguments(adapters: Mapping[str, Path]) -> list[str]:
    return [
        *yaml.safe_load(CHANNEL.read_text())["spec"]["evaluation"]["engineArgs"],
        *("--enable-lora", "--max-loras", "3", "--max-cpu-loras", str(max(3, len(adapters))), "--max-lora-rank", "8"),
        *("--lora-modules", *(f"{name}={path}" for name, path in adapters.items())),
    ]
