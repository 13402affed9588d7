"""Jobs on an API server in memory that end at once: a kubelet that runs no program, but leaves real files of evidence."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import FileFact
from gatevalve.contracts.jobs import AdapterResult, DrawInput, EvaluateInput, EvidenceResult, RoundResult, SnapshotResult, Termination
from gatevalve.contracts.names import ENV_JOB, LABEL_CANDIDATE_UID, LABEL_STEP, evidence_dir
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.io.ports import JOBS, PODS, KubeObject, Resource
from support import world
from support.engine_world import FakeCluster

ENDED = "2026-01-02T03:04:06Z"


@dataclass
class ScriptedJobs:
    """Ends every Job that is created; the adapter of a candidate is better than the base by `gain`."""

    cluster: FakeCluster
    sealed: Path
    gain: float = 0.5

    def saw(self, resource: Resource, kind: str, thing: KubeObject) -> None:
        """A watcher of the cluster: a new Job runs as soon as its creator has gone on."""
        if resource is JOBS and kind == "ADDED":
            asyncio.get_running_loop().call_soon(self._end, thing)

    def _end(self, job: KubeObject) -> None:
        if (JOBS.plural, job["metadata"]["name"]) not in self.cluster.objects:
            return
        step = job["metadata"]["labels"][LABEL_STEP]
        told = Termination(step=step, exit_code=0, message="done").model_copy(update=self._result(step, job))
        self.cluster.put(PODS, _pod(job, told))
        condition = {"type": "Complete", "status": "True", "lastTransitionTime": ENDED}
        self.cluster.put(JOBS, {**job, "status": {"conditions": [condition]}})

    def _result(self, step: str, job: KubeObject) -> dict[str, Any]:
        uid = job["metadata"]["labels"][LABEL_CANDIDATE_UID]
        if step == "draw":
            return {"round": RoundResult(round=DrawInput.parse_json(_told(job)).round, items=world.ITEMS)}
        if step == "snapshot":
            return {"snapshot": SnapshotResult(snapshot_digest=world.digest(uid), rows=640, rewarded=640)}
        if step in ("train", "fetch"):
            return {"adapter": AdapterResult(adapter_digest=world.digest(f"adapter of {uid}"), steps=12)}
        return {"evidence": self._evidence(job)}

    def _evidence(self, job: KubeObject) -> EvidenceResult:
        task = EvaluateInput.parse_json(_told(job))
        packed = _packed_rows(task.policy, self.gain)
        pairs = FileFact(path="pairs.jsonl.gz", size=len(packed), sha256=sha256(packed))
        report = world.report_of(task, task.policy, pairs).canonical()
        directory = self.sealed / evidence_dir(task.channel_uid, task.test_entry)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pairs.jsonl.gz").write_bytes(packed)
        (directory / "report.json").write_bytes(report)
        return EvidenceResult(evidence_digest=sha256(report), pairs_digest=sha256(packed))


def _told(job: KubeObject) -> str:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return next(str(item["value"]) for item in container["env"] if item["name"] == ENV_JOB)


@lru_cache
def _packed_rows(rules: GatePolicySpec, gain: float) -> bytes:
    return gzip.compress(b"\n".join(row.canonical() for row in world.rows_of(rules, gain)), mtime=0)


def _pod(job: KubeObject, told: Termination) -> KubeObject:
    name = job["metadata"]["name"]
    container = {"name": "main", "state": {"terminated": {"exitCode": 0, "message": told.canonical().decode()}}}
    return {
        "metadata": {
            "name": f"{name}-pod",
            "labels": {"batch.kubernetes.io/job-name": name},
            "ownerReferences": [{"uid": job["metadata"]["uid"]}],
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Succeeded", "containerStatuses": [container]},
    }
