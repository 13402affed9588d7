"""Images of the rig: names that stand for programs on the host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Image:
    """How a container runs whose image name matches; nothing is ever downloaded.

    A container sees the host's files; /tmp, /run and /var/tmp are its own and empty. Paths in ``binds`` are shown
    read-only also below those.
    """

    path_prepend: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    working_dir: str = ""
    binds: Sequence[Path] = ()
    uid: int = 0

    def to_config(self, pattern: str) -> dict[str, object]:
        """Return the entry of the cluster's configuration file."""
        return {
            "pattern": pattern,
            "path_prepend": str(self.path_prepend or ""),
            "env": dict(self.env),
            "entrypoint": list(self.entrypoint),
            "cmd": list(self.cmd),
            "working_dir": self.working_dir,
            "binds": [str(b) for b in self.binds],
            "uid": self.uid,
        }


TOOL_IMAGES: Mapping[str, Image] = {"tool:*": Image(entrypoint=["/bin/sh", "-c"])}

_PYTHON = {"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}
_OFFLINE = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_VLLM = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def product_images(repo: Path, venv: Path) -> dict[str, Image]:
    """Return the product's images, run from a checkout and a virtual environment wherever they are."""
    binds = [p for p in (repo.resolve(), venv.resolve(), _base_python(venv)) if p is not None]

    def image(entrypoint: list[str], **env: str) -> Image:
        return Image(path_prepend=venv.resolve() / "bin", env=_PYTHON | env, entrypoint=entrypoint, binds=binds)

    return {
        "gatevalve/operator:*": image(["gatevalve-operator"]),
        "gatevalve/trainer:*": image(["gatevalve-trainer"], **_OFFLINE),
        "gatevalve/serving:*": image(["vllm"], **_OFFLINE, **_VLLM, VLLM_CACHE_ROOT=str(venv.resolve() / "vllm-cache")),
        "gatevalve/client:*": image(["python"]),
        **TOOL_IMAGES,
    }


def prometheus_image(program: Path) -> dict[str, Image]:
    """Return the image of Prometheus, run by the rig's own program."""
    return {"prom/prometheus:*": Image(entrypoint=[str(program)], binds=[program.parent])}


def _base_python(venv: Path) -> Path | None:
    """Return where the Python of a virtual environment is installed, unless every container sees that anyhow."""
    interpreter = (venv / "bin" / "python").resolve()
    prefix = interpreter.parent.parent
    return None if prefix in (Path("/usr"), Path("/usr/local"), venv.resolve()) else prefix
