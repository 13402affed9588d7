"""The evaluation engine for tests: vLLM as an evaluation Pod starts it, with the demo channel's arguments, on a free port of loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
import yaml

from support.training import BASE_DIRECTORY

START_SECONDS = 280
CHANNEL = Path(__file__).resolve().parents[2] / "demo/manifests/channel.yaml"


@dataclass
class EvaluationEngine:
    """A vLLM process that serves the tiny base and adapters by name."""

    directory: Path
    adapters: Mapping[str, Path]
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(self._command(), env=self._environment(), stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the engine and its workers."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def _log(self) -> Path:
        return self.directory / "engine.log"

    def _command(self) -> list[str]:
        modules = [f"{name}={path}" for name, path in self.adapters.items()]
        return [
            *(str(Path(sys.executable).with_name("vllm")), "serve", str(BASE_DIRECTORY)),
            *yaml.safe_load(CHANNEL.read_text())["spec"]["evaluation"]["engineArgs"],
            *("--served-model-name", "tiny-words", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--enable-lora", "--max-loras", "3", "--max-cpu-loras", str(max(3, len(modules))), "--max-lora-rank", "8"),
            *("--lora-modules", *modules),
        ]

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }

    def _wait_until_healthy(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return
            time.sleep(0.5)
        pytest.fail(f"the engine is not healthy:\n{self._log.read_text(errors='replace')[-6000:]}")
