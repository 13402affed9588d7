"""What a ServiceAccount's Role grants, compared with what the API server's audit log says that its Pod did."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minicluster.cluster import Cluster
from support.installation import OPERATOR

POD_NAME = "authentication.kubernetes.io/pod-name"

Right = tuple[str, str, str]
"""Verb, API group, resource with its subresource."""

RARE: dict[Right, str] = {
    ("get", "batch", "jobs"): "read when a Job that is to be made exists already, after a kill between its creation and the next reconcile",
    ("delete", "batch", "jobs"): "stops what a candidate runs that is overtaken or past its deadline",
    ("update", "gatevalve.dev", "adaptercandidates/finalizers"): "asked for by clusters that check who may set blockOwnerDeletion",
    ("update", "gatevalve.dev", "adapterchannels/finalizers"): "the same, for the Jobs of sentinels, which a channel owns",
    ("get", "", "events"): "read when an event repeats",
    ("patch", "", "events"): "counts an event that repeats",
}
"""Rights that a candidate's life may not need, and when they are needed."""


@dataclass(frozen=True)
class RoleUse:
    """What was granted, what was done, and what was refused."""

    granted: frozenset[Right]
    used: frozenset[Right]
    denied: frozenset[Right]

    @property
    def unused(self) -> frozenset[Right]:
        """What is granted and was not done."""
        return self.granted - self.used


def role_use(cluster: Cluster, namespace: str) -> RoleUse:
    """Of the operator in a namespace, since the cluster started. The cluster must be one of the rig with an audit log."""
    role = cluster.get("role", OPERATOR, namespace)
    events = list(_events(cluster.dir / "logs", f"system:serviceaccount:{namespace}:{OPERATOR}"))
    denied = frozenset(_right(event) for event in events if _code(event) == 403)
    used = frozenset(_right(event) for event in events if _code(event) != 403)
    return RoleUse(frozenset(granted(role)), used, denied)


def granted(role: dict[str, Any]) -> Iterator[Right]:
    """Every right of a Role."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((verb, group, resource) for verb in rule["verbs"])


def _events(logs: Path, user: str) -> Iterator[dict[str, Any]]:
    """Answered requests for objects that a Pod made as the user; whoever impersonates it, or took a token of it, is none."""
    for path in sorted(logs.glob("audit*.log")):
        for line in path.read_text().splitlines():
            if user in line:
                event = json.loads(line)
                if event["user"].get("username") == user and POD_NAME in event["user"].get("extra", {}) and "resource" in _object(event):
                    yield event


def _object(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = event.get("objectRef", {})
    return found


def _right(event: dict[str, Any]) -> Right:
    found = _object(event)
    subresource = f"/{found['subresource']}" if found.get("subresource") else ""
    return event["verb"], found.get("apiGroup", ""), found["resource"] + subresource


def _code(event: dict[str, Any]) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))
