"""What a Containerfile does, done without a container engine: its COPY lines into a folder, its RUN line there, its ENV and ENTRYPOINT."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "/opt/gatevalve"
IN_A_BUILD = re.compile(r"--mount=\S+ |UV_CACHE_DIR=\S+ |UV_LINK_MODE=\S+ ")
"""Parts of a RUN line that say where an image build keeps its downloads; here they come from this machine's cache."""


@dataclass(frozen=True)
class Image:
    """What an image would hold: its environment on disk, and how a container of it starts."""

    prefix: Path
    env: Mapping[str, str]
    entrypoint: tuple[str, ...]

    def run(self, *arguments: str, program: tuple[str, ...] | None = None, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Run the entry point, or another program of the image, with the image's variables and nothing of ours."""
        command = [*(program or self.entrypoint), *arguments]
        path = self.prefix / "bin" / command[0]
        return subprocess.run([path, *command[1:]], env=dict(self.env), cwd="/", capture_output=True, text=True, timeout=seconds)


def build(containerfile: Path, folder: Path) -> Image:
    """Build what the Containerfile builds below an empty folder; only what its last stage copies is left at the end."""
    stages = re.split(r"^FROM ", containerfile.read_text(), flags=re.MULTILINE)
    making = next(stage for stage in stages if re.match(r"\S+ AS build\n", stage))
    context, prefix = folder / "src", folder / "gatevalve"
    for line in re.findall(r"^COPY (.*)$", making, re.MULTILINE):
        _copy(line.split(), context)
    _leave_bytecode_out(context / ".ci/install")
    (command,) = re.findall(r"^RUN (.*)$", making, re.MULTILINE)
    _run(IN_A_BUILD.sub("", command).replace("${INSTALL}", "").replace(PREFIX, str(prefix)), context, folder)
    shutil.rmtree(context)
    return _started_as(stages[-1], prefix, folder)


def _copy(words: list[str], context: Path) -> None:
    *sources, target = words
    for source in sources:
        assert f"!{source.partition('/')[0]}" in (ROOT / ".dockerignore").read_text().splitlines(), f"{source} is not sent to a build"
        place = context / target / Path(source).name if target.endswith("/") else context / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, context / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / source, place)


def _leave_bytecode_out(script: Path) -> None:
    """Bytecode makes starts faster and decides nothing else; to compile all of it takes longer than everything else here."""
    text = script.read_text()
    assert '"--compile-bytecode", ' in text
    script.write_text(text.replace('"--compile-bytecode", ', ""))


def _run(command: str, context: Path, home: Path) -> None:
    """The shell that a build has, with this Python as its python3."""
    (home / "bin").mkdir()
    (home / "bin/python3").symlink_to(Path(sys.base_prefix) / "bin/python3")
    cache = os.environ.get("UV_CACHE_DIR") or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv")
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_")) or name.lower().endswith("_proxy")
    }
    env = {**kept, "UV_CACHE_DIR": cache, "HOME": str(Path.home()), "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", "-c", command], cwd=context, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _started_as(stage: str, prefix: Path, folder: Path) -> Image:
    assert re.search(rf"^COPY --from=build {PREFIX} {PREFIX}$", stage, re.MULTILINE)
    (variables,) = re.findall(r"^ENV (.*)$", stage, re.MULTILINE)
    env = dict(variable.split("=", 1) for variable in variables.split())
    home = folder / "home"
    home.mkdir()
    env |= {"PATH": env["PATH"].replace(PREFIX, str(prefix)).replace("$PATH", "/usr/local/bin:/usr/bin:/bin"), "HOME": str(home)}
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", stage, re.MULTILINE)
    return Image(prefix, env, tuple(json.loads(entrypoint)))
