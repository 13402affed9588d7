"""Sealed stays sealed: a training Job whose program tries to read sealed items, their seed, or the API gets nothing, on real Pods."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatevalve.build.jobs import ARMS_URL, Owner, Place, evaluate_job, train_job
from gatevalve.contracts.jobs import EvaluateInput, PublishInput, TrainInput
from gatevalve.contracts.kinds import AdapterShape, Base
from gatevalve.contracts.names import DATA_PATH, SEALED_PATH
from minicluster import Cluster
from support import evaluation, training
from support.world import BASE_DIGEST, PLACE, channel_spec

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "crds"
CHANNEL_UID = "channel-uid"
MARK, SEED, SPLIT_KEY = secrets.token_hex(16), secrets.token_hex(32), secrets.token_hex(32)  # found in no file of ours
BASE = Base(name="tiny-words", uri="file:///models/tiny-words", digest=BASE_DIGEST)

ATTEMPT = """
import glob, json, os, ssl, sys, urllib.error, urllib.request
marks, namespace, data = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
found, tried = set(), 0

def look(what, read):
    global tried
    tried += 1
    try:
        content = read()
    except (OSError, ValueError) as error:
        return
    found.update(what for mark in marks if mark.encode() in content)

def file(path):
    with open(path, "rb") as stream:
        return stream.read(1 << 20)

def api(path, token=""):
    url = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"] + path
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token} if token else {})
    return urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=10).read()

first = "/proc/1/root"
work = next(iter(glob.glob(data + "/*/work/*")), "/tmp")
for name, target in (("up", "../../../../../../sealed"), ("pod", first + "/gatevalve/sealed")):
    try:
        os.symlink(target, os.path.join(work, name))
    except OSError:
        pass
tops = ["/gatevalve", "/tmp", "/var/run", "/run", "/dev/shm", "/var/lib/kubelet", first + "/gatevalve", work + "/up", work + "/pod"]
for top in tops:
    for folder, _, files in os.walk(top, followlinks=False):
        for name in files:
            look("files", lambda: file(os.path.join(folder, name)))
look("environment", lambda: json.dumps(dict(os.environ)).encode())
for process in glob.glob("/proc/[0-9]*"):
    if process != "/proc/" + str(os.getpid()):
        look("processes", lambda: file(process + "/environ"))
        for path in glob.glob(process + "/root" + "/gatevalve/**/*", recursive=True):
            look("processes", lambda: file(path))
for token in glob.glob("/var/run/secrets/**/token", recursive=True):
    found.add("token")
for path in ("/secrets/gatevalve-seal", "/secrets", "/pods"):
    look("API", lambda: api("/api/v1/namespaces/" + namespace + path))
print(json.dumps({"found": sorted(found), "tried": tried}), flush=True)
"""


def place(namespace: str) -> Place:
    return replace(PLACE, namespace=namespace, data_claim="data", sealed_claim="sealed", models_host_path=None)


def common(step: str) -> dict[str, Any]:
    return training.job(step, Path(DATA_PATH), channel_uid=CHANNEL_UID)


def training_pod(namespace: str, owner: Owner) -> dict[str, Any]:
    shape = AdapterShape(rank=8, alpha=16, target_modules=("q_proj",))
    told = TrainInput(**common("train"), base=BASE, adapter=shape, recipe="SFT", snapshot_digest=BASE_DIGEST, parent_digest=BASE_DIGEST)
    return train_job(place(namespace), owner, channel_spec(), 1, told, 300)


def evaluation_pod(namespace: str, owner: Owner) -> dict[str, Any]:
    """The evaluator alone: without the containers before it that would need an adapter and an engine."""
    told = EvaluateInput.model_validate(
        evaluation.job(Path("/gatevalve")).model_dump() | common("evaluate") | {"sealed": f"file://{SEALED_PATH}"}
    )
    shape = channel_spec().adapter
    publish = PublishInput(**common("publish"), arms=ARMS_URL, base=BASE, adapter=shape, adapter_digest=BASE_DIGEST, produced_by="train-1")
    job = evaluate_job(place(namespace), owner, channel_spec(), 1, publish, told, 300)
    del job["spec"]["template"]["spec"]["initContainers"]
    return job


def attempting(job: dict[str, Any], namespace: str, then: str = "") -> dict[str, Any]:
    """The same Job, whose container tries to read what is sealed in place of its work."""
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-c", ATTEMPT + then, json.dumps([MARK, SEED]), namespace, DATA_PATH]
    del container["args"]
    return job


@pytest.fixture
def owner(cluster: Cluster, namespace: str) -> Owner:
    """A candidate with the claims, keys and account of an installation, and one sealed item, in a namespace for restricted Pods only."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "gatevalve-trainer")
    keys = [f"--from-literal=seed={SEED}", f"--from-literal=split-key={SPLIT_KEY}"]
    cluster.kubectl("-n", namespace, "create", "secret", "generic", "gatevalve-seal", *keys)
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("data", "sealed"):
        cluster.apply(json.dumps(claim(name, spec)), namespace=namespace)
    candidate = {"train": {"snapshot": {"last": "24h"}}, "channel": "support"}
    body = {"apiVersion": "gatevalve.dev/v1alpha1", "kind": "AdapterCandidate", "metadata": {"name": "monday"}, "spec": candidate}
    cluster.apply(json.dumps(body), namespace=namespace)
    seal(cluster, namespace)
    return Owner("monday", cluster.get("adaptercandidate", "monday", namespace)["metadata"]["uid"], "support")


def claim(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def seal(cluster: Cluster, namespace: str) -> None:
    """Draw a round, as an earlier evaluation would have done."""
    write = f"mkdir -p /s/{CHANNEL_UID}/rounds/000001 && echo {MARK} > /s/{CHANNEL_UID}/rounds/000001/items-target.jsonl"
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "c",
        "image": "tool:1",
        "args": [write],
        "volumeMounts": [{"name": "s", "mountPath": "/s"}],
        "securityContext": secure,
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "s", "persistentVolumeClaim": {"claimName": "sealed"}}],
    }
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "draw"}, "spec": spec}), namespace=namespace)
    cluster.kubectl("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/draw", "--timeout=60s")


def told_by(cluster: Cluster, namespace: str, job: dict[str, Any]) -> dict[str, Any]:
    """What the attempt of a Job's Pod found, as soon as it has said so."""
    cluster.apply(json.dumps(job))
    name, deadline = job["metadata"]["name"], time.monotonic() + 120
    while time.monotonic() < deadline:
        said = cluster.kubectl("-n", namespace, "logs", f"job/{name}", check=False).strip()
        if said.endswith("}"):
            told: dict[str, Any] = json.loads(said.splitlines()[-1])
            return told
        time.sleep(0.5)
    raise AssertionError(cluster.kubectl("-n", namespace, "describe", f"job/{name}"))


def test_a_training_job_cannot_read_what_is_sealed_although_an_evaluation_beside_it_can(
    cluster: Cluster, namespace: str, owner: Owner
) -> None:
    evaluator = attempting(evaluation_pod(namespace, owner), namespace, "import time; time.sleep(300)")
    control = told_by(cluster, namespace, evaluator)
    assert control["found"] == ["environment", "files"], "the attempt finds what is there"
    told = told_by(cluster, namespace, attempting(training_pod(namespace, owner), namespace))
    assert told["found"] == []
    assert told["tried"] >= 5
    cluster.kubectl("-n", namespace, "delete", "job", evaluator["metadata"]["name"], "--wait=false")
