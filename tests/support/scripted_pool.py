"""Serving Pods of the rig without vLLM: Pods of a pool whose process is `support.scripted_pod`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gatevalve.contracts import names

REPO = Path(__file__).parents[2]
BASES = REPO / "demo" / "base"
PORT = 8000


def scripted_pod(pool: str, key_digest: str, *, runtime_lora: bool = True, answers: bool = True) -> dict[str, Any]:
    """The Pod of a pool; one that does not answer runs and listens nowhere."""
    serve = ["python", "-m", "support.scripted_pod", "/models/tiny-words", str(PORT)]
    container = {
        "name": "vllm",
        "image": "gatevalve/serving:scripted",
        "command": serve if answers else ["sleep", "infinity"],
        "env": [*_environment(pool, key_digest), {"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": str(runtime_lora)}],
        "volumeMounts": [
            {"name": "documents", "mountPath": names.POOL_PATH, "readOnly": True},
            {"name": "keys", "mountPath": names.KEYS_PATH, "readOnly": True},
            {"name": "data", "mountPath": names.DATA_PATH},
            {"name": "cache", "mountPath": names.CACHE_PATH},
            {"name": "models", "mountPath": names.MODELS_PATH, "readOnly": True},
        ],
    }
    volumes = [
        {"name": "documents", "configMap": {"name": names.pool_configmap(pool), "optional": True}},
        {"name": "keys", "configMap": {"name": names.KEYS_CONFIGMAP}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "gatevalve-data"}},
        {"name": "cache", "emptyDir": {}},
        {"name": "models", "hostPath": {"path": str(BASES), "type": "Directory"}},
    ]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1, "enableServiceLinks": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pool-{pool}", "labels": {names.LABEL_POOL: pool}},
        "spec": {**spec, "automountServiceAccountToken": False},
    }


def _environment(pool: str, key_digest: str) -> list[dict[str, Any]]:
    given = {names.ENV_POOL: pool, names.ENV_KEY_SHA256: key_digest, "PYTHONPATH": str(REPO / "tests")}
    fields = {
        names.ENV_NAMESPACE: "metadata.namespace",
        names.ENV_POD_NAME: "metadata.name",
        names.ENV_POD_UID: "metadata.uid",
        "POD_IP": "status.podIP",
    }
    return [
        *({"name": name, "value": value} for name, value in given.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]
