"""Admission on a real API server: who may write what, as cluster-admin, as a namespace's editor, as the trainer and as the operator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract_table import OBJECTS
from gatevalve.contracts import names
from minicluster import Cluster
from minicluster.errors import CommandError
from support import world
from support.installation import BREAK_GLASS, OPERATOR, Installation

pytestmark = pytest.mark.cluster

Send = dict[str, Any]

EDITOR = "ada"
"""Holds gatevalve-editor, Kubernetes' own ClusterRole edit, which may impersonate ServiceAccounts, and MORE."""

MORE = (
    "pods/ephemeralcontainers",
    "pods/status",
    "volumesnapshots.snapshot.storage.k8s.io",
    "volumegroupsnapshots.groupsnapshot.storage.k8s.io",
)
"""What people are given beside it: to debug Pods, to mark them, to take snapshots."""

DIGEST = "sha256:" + "5" * 64
POOLED = "gatevalve-pool-support"
ATTEMPT, EXAM = "first-0123abcd-train-1", "first-0123abcd-evaluate-1"
POLICIES = (
    *("attempts", "claims", "endings", "keys", "persons", "pools", "releases", "sessions", "shells", "statuses", "tokens"),
    "workloads",
)
POOL = {names.LABEL_POOL: "support"}


@dataclass(frozen=True)
class Actor:
    """Somebody who talks to the API server."""

    release: Installation
    flags: tuple[str, ...]

    def kubectl(self, *args: str, send: Send | None = None) -> str:
        """Run kubectl as this actor."""
        return self.release.kubectl(*self.flags, *args, send=send)

    def refusal(self, *args: str, send: Send | None = None) -> str:
        """What kubectl says when it must fail."""
        with pytest.raises(CommandError) as failure:
            self.kubectl(*args, send=send)
        return " ".join(failure.value.stderr.split())


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Installation]:
    """The chart with its policies, an editor, an open channel, two pools, and a candidate's Jobs as the operator would have made them."""
    installation = Installation(cluster, "test-admission")
    cluster.kubectl("create", "namespace", installation.namespace)
    installation.helm("install", rbac={"editors": [{"kind": "User", "name": EDITOR}]})
    cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [snapshot_kind(*each) for each in SNAPSHOTS]}))
    installation.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", f"--user={EDITOR}")
    installation.kubectl("create", "role", "more", "--verb=create,update,patch", f"--resource={','.join(MORE)}")
    installation.kubectl("create", "rolebinding", "more", "--role=more", f"--user={EDITOR}")
    installation.await_operator()
    await_policies(installation)
    open_channel(installation)
    installation.break_glass("create", send=configmap("gatevalve-pool-support"))
    installation.kubectl("create", send=serving("Deployment", POOLED))
    installation.kubectl("create", send=pod("own-pool", POOL))
    installation.kubectl("create", send=pod("bystander"))
    installation.break_glass("create", send=job(ATTEMPT, LABELS))
    installation.break_glass("create", send=job(EXAM, LABELS, containers=[container(env=secret_env("gatevalve-seal"))]))
    yield installation
    installation.uninstall("--ignore-not-found")
    cluster.kubectl("delete", "namespace", installation.namespace, "--wait=false", "--ignore-not-found")
    cluster.kubectl("delete", "crd", *(f"{kind.lower()}s.{group}" for group, kind in SNAPSHOTS), "--wait=false")


@pytest.fixture(scope="module")
def actors(release: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Actor]:
    """Who talks in the table below."""
    token = release.kubectl("create", "token", names.TRAINER_SERVICE_ACCOUNT).strip()
    operator = f"system:serviceaccount:{release.namespace}:{OPERATOR}"
    return {
        "admin": Actor(release, ()),
        "editor": Actor(release, (f"--as={EDITOR}",)),
        "trainer": Actor(release, (f"--kubeconfig={bearer(release.cluster, token, tmp_path_factory.mktemp('trainer'))}",)),
        "somebody who impersonates the operator": Actor(release, (f"--as={operator}",)),
        "break-glass": Actor(release, ("--as=admin", "--as-group=system:masters", f"--as-group={BREAK_GLASS}")),
        "cronjob-controller": Actor(release, ("--as=system:serviceaccount:kube-system:cronjob-controller", "--as-group=system:masters")),
        "kueue": Actor(release, ("--as=system:serviceaccount:kueue-system:kueue-controller-manager", "--as-group=system:masters")),
        "a network plug-in": Actor(release, ("--as=system:serviceaccount:calico-system:calico-node", "--as-group=system:masters")),
    }


def bearer(cluster: Cluster, token: str, directory: Path) -> Path:
    """A kubeconfig with a token and without the administrator's certificate."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--output=json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def await_policies(release: Installation) -> None:
    """Wait until the first and the last policy are enforced: they come a moment after Helm has made them, all within a second."""
    operator = f"--as=system:serviceaccount:{release.namespace}:{OPERATOR}"
    thief = job("thief", serviceAccountName=OPERATOR)
    eventually(lambda: "releases." in stderr(release, "create", "--dry-run=server", send=FORGED), "releases are guarded")
    eventually(lambda: "workloads." in stderr(release, "create", "--dry-run=server", operator, send=thief), "workloads are guarded")
    time.sleep(1)


def open_channel(release: Installation) -> None:
    """Let the operator, which the policies must let work, write an entry and a status."""
    release.kubectl("create", send=thing("GatePolicy", "support-v1", spec=world.policy().wire()))
    release.kubectl("create", send=thing("AdapterChannel", "support", spec=world.channel_spec().wire()))
    eventually(lambda: "support-000000" in release.kubectl("get", "adapterreleases"), "the operator opens the channel", 60)
    eventually(lambda: "NoPods" in release.kubectl("get", "adapterchannel", "support", "--output=json"), "it tells the channel's state")


def stderr(release: Installation, *args: str, send: Send | None = None) -> str:
    try:
        release.kubectl(*args, send=send)
    except CommandError as error:
        return error.stderr
    return ""


def eventually(holds: Callable[[], object], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


# ---- what is sent


def thing(kind: str, name: str, version: str = names.API_VERSION, **fields: Any) -> Send:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **fields.pop("metadata", {})}, **fields}


def configmap(name: str) -> Send:
    return thing("ConfigMap", name, "v1", data={"support": "{}"})


LABELS = {
    names.LABEL_CHANNEL: "support",
    names.LABEL_CANDIDATE_UID: "0123abcd-0000-4000-8000-000000000000",
    names.LABEL_STEP: "train",
    names.LABEL_ATTEMPT: "1",
}


def container(**fields: Any) -> Send:
    return {"name": "main", "image": "tool:1", "command": ["/bin/sh", "-c", "sleep 600"], **fields}


def pod_spec(**fields: Any) -> Send:
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container()], **fields}


def pod(name: str, labels: dict[str, str] | None = None, **fields: Any) -> Send:
    return thing("Pod", name, "v1", metadata={"labels": labels or {}}, spec=pod_spec(**fields))


def job(name: str, labels: dict[str, str] | None = None, **fields: Any) -> Send:
    labelled = {"labels": labels} if labels else {}
    template = {"metadata": labelled, "spec": pod_spec(**fields)}
    return thing("Job", name, "batch/v1", metadata=labelled, spec={"backoffLimit": 0, "template": template})


def cronjob(labels: dict[str, str], **fields: Any) -> Send:
    made = job("unused", labels, **fields)
    template = {"metadata": {"labels": labels}, "spec": made["spec"]}
    return thing("CronJob", "nightly", "batch/v1", spec={"schedule": "0 0 1 1 *", "jobTemplate": template})


def controlled(kind: str, version: str = "apps/v1", **fields: Any) -> Send:
    """A workload whose controller makes Pods as the operator's ServiceAccount."""
    labels = {"app": "thief"}
    spec = {**pod_spec(serviceAccountName=OPERATOR), "restartPolicy": "Always"}
    selector = {"app": "thief"} if kind == "ReplicationController" else {"matchLabels": labels}
    body = {"selector": selector, "template": {"metadata": {"labels": labels}, "spec": spec}, **fields}
    return thing(kind, "thief", version, spec=body)


def serving(kind: str, name: str, version: str = "apps/v1", **fields: Any) -> Send:
    """A workload whose Pods carry the label of a pool."""
    selector = POOL if kind == "ReplicationController" else {"matchLabels": POOL}
    template = {"metadata": {"labels": POOL}, "spec": {**pod_spec(), "restartPolicy": "Always"}}
    return thing(kind, name, version, spec={"selector": selector, "template": template, **fields})


SNAPSHOTS = (("snapshot.storage.k8s.io", "VolumeSnapshot"), ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshot"))
"""Groups and kinds that a cluster with a CSI snapshotter has, and the rig has not."""


def snapshot_kind(group: str, kind: str) -> Send:
    """The definition of a kind of snapshots, as far as admission sees it."""
    singular = kind.lower()
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": f"{singular}s", "singular": singular},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    metadata = {"annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in of a test"}}
    return thing("CustomResourceDefinition", f"{singular}s.{group}", "apiextensions.k8s.io/v1", metadata=metadata, spec=spec)


def snapshot(name: str) -> Send:
    return thing("VolumeSnapshot", "copy", "snapshot.storage.k8s.io/v1", spec={"source": {"persistentVolumeClaimName": name}})


def group_snapshot() -> Send:
    source = {"selector": {"matchLabels": {"app.kubernetes.io/name": "gatevalve"}}}
    return thing("VolumeGroupSnapshot", "copies", "groupsnapshot.storage.k8s.io/v1", spec={"source": source})


def secured(**fields: Any) -> list[Send]:
    return [container(securityContext=fields)]


def first_container(**fields: Any) -> tuple[str, ...]:
    """A strategic patch of a workload's first container."""
    return ("--type=strategic", f"--patch={json.dumps({'spec': {'template': {'spec': {'containers': [{'name': 'main', **fields}]}}}})}")


def secret_volume(name: str) -> list[Send]:
    return [{"name": "v", "secret": {"secretName": name}}]


def claim_volume(name: str) -> list[Send]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def secret_env(name: str) -> list[Send]:
    return [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": name, "key": "seed"}}}]


def claim(source: Send, field: str = "dataSource") -> Send:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return thing("PersistentVolumeClaim", "another", "v1", spec={**spec, **({field: source} if source else {})})


def merge(patch: Send) -> tuple[str, ...]:
    return ("--type=merge", f"--patch={json.dumps(patch)}")


def status(patch: Send) -> tuple[str, ...]:
    return ("--subresource=status", *merge({"status": patch}))


def pin(by: str) -> tuple[str, ...]:
    return ("patch", "adapterchannel", "support", *merge({"spec": {"pin": {"entry": "support-000000", "reason": "worse", "by": by}}}))


def gate_approval(by: str) -> tuple[str, ...]:
    consent = {"digest": DIGEST, "reason": "agreed", "by": by}
    return ("patch", "adapterchannel", "support", *merge({"spec": {"gatePolicyApproval": consent}}))


def anchor(**by: str) -> tuple[str, ...]:
    return ("patch", "adapterchannel", "support", *merge({"spec": {"anchor": {"entry": "support-000000", "reason": "settled", **by}}}))


def lift(value: str | None = "support-000003") -> tuple[str, ...]:
    return ("patch", "adapterchannel", "support", *merge({"metadata": {"annotations": {names.ANNOTATION_UNFREEZE: value}}}))


def candidate_approval(by: str) -> Send:
    approval = {"decision": "Approve", "by": by, "evidenceDigest": DIGEST}
    return {**OBJECTS["AdapterCandidate"], "spec": {**OBJECTS["AdapterCandidate"]["spec"], "approval": approval}}


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000009"}
LIVE = {"live": {"entry": "support-000000"}}
FORGED = OBJECTS["AdapterRelease"]
CREATE = ("create",)

Case = tuple[str, tuple[str, ...], Send | None, str]
"""Who does what with which object, and a part of what that person is told."""

LOG, DERIVED, KEYS = "set spec.pin of the AdapterChannel", "status is derived by the operator", "keys and documents are the operator's"
CLONE = "are not to be copied: make an empty claim"
LIFTED = "gatevalve.dev/unfreeze lifts a freeze of the channel"
NODE = "the node holds the keys of every Pod on it"
SERVES, ENTERED = "carries the label gatevalve.dev/pool serves an alias", "Pods of pools serve aliases: read their logs"
ACCOUNT, THEFT = "ServiceAccount gatevalve-operator is the operator's alone", "take them out of the Pod"
SPEAKS, ENDED, TOKEN = (
    "how they end decides on the candidate",
    "told by the node that ran it",
    "tokens of ServiceAccount gatevalve-operator",
)
RBAC = "is forbidden: User"

REFUSED: dict[str, Case] = {
    # ---- the release log
    "an administrator forges an entry": ("admin", CREATE, FORGED, LOG),
    "an editor forges an entry": ("editor", CREATE, FORGED, RBAC),
    "the trainer forges an entry": ("trainer", CREATE, FORGED, RBAC),
    "an editor who impersonates the operator forges an entry": ("somebody who impersonates the operator", CREATE, FORGED, LOG),
    "an entry is edited": (
        "admin",
        ("patch", "arel", "support-000000", *merge({"spec": {"message": "else"}})),
        None,
        "a log entry is immutable",
    ),
    "an entry is labelled": ("admin", ("label", "arel", "support-000000", "a=b"), None, LOG),
    "an entry is deleted": ("admin", ("delete", "arel", "support-000000"), None, LOG),
    "all entries are deleted at once": ("admin", ("delete", "--raw", "{releases}"), None, LOG),
    "an entry is given an owner that is gone": (
        "admin",
        ("patch", "arel", "support-000000", *merge({"metadata": {"ownerReferences": [OWNER]}})),
        None,
        LOG,
    ),
    # ---- statuses
    "an entry is told to be live": ("admin", ("patch", "arel", "support-000000", *status({"pods": {"desired": 9}})), None, DERIVED),
    "a channel is told to serve something": ("admin", ("patch", "achan", "support", *status(LIVE)), None, DERIVED),
    "a candidate is told to be accepted": ("admin", ("patch", "acand", "waiting", *status({"state": "Promoted"})), None, DERIVED),
    "somebody impersonates the operator to write a status": (
        "somebody who impersonates the operator",
        ("apply", "--server-side", "--subresource=status", "--field-manager=gatevalve", "--force-conflicts"),
        thing("AdapterChannel", "support", status=LIVE),
        DERIVED,
    ),
    "an editor writes a status": ("editor", ("patch", "achan", "support", *status(LIVE)), None, RBAC),
    # ---- keys and documents
    "a document is edited": ("editor", ("patch", "configmap", "gatevalve-pool-support", *merge({"data": {"support": "{1}"}})), None, KEYS),
    "a document is taken out": ("admin", ("patch", "configmap", "gatevalve-pool-support", *merge({"data": None})), None, KEYS),
    "a document is hidden in binary": (
        "admin",
        ("patch", "configmap", "gatevalve-pool-support", *merge({"binaryData": {"b": "e30="}})),
        None,
        KEYS,
    ),
    "documents are frozen": ("admin", ("patch", "configmap", "gatevalve-pool-support", *merge({"immutable": True})), None, KEYS),
    "documents are deleted": ("editor", ("delete", "configmap", "gatevalve-pool-support"), None, KEYS),
    "all ConfigMaps are deleted at once": ("editor", ("delete", "--raw", "{configmaps}"), None, KEYS),
    "documents are given an owner that is gone": (
        "editor",
        ("patch", "configmap", "gatevalve-pool-support", *merge({"metadata": {"ownerReferences": [OWNER]}})),
        None,
        KEYS,
    ),
    "documents of another pool are made up": ("admin", CREATE, configmap("gatevalve-pool-other"), KEYS),
    "the trusted key is changed": ("editor", ("patch", "configmap", "gatevalve-keys", *merge({"data": {"tls.crt": "x"}})), None, KEYS),
    "the signing key is deleted": ("admin", ("delete", "secret", "gatevalve-signing"), None, KEYS),
    "the signing key is deleted by an editor": ("editor", ("delete", "secret", "gatevalve-signing"), None, KEYS),
    "the seal is deleted": ("editor", ("delete", "secret", "gatevalve-seal"), None, KEYS),
    "the trainer edits a document": ("trainer", ("patch", "configmap", "gatevalve-pool-support", *merge({"data": {"a": "b"}})), None, RBAC),
    # ---- persons
    "a pin in somebody else's name": ("editor", pin("grace"), None, "spec.pin.by must be your own user name, ada"),
    "a pin in somebody else's name by an administrator": ("admin", pin("ada"), None, "spec.pin.by must be your own user name"),
    "a new channel with somebody else's pin": (
        "editor",
        CREATE,
        thing(
            "AdapterChannel", "second", spec={**world.channel_spec().wire(), "pin": {"entry": "second-000000", "reason": "r", "by": "x"}}
        ),
        "spec.pin.by",
    ),
    "consent to a policy in somebody else's name": ("editor", gate_approval("grace"), None, "spec.gatePolicyApproval.by"),
    "an anchor in somebody else's name": ("editor", anchor(by="grace"), None, "spec.anchor.by must be your own user name, ada"),
    "an editor lifts a freeze": ("editor", lift(), None, LIFTED),
    "an editor makes a channel that lifts a freeze": (
        "editor",
        CREATE,
        thing(
            "AdapterChannel",
            "second",
            metadata={"annotations": {names.ANNOTATION_UNFREEZE: "second-000001"}},
            spec=world.channel_spec(alias="second").wire(),
        ),
        LIFTED,
    ),
    "an approval in somebody else's name": (
        "editor",
        ("patch", "acand", "waiting", *merge({"spec": {"approval": candidate_approval("grace")["spec"]["approval"]}})),
        None,
        "spec.approval.by",
    ),
    # ---- workloads
    "a Pod as the operator": ("editor", CREATE, pod("thief", serviceAccountName=OPERATOR), ACCOUNT),
    "a Pod as the operator by an old field": ("editor", CREATE, pod("thief", serviceAccount=OPERATOR), ACCOUNT),
    "a Deployment as the operator": ("editor", CREATE, controlled("Deployment"), ACCOUNT),
    "a ReplicaSet as the operator": ("editor", CREATE, controlled("ReplicaSet"), ACCOUNT),
    "a DaemonSet as the operator": ("editor", CREATE, controlled("DaemonSet"), ACCOUNT),
    "a StatefulSet as the operator": ("editor", CREATE, controlled("StatefulSet", serviceName="thief"), ACCOUNT),
    "a ReplicationController as the operator": ("editor", CREATE, controlled("ReplicationController", "v1"), ACCOUNT),
    "a Job as the operator": ("editor", CREATE, job("thief", serviceAccountName=OPERATOR), ACCOUNT),
    "a CronJob as the operator": ("editor", CREATE, cronjob({}, serviceAccountName=OPERATOR), ACCOUNT),
    "the operator's image is changed": ("editor", ("set", "image", f"deployment/{OPERATOR}", "operator=tool:1"), None, ACCOUNT),
    "a Pod that mounts the signing key": ("editor", CREATE, pod("thief", volumes=secret_volume("gatevalve-signing")), THEFT),
    "a Pod that mounts the seal among others": (
        "editor",
        CREATE,
        pod("thief", volumes=[{"name": "v", "projected": {"sources": [{"secret": {"name": "gatevalve-seal"}}]}}]),
        THEFT,
    ),
    "a Pod that mounts Helm's Secret": ("editor", CREATE, pod("thief", volumes=secret_volume("sh.helm.release.v1.gatevalve.v1")), THEFT),
    "a Pod that mounts the sealed area": ("editor", CREATE, pod("thief", volumes=claim_volume("gatevalve-sealed")), THEFT),
    "a Pod that mounts the external log": ("editor", CREATE, pod("thief", volumes=claim_volume("gatevalve-log")), THEFT),
    "a Pod with the seal in a variable": ("editor", CREATE, pod("thief", containers=[container(env=secret_env("gatevalve-seal"))]), THEFT),
    "a Pod with the key in all variables": (
        "editor",
        CREATE,
        pod("thief", containers=[container(envFrom=[{"secretRef": {"name": "gatevalve-signing"}}])]),
        THEFT,
    ),
    "a Pod with the seal in an init container": (
        "editor",
        CREATE,
        pod("thief", initContainers=[container(name="first", env=secret_env("gatevalve-seal"))]),
        THEFT,
    ),
    "a Job that mounts the sealed area": ("editor", CREATE, job("thief", volumes=claim_volume("gatevalve-sealed")), THEFT),
    "a CronJob that mounts the signing key": ("editor", CREATE, cronjob({}, volumes=secret_volume("gatevalve-signing")), THEFT),
    "somebody impersonates the operator to mount the key": (
        "somebody who impersonates the operator",
        CREATE,
        job("thief", volumes=secret_volume("gatevalve-signing")),
        THEFT,
    ),
    "a Pod with the node's files": (
        "editor",
        CREATE,
        pod("thief", volumes=[{"name": "v", "hostPath": {"path": "/var/lib/kubelet"}}]),
        NODE,
    ),
    "a Pod among the node's processes": ("editor", CREATE, pod("thief", hostPID=True), NODE),
    "a Pod in the node's memory": ("editor", CREATE, pod("thief", hostIPC=True), NODE),
    "a Pod on the node's network": ("editor", CREATE, pod("thief", hostNetwork=True), NODE),
    "a privileged Pod": ("editor", CREATE, pod("thief", containers=secured(privileged=True)), NODE),
    "a Pod whose init container is privileged": (
        "editor",
        CREATE,
        pod("thief", initContainers=[container(name="first", securityContext={"privileged": True})]),
        NODE,
    ),
    "a Pod that may mount what the node mounts": (
        "editor",
        CREATE,
        pod("thief", containers=secured(capabilities={"add": ["SYS_ADMIN"]})),
        NODE,
    ),
    "a CronJob with the node's files": (
        "editor",
        CREATE,
        cronjob({}, volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        NODE,
    ),
    "a clone of the sealed area": ("editor", CREATE, claim({"kind": "PersistentVolumeClaim", "name": "gatevalve-sealed"}), CLONE),
    "a clone of the external log by the newer field": (
        "editor",
        CREATE,
        claim({"kind": "PersistentVolumeClaim", "name": "gatevalve-log"}, "dataSourceRef"),
        CLONE,
    ),
    "a claim filled from a snapshot": (
        "editor",
        CREATE,
        claim({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "nightly"}),
        CLONE,
    ),
    "a claim filled by what calls itself a claim": (
        "editor",
        CREATE,
        claim({"apiGroup": "example.com", "kind": "PersistentVolumeClaim", "name": "nightly"}, "dataSourceRef"),
        CLONE,
    ),
    "a snapshot of the sealed area": ("editor", CREATE, snapshot("gatevalve-sealed"), CLONE),
    "a snapshot of a group of claims": ("editor", CREATE, group_snapshot(), CLONE),
    # ---- who serves
    "a Pod that joins a pool": ("editor", CREATE, pod("fake", POOL), SERVES),
    "a Pod of a pool that nobody named yet": ("editor", CREATE, pod("fake", {names.LABEL_POOL: "next"}), SERVES),
    "a Job whose Pods join a pool by an impersonated operator": (
        "somebody who impersonates the operator",
        CREATE,
        job("fake", POOL),
        SERVES,
    ),
    "a Pod that joins a pool later": ("editor", ("label", "pod", "bystander", f"{names.LABEL_POOL}=support"), None, SERVES),
    "a Pod that joins a pool by its status": (
        "editor",
        ("patch", "pod", "bystander", "--subresource=status", *merge({"metadata": {"labels": POOL}})),
        None,
        SERVES,
    ),
    "a pool's Pod is taken out of it": ("editor", ("label", "pod", "own-pool", f"{names.LABEL_POOL}-"), None, SERVES),
    "a pool's Pod moves to another": ("editor", ("label", "pod", "own-pool", f"{names.LABEL_POOL}=other", "--overwrite"), None, SERVES),
    "a pool's Pod gets another image": (
        "editor",
        ("patch", "pod", "own-pool", "--type=strategic", '--patch={"spec":{"containers":[{"name":"main","image":"tool:2"}]}}'),
        None,
        SERVES,
    ),
    "a Deployment of a pool": ("editor", CREATE, serving("Deployment", "fake"), SERVES),
    "a ReplicaSet of a pool": ("editor", CREATE, serving("ReplicaSet", "fake"), SERVES),
    "a DaemonSet of a pool": ("editor", CREATE, serving("DaemonSet", "fake"), SERVES),
    "a StatefulSet of a pool": ("editor", CREATE, serving("StatefulSet", "fake", serviceName="fake"), SERVES),
    "a ReplicationController of a pool": ("editor", CREATE, serving("ReplicationController", "fake", "v1"), SERVES),
    "a Job whose Pods join a pool": ("editor", CREATE, job("fake", POOL), SERVES),
    "a CronJob whose Pods join a pool": ("editor", CREATE, cronjob(POOL), SERVES),
    "the pool's image is changed": ("editor", ("set", "image", f"deployment/{POOLED}", "main=tool:2"), None, SERVES),
    "the pool trusts another key": ("editor", ("set", "env", f"deployment/{POOLED}", f"{names.ENV_KEY_SHA256}={DIGEST}"), None, SERVES),
    "the pool loses its middleware": ("editor", ("patch", "deployment", POOLED, *first_container(args=["serve"])), None, SERVES),
    "a shell in a pool": ("editor", ("exec", f"deployment/{POOLED}", "--", "true"), None, ENTERED),
    "a shell in a pool of another name": ("editor", ("exec", "own-pool", "--", "true"), None, ENTERED),
    "the terminal of a pool": ("editor", ("attach", "own-pool"), None, ENTERED),
    # ---- who speaks for a candidate
    "a Job for a candidate": ("editor", CREATE, job("forged", LABELS), SPEAKS),
    "a Job for a candidate by an administrator": ("admin", CREATE, job("forged", LABELS), SPEAKS),
    "a Job under an attempt's name": ("editor", CREATE, job("first-0123abcd-train-2"), SPEAKS),
    "a Job for a candidate by way of a CronJob": ("cronjob-controller", CREATE, job("nightly-1", LABELS), SPEAKS),
    "a Job for a candidate by its queue": ("kueue", CREATE, job("forged", LABELS), SPEAKS),
    "a Job for a candidate by an impersonated operator": ("somebody who impersonates the operator", CREATE, job("forged", LABELS), SPEAKS),
    "a Pod for a candidate": ("editor", CREATE, pod("forged", LABELS), SPEAKS),
    "a Pod for an attempt": ("editor", CREATE, pod("forged", {"batch.kubernetes.io/job-name": ATTEMPT}), SPEAKS),
    "an attempt is suspended": ("editor", ("patch", "job", ATTEMPT, *merge({"spec": {"suspend": True}})), None, SPEAKS),
    "an attempt is taken from its candidate": ("editor", ("label", "job", ATTEMPT, f"{names.LABEL_CANDIDATE_UID}-"), None, SPEAKS),
    "an attempt's Pod is taken from its Job": ("editor", ("label", "pod", "{attempt}", "batch.kubernetes.io/job-name-"), None, SPEAKS),
    "an attempt's Pod loses all that tells whose it is": (
        "editor",
        ("label", "pod", "{attempt}", "batch.kubernetes.io/job-name-", f"{names.LABEL_CANDIDATE_UID}-"),
        None,
        SPEAKS,
    ),
    "an attempt's Pod gets another image": (
        "editor",
        ("patch", "pod", "{attempt}", "--type=strategic", '--patch={"spec":{"containers":[{"name":"main","image":"tool:2"}]}}'),
        None,
        SPEAKS,
    ),
    "an attempt is told to be done": ("admin", ("patch", "job", ATTEMPT, *status({"succeeded": 1})), None, ENDED),
    "an attempt's Pod is told to be done": ("admin", ("patch", "pod", "{attempt}", *status({"phase": "Succeeded"})), None, ENDED),
    # ---- sessions and tokens
    "a shell in the operator": ("editor", ("exec", f"deployment/{OPERATOR}", "--", "true"), None, "hold keys and evidence"),
    "a shell in an attempt": ("editor", ("exec", "{attempt}", "--", "true"), None, "hold keys and evidence"),
    "the terminal of an attempt": ("editor", ("attach", "{attempt}"), None, "hold keys and evidence"),
    "a way to an attempt's engine": ("editor", ("port-forward", "{attempt}", ":8471"), None, "hold keys and evidence"),
    "a token of the operator": ("editor", ("create", "token", OPERATOR), None, TOKEN),
}


def told(release: Installation, args: tuple[str, ...]) -> list[str]:
    """Arguments with the names that only the cluster knows."""
    found = {
        "releases": f"/apis/{names.API_VERSION}/namespaces/{release.namespace}/adapterreleases",
        "configmaps": f"/api/v1/namespaces/{release.namespace}/configmaps",
        "attempt": attempt_pod(release) if "{attempt}" in args else "",
    }
    return [found.get(arg.strip("{}"), arg) for arg in args]


def attempt_pod(release: Installation) -> str:
    selector = f"--selector=batch.kubernetes.io/job-name={ATTEMPT}"
    release.kubectl("wait", "--for=condition=Ready", "pod", selector, "--timeout=30s")
    return release.kubectl("get", "pods", selector, "--output=name").strip().removeprefix("pod/")


@pytest.fixture(scope="module", autouse=True)
def candidate(release: Installation) -> None:
    """A candidate that waits."""
    release.kubectl("create", send={**OBJECTS["AdapterCandidate"], "metadata": {"name": "waiting"}})


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_with_a_message_that_says_what_to_do(sentence: str, release: Installation, actors: dict[str, Actor]) -> None:
    who, args, send, message = REFUSED[sentence]
    assert message in actors[who].refusal(*told(release, args), send=send)


def test_a_debugging_container_that_reads_the_seal_is_refused(release: Installation, actors: dict[str, Actor]) -> None:
    release.kubectl("create", send=pod("mine"))
    found = release.cluster.get("pod", "mine", release.namespace)
    del found["metadata"]["resourceVersion"]  # its node writes the status meanwhile
    path = f"/api/v1/namespaces/{release.namespace}/pods/mine/ephemeralcontainers"
    found["spec"]["ephemeralContainers"] = [container(name="look", env=secret_env("gatevalve-seal"))]
    assert THEFT in actors["editor"].refusal("replace", "--raw", path, send=found)
    found["spec"]["ephemeralContainers"] = [container(name="look")]
    assert "look" in actors["editor"].kubectl("replace", "--raw", path, send=found)


def test_an_editor_may_impersonate_the_operator_and_so_its_name_alone_must_not_do(actors: dict[str, Actor]) -> None:
    assert actors["editor"].kubectl("auth", "can-i", "impersonate", f"serviceaccounts/{OPERATOR}").strip() == "yes"


ALLOWED: dict[str, tuple[str, tuple[str, ...], Send | None]] = {
    "an editor pins in the own name": ("editor", pin(EDITOR), None),
    "an editor consents to a policy in the own name": ("editor", gate_approval(EDITOR), None),
    "an editor moves the anchor in the own name": ("editor", anchor(by=EDITOR), None),
    "an editor moves the anchor without a name": ("editor", anchor(), None),
    "an editor takes the annotation of a freeze away": ("editor", lift(None), None),
    "an administrator lifts a freeze": ("admin", lift(), None),
    "an editor approves in the own name": (
        "editor",
        ("patch", "acand", "waiting", *merge({"spec": {"approval": candidate_approval(EDITOR)["spec"]["approval"]}})),
        None,
    ),
    "an editor applies a candidate": ("editor", CREATE, OBJECTS["AdapterCandidate"]),
    "an editor pauses a channel": ("editor", ("patch", "achan", "support", *merge({"spec": {"paused": True}})), None),
    "an editor labels the documents": ("editor", ("label", "configmap", "gatevalve-pool-support", "team=a"), None),
    "an editor makes a ConfigMap": ("editor", CREATE, configmap("mine")),
    "an editor runs a Job": ("editor", CREATE, job("mine")),
    "an editor runs a CronJob": ("editor", CREATE, cronjob({})),
    "an editor runs a Pod with the data": ("editor", CREATE, pod("with-data", volumes=claim_volume("gatevalve-data"))),
    "an editor gives up an attempt": ("editor", ("delete", "job", ATTEMPT), None),
    "an administrator annotates the signing key": ("admin", ("annotate", "secret", "gatevalve-signing", "a=b"), None),
    "an administrator looks into the sealed area": ("admin", CREATE, pod("look", volumes=claim_volume("gatevalve-sealed"))),
    "an administrator changes the operator": ("admin", ("set", "image", f"deployment/{OPERATOR}", "operator=tool:1"), None),
    "a queue suspends an evaluation": ("kueue", ("patch", "job", EXAM, *merge({"spec": {"suspend": True}})), None),
    "an administrator runs a Pod with the node's files": (
        "admin",
        CREATE,
        pod("agent", hostPID=True, containers=secured(privileged=True), volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    ),
    "an editor runs a Pod with a capability that is no danger": (
        "editor",
        CREATE,
        pod("server", containers=secured(privileged=False, capabilities={"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]})),
    ),
    "an editor makes an empty claim": ("editor", CREATE, claim({})),
    "an editor clones a claim of the own": ("editor", CREATE, claim({"kind": "PersistentVolumeClaim", "name": "gatevalve-data"})),
    "an editor takes a snapshot of a claim of the own": ("editor", CREATE, snapshot("gatevalve-data")),
    "an administrator takes a snapshot of the external log": ("admin", CREATE, snapshot("gatevalve-log")),
    "an administrator fills a claim from a snapshot": (
        "admin",
        CREATE,
        claim({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "nightly"}),
    ),
    "an administrator makes a pool": ("admin", CREATE, serving("StatefulSet", "another", serviceName="another")),
    "an administrator makes a pool of one Pod": ("admin", CREATE, pod("another", POOL)),
    "an administrator changes the pool's image": ("admin", ("set", "image", f"deployment/{POOLED}", "main=tool:2"), None),
    "an administrator restarts the pool": ("admin", ("rollout", "restart", f"deployment/{POOLED}"), None),
    "an editor scales the pool": ("editor", ("scale", f"deployment/{POOLED}", "--replicas=2"), None),
    "an editor annotates the pool": ("editor", ("annotate", "deployment", POOLED, "a=b"), None),
    "an editor annotates the pool's Pod": ("editor", ("annotate", "pod", "own-pool", "a=b"), None),
    "an editor labels the pool's Pod otherwise": ("editor", ("label", "pod", "own-pool", "a=b"), None),
    "an editor restarts the pool's Pod": ("editor", ("delete", "pod", "own-pool"), None),
    "an editor labels a Pod": ("editor", ("label", "pod", "bystander", "a=b"), None),
    "an administrator clones the external log": ("admin", CREATE, claim({"kind": "PersistentVolumeClaim", "name": "gatevalve-log"})),
    "a network annotates an attempt's Pod": ("a network plug-in", ("annotate", "pod", "{attempt}", "ip=1"), None),
    "a network writes a condition of an attempt's Pod": (
        "a network plug-in",
        ("patch", "pod", "{attempt}", "--subresource=status", *merge({"metadata": {"annotations": {"ip": "1"}}})),
        None,
    ),
    "break-glass writes an entry": ("break-glass", CREATE, FORGED),
    "break-glass deletes an entry": ("break-glass", ("delete", "arel", "support-000000"), None),
    "break-glass writes a status": ("break-glass", ("patch", "achan", "support", *status(LIVE)), None),
    "break-glass edits a document": ("break-glass", ("patch", "configmap", "gatevalve-pool-support", *merge({"data": {"a": "b"}})), None),
    "break-glass restores somebody's pin": ("break-glass", pin("grace"), None),
    "break-glass runs a Job for a candidate": ("break-glass", CREATE, job("forged", LABELS)),
    "break-glass ends an attempt": ("break-glass", ("patch", "job", ATTEMPT, *status({"active": 2})), None),
}


@pytest.mark.parametrize("sentence", ALLOWED)
def test_allowed(sentence: str, release: Installation, actors: dict[str, Actor]) -> None:
    who, args, send = ALLOWED[sentence]
    dry = () if args[:2] == ("rollout", "restart") else ("--dry-run=server",)
    actors[who].kubectl(*told(release, args), *dry, send=send)


def test_a_pool_scales_and_restarts_and_an_editor_enters_other_pods(release: Installation, actors: dict[str, Actor]) -> None:
    actors["editor"].kubectl("scale", f"deployment/{POOLED}", "--replicas=2")
    actors["admin"].kubectl("set", "env", f"deployment/{POOLED}", "A=b")
    release.kubectl("rollout", "status", f"deployment/{POOLED}", "--timeout=60s", timeout=90)
    assert release.cluster.get("deployment", POOLED, release.namespace)["status"]["updatedReplicas"] == 2
    release.kubectl("wait", "--for=condition=Ready", "pod/bystander", "pod/own-pool", "--timeout=30s")
    assert actors["editor"].kubectl("exec", "bystander", "--", "/bin/echo", "inside").strip() == "inside"
    assert actors["admin"].kubectl("exec", "own-pool", "--", "/bin/echo", "inside").strip() == "inside"


def test_a_debugging_container_in_a_pool_is_refused(release: Installation, actors: dict[str, Actor]) -> None:
    found = release.cluster.get("pod", "own-pool", release.namespace)
    del found["metadata"]["resourceVersion"]  # its node writes the status meanwhile
    path = f"/api/v1/namespaces/{release.namespace}/pods/own-pool/ephemeralcontainers"
    found["spec"]["ephemeralContainers"] = [container(name="look")]
    assert SERVES in actors["editor"].refusal("replace", "--raw", path, send=found)


ANNOTATE = """
import json, ssl, sys, urllib.request
place, url, patch = "/var/run/secrets/kubernetes.io/serviceaccount/", *sys.argv[1:]
headers = {"Authorization": "Bearer " + open(place + "token").read(), "Content-Type": "application/merge-patch+json"}
request = urllib.request.Request("https://kubernetes.default.svc" + url, patch.encode(), headers, method="PATCH")
print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=place + "ca.crt")).status)
"""


def test_the_operator_annotates_the_pods_of_a_pool(release: Installation, actors: dict[str, Actor]) -> None:
    url = f"/api/v1/namespaces/{release.namespace}/pods/own-pool"
    patch = json.dumps({"metadata": {"annotations": {f"{names.GROUP}/support": "support-000000"}}})
    assert actors["admin"].kubectl("exec", f"deployment/{OPERATOR}", "--", "python", "-c", ANNOTATE, url, patch).strip() == "200"


def test_a_freeze_that_was_lifted_is_no_obstacle_to_other_changes(actors: dict[str, Actor]) -> None:
    actors["admin"].kubectl(*lift())
    actors["editor"].kubectl("patch", "achan", "support", *merge({"spec": {"paused": True}}))
    assert LIFTED in actors["editor"].refusal(*lift("support-000009"))
    actors["editor"].kubectl("patch", "achan", "support", *merge({"metadata": {"annotations": None}, "spec": {"paused": False}}))


def test_somebody_elses_pin_is_no_obstacle_to_other_changes(release: Installation, actors: dict[str, Actor]) -> None:
    actors["break-glass"].kubectl(*pin("grace"))
    actors["editor"].kubectl("patch", "achan", "support", *merge({"spec": {"paused": True}}))
    assert "spec.pin.by" in actors["editor"].refusal("patch", "achan", "support", *merge({"spec": {"pin": {"reason": "else"}}}))
    actors["editor"].kubectl("patch", "achan", "support", *merge({"spec": {"pin": None, "paused": False}}))


@pytest.mark.parametrize("target", [f"deployment/{OPERATOR}", "{attempt}"])
def test_an_administrator_may_look_inside(target: str, release: Installation, actors: dict[str, Actor]) -> None:
    assert actors["admin"].kubectl("exec", *told(release, (target,)), "--", "/bin/echo", "inside").strip() == "inside"


def test_an_administrator_may_take_a_token_of_the_operator(actors: dict[str, Actor]) -> None:
    assert actors["admin"].kubectl("create", "token", OPERATOR).count(".") == 2


def test_a_token_of_the_operator_outside_of_its_pod_writes_nothing(release: Installation, actors: dict[str, Actor], tmp_path: Path) -> None:
    token = actors["admin"].kubectl("create", "token", OPERATOR).strip()
    stolen = Actor(release, (f"--kubeconfig={bearer(release.cluster, token, tmp_path)}",))
    assert LOG in stolen.refusal("create", send=FORGED)


def test_the_api_server_finds_no_fault_in_the_policies(release: Installation) -> None:
    found = json.loads(release.cluster.kubectl("get", "validatingadmissionpolicies", "--output=json"))["items"]
    ours = {
        each["metadata"]["name"]: each["status"].get("typeChecking")
        for each in found
        if f".{release.namespace}." in each["metadata"]["name"]
    }
    assert ours == {f"{part}.{release.namespace}.gatevalve.dev": {} for part in POLICIES}


# ---- the life of a release, with the policies on; each test goes on where the one before ended


def test_other_namespaces_are_untouched(release: Installation, namespace: str) -> None:
    other = Installation(release.cluster, namespace)
    other.kubectl("create", send=FORGED)
    other.kubectl("create", send=configmap("gatevalve-pool-support"))


def test_another_namespace_gets_policies_of_its_own_and_goes_with_everything_in_it(release: Installation) -> None:
    with second_release(release.cluster) as other:
        await_policies(other)
        other.break_glass("create", send=FORGED)
        other.break_glass("patch", "arel", FORGED["metadata"]["name"], *status({"pods": {"desired": 1}}))
        other.break_glass("create", send=configmap("gatevalve-pool-support"))
        other.break_glass("create", send=job(ATTEMPT, LABELS))
        first = f"--as=system:serviceaccount:{release.namespace}:{OPERATOR}"
        assert RBAC in Actor(other, (first,)).refusal("create", send=FORGED)
        assert KEYS in Actor(other, ()).refusal("delete", "secret", "gatevalve-signing")
        other.cluster.kubectl("delete", "namespace", other.namespace, "--timeout=60s", timeout=90)


@contextmanager
def second_release(cluster: Cluster) -> Iterator[Installation]:
    """A release beside the first. Pods of the rig share a network, and so its operator, on the same port, finds no node."""
    other = Installation(cluster, "test-admission-2")
    cluster.kubectl("create", "namespace", other.namespace)
    try:
        other.helm("install", crds={"install": False}, operator={"nodeSelector": {"none": "such"}})
        yield other
    finally:
        other.uninstall("--ignore-not-found")
        cluster.kubectl("delete", "namespace", other.namespace, "--ignore-not-found", "--wait=false")


def test_an_upgrade_makes_a_secret_that_was_lost_and_nobody_else_does(release: Installation, actors: dict[str, Actor]) -> None:
    lost = release.cluster.get("secret", names.SEAL_SECRET, release.namespace)
    release.break_glass("delete", "secret", names.SEAL_SECRET)
    own = thing("Secret", names.SEAL_SECRET, "v1", data=lost["data"])
    assert KEYS in actors["editor"].refusal("create", send=own)
    release.helm("upgrade")
    assert set(release.cluster.get("secret", names.SEAL_SECRET, release.namespace)["data"]) == set(lost["data"])


def test_uninstalling_and_installing_again_goes_on_with_what_was_kept(release: Installation) -> None:
    keys, entry = release.keys(), release.cluster.get("arel", "support-000000", release.namespace)
    release.uninstall("--wait")
    assert f".{release.namespace}.gatevalve.dev" not in release.cluster.kubectl("get", "validatingadmissionpolicies", "--output=name")
    release.helm("install")
    await_policies(release)
    assert release.keys() == keys
    assert release.cluster.get("arel", "support-000000", release.namespace)["spec"] == entry["spec"]


def test_without_admission_an_administrator_may_forge(release: Installation) -> None:
    release.helm("upgrade", admission={"enabled": False})
    eventually(lambda: stderr(release, "create", "--dry-run=server", send=FORGED) == "", "the policies are gone")
