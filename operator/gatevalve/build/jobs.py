"""Jobs of a candidate: one attempt each, no API token, restricted Pods that see only the paths their step needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gatevalve.contracts import names
from gatevalve.contracts.canonical import Digest, digest_of_json
from gatevalve.contracts.jobs import DrawInput, EvaluateInput, FetchInput, JobInput, PublishInput, SnapshotInput, TrainInput
from gatevalve.contracts.kinds import AdapterChannelSpec, PodTemplate, SentinelRef
from gatevalve.contracts.reasons import Step

ENGINE_PORT = 8471
"""Of the evaluation engine: not 8000, so that it never meets a pool's engine where Pods share a network (hostNetwork, the rig)."""

ENGINE_URL = f"http://127.0.0.1:{ENGINE_PORT}"
ARMS_URL = f"file://{names.ARMS_PATH}"
GRACE_SECONDS = 60
ENGINE_START_PROBES = 200
SENTINEL_KEPT_SECONDS = 86_400


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
    """The object that owns a Job: a candidate, or for a sentinel the channel."""

    name: str
    uid: str
    channel: str
    sentinel: SentinelRef | None = None

    @property
    def kind(self) -> str:
        """The owner's kind."""
        return "AdapterCandidate" if self.sentinel is None else "AdapterChannel"

    @property
    def labels(self) -> dict[str, str]:
        """Whose attempt it is."""
        name, uid = (self.name, self.uid) if self.sentinel is None else (self.sentinel.uid, self.sentinel.uid)
        return {names.LABEL_CHANNEL: self.channel, names.LABEL_CANDIDATE: name, names.LABEL_CANDIDATE_UID: uid}

    def job_name(self, step: Step, attempt: int) -> str:
        """The name of the owner's Job of one attempt at a step."""
        if self.sentinel is None:
            return names.job_name(self.name, self.uid, str(step), attempt)
        return names.sentinel_job_name(self.name, self.uid, self.sentinel.number, attempt)


Mount = tuple[str, bool]
"""(path below an area, read-only)."""


def draw_job(place: Place, owner: Owner, attempt: int, job: DrawInput, seconds: int) -> dict[str, Any]:
    """Draws a round's items: reads suites/, adapters/ where an arm is one, and traffic/ where the policy asks for it; holds both keys and
    the sealed area.
    """
    arms = [digest for digest in (job.incumbent_digest, job.anchor_digest) if digest is not None]
    mounts = [*_data([(names.adapters_dir(job.channel_uid), True)] if arms else []), *_item_mounts(job)]
    container = _container("draw", place.trainer_image, ["draw"], [*_job_env(job), *_sealed_env()], mounts)
    return _job(place, owner, Step.DRAW, attempt, [], container, PodTemplate(), seconds)


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
    mounts = [(names.work_dir(job.channel_uid, owner.uid), True), (names.adapters_dir(job.channel_uid), False)]
    return _measuring_job(place, owner, Step.EVALUATE, spec, attempt, publish, job, mounts, seconds)


def sentinel_job(
    place: Place, owner: Owner, spec: AdapterChannelSpec, attempt: int, publish: PublishInput, job: EvaluateInput, seconds: int
) -> dict[str, Any]:
    """Measures a sentinel as a candidate is measured, but cannot publish it: it may only read adapters. It goes by itself after a day."""
    mounts = [(names.adapters_dir(job.channel_uid), True)]
    manifest = _measuring_job(place, owner, Step.SENTINEL, spec, attempt, publish, job, mounts, seconds)
    manifest["spec"]["ttlSecondsAfterFinished"] = SENTINEL_KEPT_SECONDS
    return manifest


def _measuring_job(
    place: Place,
    owner: Owner,
    step: Step,
    spec: AdapterChannelSpec,
    attempt: int,
    publish: PublishInput,
    job: EvaluateInput,
    mounts: list[Mount],
    seconds: int,
) -> dict[str, Any]:
    template = spec.evaluation.pod
    publisher = _container(
        "publish",
        place.trainer_image,
        ["publish"],
        _job_env(publish),
        [
            *_data(mounts),
            _arms(read_only=False),
            *_models(place),
        ],
    )
    evaluator = _container(
        "evaluate",
        place.trainer_image,
        ["evaluate"],
        [
            *_job_env(job),
            *_sealed_env(),
            *_judge_env(job),
        ],
        _item_mounts(job),
    )
    return _job(place, owner, step, attempt, [publisher, _engine(place, spec, job)], evaluator, template, seconds)


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


def engine_digest(place: Place, spec: AdapterChannelSpec) -> Digest:
    """The name of what the evaluation engine is made of, image, arguments and variables: another one may measure another way."""
    return digest_of_json(
        [spec.evaluation.pod.image or place.serving_image, list(spec.evaluation.engine_args), _template_env(spec.evaluation.pod)]
    )


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
        *_lora_modules(job),
    ]


_HEALTH_PROBE = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{ENGINE_PORT}/health', timeout=5)"


def _lora_modules(job: EvaluateInput) -> list[str]:
    """What is the base, or another arm's model again, needs no directory of its own."""
    digests = {"candidate": job.candidate_digest, "incumbent": job.incumbent_digest, "anchor": job.anchor_digest}
    own = {arm: model for arm, model in job.arms.items() if arm != "candidate" or model != job.arms["incumbent"]}
    models = {model: digest for arm, model in own.items() if (digest := digests[arm]) is not None}
    modules = [f"{model}={names.ARMS_PATH}/{names.arm_dir(digest)}" for model, digest in models.items()]
    return ["--lora-modules", *modules] if modules else []


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
        **owner.labels,
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
            "name": owner.job_name(step, attempt),
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


def _item_mounts(job: DrawInput | EvaluateInput) -> list[dict[str, Any]]:
    """Where items come from, read-only, and where they are kept; a sentinel is asked traffic that is kept already."""
    is_sentinel = isinstance(job, EvaluateInput) and job.sentinel is not None
    takes_traffic = not is_sentinel and any(suite.items.traffic is not None for suite in job.policy.suites)
    sources = [(names.suites_dir(), True), *([(names.traffic_dir(job.channel_uid), True)] if takes_traffic else [])]
    return [*_data(sources), _sealed(job.channel_uid)]


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


def _sealed_env() -> list[dict[str, Any]]:
    """The keys of whoever draws items: the side of the split that they lie on, and the seed that they are drawn with."""
    return [_secret_env(names.ENV_SPLIT_KEY, names.SEAL_SPLIT_KEY), _secret_env(names.ENV_SEAL_SEED, names.SEAL_SEED_KEY)]


def _judge_env(job: EvaluateInput) -> list[dict[str, Any]]:
    """The judge's key, where a suite has a judge; optional, because a judge inside the cluster may ask for none."""
    if all(suite.judge is None for suite in job.policy.suites):
        return []
    key = {"name": names.JUDGE_SECRET, "key": names.JUDGE_KEY, "optional": True}
    return [{"name": names.ENV_JUDGE_API_KEY, "valueFrom": {"secretKeyRef": key}}]


def _owner_reference(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
