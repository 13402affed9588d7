"""The images, as far as they can be built without a container engine: each Containerfile's lock, installed by its own lines, starts."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gatevalve.contracts.hashing import directory_digest
from support.containerfiles import ROOT, Image, build

pytestmark = [pytest.mark.component, pytest.mark.timeout(900)]

BASE = ROOT / "demo/base/tiny-words"
EVERY_MODULE = """
import importlib, pkgutil, sys
for top in sys.argv[1:]:
    package = importlib.import_module(top)
    for found in pkgutil.walk_packages(package.__path__, top + "."):
        importlib.import_module(found.name)
    print(top, package.__file__)
"""
PLUGINS = 'import importlib.metadata as m; [print(e.name, e.value) for e in m.entry_points(group="vllm.general_plugins")]'
ENGINE = ("--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "67108864", "--enforce-eager")
CPU = {"OMP_NUM_THREADS": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@contextmanager
def image(source: str, folder: Path) -> Iterator[Image]:
    """An image, whose gigabytes go as soon as they were looked at."""
    try:
        yield build(ROOT / source / "Containerfile", folder)
    finally:
        shutil.rmtree(folder)


def every_module(built: Image, *packages: str) -> list[str]:
    """Import every module of some packages in the image; returns where they lie."""
    done = built.run("-c", EVERY_MODULE, *packages, program=("python",))
    assert done.returncode == 0, done.stderr
    return [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith(packages)]


def test_the_operators_image_starts_and_says_in_one_sentence_what_it_misses(tmp_path: Path) -> None:
    with image("operator", tmp_path / "image") as built:
        done = built.run()
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith("gatevalve-operator: GATEVALVE_NAMESPACE: is not set; set it in the operator's environment")
        parts = [f"gatevalve.{part}" for part in ("contracts", "gate", "decide", "build", "io", "engine")]
        assert all(path.startswith(str(built.prefix)) for path in every_module(built, *parts))


def test_the_trainers_image_digests_a_base_and_holds_what_every_step_imports(tmp_path: Path) -> None:
    with image("trainer_image", tmp_path / "image") as built:
        assert built.run("digest", str(BASE)).stdout.strip() == directory_digest(BASE)
        done = built.run("train")
        assert (done.returncode, "GATEVALVE_JOB: is not set" in done.stderr) == (10, True)
        assert all(path.startswith(str(built.prefix)) for path in every_module(built, "gatevalve_trainer"))


@pytest.mark.vllm
def test_the_serving_image_answers_with_our_plug_in_and_holds_what_the_middleware_imports(tmp_path: Path) -> None:
    with image("serving_image", tmp_path / "image") as built:
        assert all(path.startswith(str(built.prefix)) for path in every_module(built, "gatevalve_serving"))
        assert "gatevalve-cpu-lora gatevalve_serving.cpu_lora:register" in built.run("-c", PLUGINS, program=("python",)).stdout.splitlines()
        with engine(built, tmp_path / "engine.log") as url:
            assert len(completion(url)["choices"]) == 1


@contextmanager
def engine(built: Image, log: Path) -> Iterator[str]:
    """The image's entry point, serving the demo's base with the arguments of an evaluation engine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (
        "serve",
        str(BASE),
        *ENGINE,
        "--served-model-name",
        "tiny-words",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--enable-lora",
    )
    command = [str(built.prefix / "bin" / built.entrypoint[0]), *arguments]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env={**built.env, **CPU}, cwd="/", stdout=stream, stderr=stream)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 400
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the engine does not answer:\n{log.read_text(errors='replace')[-4000:]}")


def completion(url: str) -> dict[str, list[object]]:
    body = {"model": "tiny-words", "messages": [{"role": "user", "content": "Ann has 3 coins."}], "max_tokens": 4}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, list[object]] = json.load(answer)
    return found
