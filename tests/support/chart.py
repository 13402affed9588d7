"""The chart as Helm renders it without a cluster."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "helm" / "gatevalve"
NAMESPACE = "team"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Rendering:
    """What one rendering holds."""

    manifests: tuple[Manifest, ...]

    def kinds(self) -> set[tuple[str, str]]:
        """Kind and name of every object."""
        return {(found["kind"], found["metadata"]["name"]) for found in self.manifests}

    def get(self, kind: str, name: str) -> Manifest:
        """One object; raises StopIteration when there is none."""
        return next(found for found in self.manifests if (found["kind"], found["metadata"]["name"]) == (kind, name))

    def pods(self) -> dict[str, Manifest]:
        """The Pod spec of every Deployment by name."""
        return {found["metadata"]["name"]: found["spec"]["template"]["spec"] for found in self.manifests if found["kind"] == "Deployment"}


@dataclass(frozen=True)
class Helm:
    """The helm program, with its settings kept in a directory of the tests."""

    program: Path
    home: Path

    def render(self, *args: str, values: Manifest | None = None) -> Rendering:
        """The objects of `helm template`; raises AssertionError with what helm says when it refuses."""
        result = self.run("template", "gatevalve", str(CHART), "--namespace", NAMESPACE, *args, values=values)
        assert result.returncode == 0, result.stderr
        return Rendering(tuple(found for found in yaml.safe_load_all(result.stdout) if found))

    def refusal(self, values: Manifest) -> str:
        """What helm says of values that it must refuse."""
        result = self.run("template", "gatevalve", str(CHART), "--namespace", NAMESPACE, values=values)
        assert result.returncode != 0, f"helm renders {values}"
        return " ".join(result.stderr.split())

    def run(self, *args: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        """Run helm; values come on its standard input."""
        homes = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        given = ("--values", "-") if values is not None else ()
        sent = yaml.safe_dump(values) if values is not None else None
        return subprocess.run([self.program, *args, *given], input=sent, env=homes, capture_output=True, text=True)


def environment(container: Manifest) -> dict[str, str]:
    """The environment of a container; what the kubelet fills in stands as the field's path."""
    return {
        item["name"]: item.get("value") or item["valueFrom"].get("fieldRef", {}).get("fieldPath", "a secret") for item in container["env"]
    }


def mounts(container: Manifest) -> dict[str, Manifest]:
    """The mounts of a container by path."""
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}
