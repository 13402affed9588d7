"""vLLM (CPU build) as a process of its own, serving the tiny base on a free port of loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.training import BASE_DIRECTORY

START_SECONDS = 280


@dataclass
class VllmProcess:
    """One start of an engine and its workers; `ready` is the path that answers once it may be asked."""

    log: Path
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: str = "/health"
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it may be asked; the test fails with the end of its log when that does not come."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self._command(), env=self._environment(), stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the engine and its workers at once, as an out-of-memory kill does."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _command(self) -> list[str]:
        engine = [str(Path(sys.executable).with_name("vllm")), "serve", str(BASE_DIRECTORY), "--served-model-name", "tiny-words"]
        return [*engine, "--host", "127.0.0.1", "--port", str(self.port), *self.arguments]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            **self.environment,
        }

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}{self.ready}", timeout=5).close()
                return
            time.sleep(0.5)
        pytest.fail(f"the engine is not ready:\n{self.log.read_text(errors='replace')[-6000:]}")
