"""Jobs of a candidate: one attempt each, no API token, restricted Pods that see only the paths their step needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gatevalve.contracts import names
from gatevalve.contracts.jobs import EvaluateInput, FetchInput, JobInput, PublishInput, SnapshotInput, TrainInput
from gatevalve.contracts.kinds import AdapterChannelSpec, PodTemplate
from gatevalve.contracts.reasons import Step

ENGINE_PORT = 8471
"""Of the evaluation engine: not 8000, so that it never meets a pool's engine where Pods share a network (hostNetwork, the rig)."""

ENGINE_URL = f"http://127.0.0.1:{ENGINE_PORT}"
ARMS_URL = f"file://{names.ARMS_PATH}"
GRACE_SECONDS = 60
ENGINE_START_PROBES = 200


@dataclass(frozen=True, slots=True)
class Place:
    """What the operator's own deployment tells about images, claims and users."""

    namespace: str
    trainer_image: str
    serving_image: str
    data_claim: str
    sealed_claim: str
    models_claim: str | None
    models_host_path: str | None
    run_as_user: int


@dataclass(frozen=True, slots=True)
class Owner:
    """The candidate that owns a Job."""

    name: str
    uid: str
    channel: str


Mount = tuple[str, bool]
"""(path below an area, read-only)."""


def snapshot_job(place: Place, owner: Owner, attempt: int, job: SnapshotInput, seconds: int) -> dict[str, Any]:
    """Freezes traffic: reads traffic/, writes snapshots/, holds the split key and nothing sealed."""
    mounts = [(names.traffic_dir(job.channel_uid), True), (f"{job.channel_uid}/snapshots", False)]
    env = [_secret_env(names.ENV_SPLIT_KEY, names.SEAL_SPLIT_KEY)]
    return _trainer_job(place, owner, Step.SNAPSHOT, attempt, job, mounts, PodTemplate(), seconds, env)


def train_job(place: Place, owner: Owner, spec: AdapterChannelSpec, attempt: int, job: TrainInput, seconds: int) -> dict[str, Any]:
    """Trains: reads its snapshot and its parent, writes its own work directory, never sees anything sealed."""
    mounts = [
        (names.snapshot_dir(job.channel_uid, job.snapshot_digest), True),
        (names.work_dir(job.channel_uid, owner.uid), False),
    ]
    if job.parent_digest is not None:
        mounts.append((names.adapter_dir(job.channel_uid, job.parent_digest), True))
    return _trainer_job(place, owner, Step.TRAIN, attempt, job, mounts, spec.training.pod, seconds, [])


def fetch_job(place: Place, owner: Owner, spec: AdapterChannelSpec, attempt: int, job: FetchInput, seconds: int) -> dict[str, Any]:
    """Fetches an artifact: reads inbox/, writes its own work directory."""
    mounts = [(names.inbox_dir(), True), (names.work_dir(job.channel_uid, owner.uid), False)]
    return _trainer_job(place, owner, Step.FETCH, attempt, job, mounts, spec.training.pod, seconds, [])


def evaluate_job(
    place: Place, owner: Owner, spec: AdapterChannelSpec, attempt: int, publish: PublishInput, job: EvaluateInput, seconds: int
) -> dict[str, Any]:
    """Publishes and measures: init `publish`, the engine as native sidecar without our middleware, main container `evaluate`."""
    template = spec.evaluation.pod
    publisher = _container(
        "publish",
        place.trainer_image,
        ["publish"],
        _job_env(publish),
        [
            *_data([(names.work_dir(job.channel_uid, owner.uid), True), (f"{job.channel_uid}/adapters", False)]),
            _arms(read_only=False),
            *_models(place),
        ],
    )
    evaluator = _container(
        "evaluate",
        place.trainer_image,
        ["evaluate"],
        [*_job_env(job), _secret_env(names.ENV_SPLIT_KEY, names.SEAL_SPLIT_KEY), _secret_env(names.ENV_SEAL_SEED, names.SEAL_SEED_KEY)],
        [*_data([(names.suites_dir(), True)]), _sealed(job.channel_uid)],
    )
    return _job(place, owner, Step.EVALUATE, attempt, [publisher, _engine(place, spec, job)], evaluator, template, seconds)


def _engine(place: Place, spec: AdapterChannelSpec, job: EvaluateInput) -> dict[str, Any]:
    container = _container(
        "engine",
        spec.evaluation.pod.image or place.serving_image,
        _engine_args(spec, job),
        [*_template_env(spec.evaluation.pod), {"name": "VLLM_HOST_IP", "value": "127.0.0.1"}],
        # Never the data area: what was verified there may have changed since.
        [_arms(read_only=True), *_models(place), {"name": "shm", "mountPath": "/dev/shm"}],
    )
    container["restartPolicy"] = "Always"
    container["resources"] = spec.evaluation.pod.resources or {}
    container["startupProbe"] = {
        "exec": {"command": ["python", "-c", _HEALTH_PROBE]},
        "periodSeconds": 3,
        "timeoutSeconds": 10,
        "failureThreshold": ENGINE_START_PROBES,
    }
    return container


def _engine_args(spec: AdapterChannelSpec, job: EvaluateInput) -> list[str]:
    """The channel's arguments come before our own: of an option that is given twice the last one counts."""
    return [
        *("serve", job.base.uri.removeprefix("file://")),
        *spec.evaluation.engine_args,
        *("--served-model-name", job.base.name),
        *("--host", "127.0.0.1"),
        *("--port", str(ENGINE_PORT)),
        *("--no-enable-log-requests", "--no-enable-log-outputs"),  # sealed prompts are not for the log
        *("--enable-lora", "--max-loras", "3"),
        *("--max-lora-rank", str(spec.adapter.rank)),
        *("--lora-modules", *_lora_modules(job)),
    ]


_HEALTH_PROBE = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{ENGINE_PORT}/health', timeout=5)"


def _lora_modules(job: EvaluateInput) -> list[str]:
    digests = {"candidate": job.candidate_digest, "incumbent": job.incumbent_digest, "anchor": job.anchor_digest}
    models = {model: digest for arm, model in job.arms.items() if (digest := digests[arm]) is not None}
    return [f"{model}={names.ARMS_PATH}/{names.arm_dir(digest)}" for model, digest in models.items()]


def _trainer_job(
    place: Place,
    owner: Owner,
    step: Step,
    attempt: int,
    job: JobInput,
    mounts: list[Mount],
    template: PodTemplate,
    seconds: int,
    env: list[dict[str, Any]],
) -> dict[str, Any]:
    container = _container(
        str(step),
        template.image or place.trainer_image,
        [str(step)],
        [*_template_env(template), *_job_env(job), *env],
        [*_data(mounts), *_models(place)],
    )
    container["resources"] = template.resources or {}
    return _job(place, owner, step, attempt, [], container, template, seconds)


def _job(
    place: Place,
    owner: Owner,
    step: Step,
    attempt: int,
    init: list[dict[str, Any]],
    main: dict[str, Any],
    template: PodTemplate,
    seconds: int,
) -> dict[str, Any]:
    labels = {
        names.LABEL_CHANNEL: owner.channel,
        names.LABEL_CANDIDATE: owner.name,
        names.LABEL_CANDIDATE_UID: owner.uid,
        names.LABEL_STEP: str(step),
        names.LABEL_ATTEMPT: str(attempt),
        "app.kubernetes.io/managed-by": "gatevalve",
        "app.kubernetes.io/component": "trainer",
    }
    queue = {"kueue.x-k8s.io/queue-name": template.queue_name} if template.queue_name else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.job_name(owner.name, owner.uid, str(step), attempt),
            "namespace": place.namespace,
            "labels": {**labels, **queue},
            "ownerReferences": [_owner_reference(owner)],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": max(seconds, 1),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(place, init, main, template)},
        },
    }


def _pod_spec(place: Place, init: list[dict[str, Any]], main: dict[str, Any], template: PodTemplate) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": names.TRAINER_SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": place.run_as_user,
            "runAsGroup": place.run_as_user,
            "fsGroup": place.run_as_user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [main],
        "volumes": _volumes(place, [*init, main]),
    }
    if init:
        spec["initContainers"] = init
    optional = {
        "nodeSelector": template.node_selector,
        "tolerations": list(template.tolerations) if template.tolerations else None,
        "priorityClassName": template.priority_class_name,
    }
    return {**spec, **{key: value for key, value in optional.items() if value}}


def _volumes(place: Place, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    used = {mount["name"] for container in containers for mount in container["volumeMounts"]}
    known: dict[str, dict[str, Any]] = {
        "data": {"persistentVolumeClaim": {"claimName": place.data_claim}},
        "sealed": {"persistentVolumeClaim": {"claimName": place.sealed_claim}},
        "arms": {"emptyDir": {}},
        "tmp": {"emptyDir": {}},
        "shm": {"emptyDir": {"medium": "Memory"}},
        "models": _models_source(place),
    }
    return [{"name": name, **source} for name, source in known.items() if name in used]


def _models_source(place: Place) -> dict[str, Any]:
    if place.models_claim:
        return {"persistentVolumeClaim": {"claimName": place.models_claim, "readOnly": True}}
    return {"hostPath": {"path": place.models_host_path or names.MODELS_PATH, "type": "Directory"}}


def _models(place: Place) -> list[dict[str, Any]]:
    if place.models_claim is None and place.models_host_path is None:
        return []
    return [{"name": "models", "mountPath": names.MODELS_PATH, "readOnly": True}]


def _data(mounts: list[Mount]) -> list[dict[str, Any]]:
    return [
        {"name": "data", "mountPath": f"{names.DATA_PATH}/{path}", "subPath": path, "readOnly": read_only} for path, read_only in mounts
    ]


def _arms(*, read_only: bool) -> dict[str, Any]:
    return {"name": "arms", "mountPath": names.ARMS_PATH, "readOnly": read_only}


def _sealed(channel_uid: str) -> dict[str, Any]:
    return {"name": "sealed", "mountPath": f"{names.SEALED_PATH}/{channel_uid}", "subPath": channel_uid}


def _container(name: str, image: str, args: list[str], env: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "args": args,
        "env": [*env, {"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "gatevalve"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [*mounts, {"name": "tmp", "mountPath": "/tmp"}],
    }


def _job_env(job: JobInput) -> list[dict[str, Any]]:
    return [{"name": names.ENV_JOB, "value": job.model_dump_json(by_alias=True, exclude_none=True)}]


def _template_env(template: PodTemplate) -> list[dict[str, Any]]:
    """The channel's variables; they come before our own, because the last of one name counts."""
    return [variable.wire() for variable in template.env or ()]


def _secret_env(name: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": names.SEAL_SECRET, "key": key}}}


def _owner_reference(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "AdapterCandidate",
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
