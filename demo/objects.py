"""The objects the story applies: rendered from the files in demo/manifests, plus the client Jobs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
MANIFESTS = HERE / "manifests"
SUITES = HERE / "suites"
BASE = HERE / "base" / "tiny-words"
TRAINER_IMAGE = "gatevalve/trainer:0.1.0"
RUN_AS_USER = 1000


def manifest(name: str) -> dict[str, Any]:
    """A file of demo/manifests as an object."""
    loaded: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
    return loaded


def candidate(name: str, window: tuple[str, str], recipe: str, **parameters: str) -> dict[str, Any]:
    """A candidate over one session's window."""
    loaded = copy.deepcopy(manifest("candidate"))
    loaded["metadata"]["name"] = name
    loaded["spec"]["train"] |= {"recipe": recipe, "snapshot": {"from": window[0], "to": window[1]}}
    loaded["spec"]["train"]["parameters"] |= parameters
    return loaded


def client_job(name: str, url: str, alias: str, mode: str, *args: str) -> dict[str, Any]:
    """A client Job: demo/client.py from its ConfigMap."""
    command = ["python", "/demo/client.py", mode, "--url", url, "--alias", alias, *args]
    return _job(name, command, [("demo-client", "/demo", {"configMap": {"name": "demo-client"}})])


def copy_job() -> dict[str, Any]:
    """The Job that puts base and suites on the claims."""
    mounts = [
        ("demo-client", "/demo", {"configMap": {"name": "demo-client"}}),
        ("demo-base", "/in/base", {"configMap": {"name": "demo-base"}}),
        ("demo-suites", "/in/suites", {"configMap": {"name": "demo-suites"}}),
        ("models", "/models", {"persistentVolumeClaim": {"claimName": "demo-models"}}),
        ("data", "/data", {"persistentVolumeClaim": {"claimName": "gatevalve-data"}}),
    ]
    command = ["python", "/demo/copy_files.py", "/in/base=/models/tiny-words", "/in/suites=/data/suites"]
    return _job("demo-copy", command, mounts)


def _job(name: str, command: list[str], mounts: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": TRAINER_IMAGE,
        "command": command,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path, _ in mounts],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": RUN_AS_USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": volume, **source} for volume, _, source in mounts],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "gatevalve-demo"}},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"gatevalve-demo": name}}, "spec": pod}},
    }
