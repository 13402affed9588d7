"""What most tests of the middleware stand on: an engine that loads adapters at run time, and a pod's surroundings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.serving import PodRig


@pytest.fixture(autouse=True)
def _runtime_lora(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")


@pytest.fixture
def rig(tmp_path: Path) -> PodRig:
    return PodRig(tmp_path)
