"""Jobs: how an attempt ended is read from the Job and its newest Pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gatevalve.contracts.names import ENV_JOB, LABEL_ATTEMPT, LABEL_CANDIDATE_UID, LABEL_STEP
from gatevalve.decide.view import JobView
from gatevalve.engine.jobs import instant, is_told, job_view
from gatevalve.io.ports import KubeObject

AT = "2026-01-02T03:04:05Z"
DONE = {"type": "Complete", "status": "True", "lastTransitionTime": AT}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": AT}
LATE = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": AT}


def job(*conditions: dict[str, Any], told: dict[str, Any] | None = None, labels: dict[str, str] | None = None) -> KubeObject:
    env = [{"name": ENV_JOB, "value": json.dumps(told)}] if told is not None else []
    own = {LABEL_CANDIDATE_UID: "c-uid", LABEL_STEP: "train", LABEL_ATTEMPT: "2"} if labels is None else labels
    return {
        "metadata": {"name": "j", "uid": "j-uid", "creationTimestamp": AT, "labels": own},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "env": env}]}}},
        "status": {"conditions": list(conditions)},
    }


def ended(code: int, message: str = "", reason: str = "Error", name: str = "main") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "message": message, "reason": reason}}}


def waits(reason: str, message: str = "", name: str = "main") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def pod(
    main: dict[str, Any] | None = None,
    init: dict[str, Any] | None = None,
    sidecar: dict[str, Any] | None = None,
    conditions: tuple[dict[str, Any], ...] = (),
    created: str = AT,
    owner: str = "j-uid",
) -> KubeObject:
    containers = [{"name": "publish"}, {"name": "engine", "restartPolicy": "Always"}]
    return {
        "metadata": {"name": f"p-{created}", "creationTimestamp": created, "ownerReferences": [{"uid": owner}]},
        "spec": {"initContainers": containers, "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "conditions": list(conditions),
            "initContainerStatuses": [item for item in (init, sidecar) if item],
            "containerStatuses": [item for item in (main,) if item],
        },
    }


def deleted(thing: KubeObject) -> KubeObject:
    return {**thing, "metadata": {**thing["metadata"], "deletionTimestamp": AT}}


MESSAGE = json.dumps({"version": 1, "step": "train", "exitCode": 12, "message": "nan"})


def of(*pods: KubeObject, condition: dict[str, Any] | None = None, **more: Any) -> JobView:
    view = job_view(job(*([condition] if condition else []), **more), pods)
    assert view is not None
    return view


def test_a_job_that_runs_has_no_exit_code() -> None:
    view = of(pod({"name": "main", "state": {"running": {}}}))
    assert (view.finished, view.exit_code, view.waiting, view.attempt) == (False, None, None, 2)


def test_a_job_that_is_done_has_exit_code_0_and_its_message() -> None:
    message = json.dumps({"version": 1, "step": "train", "exitCode": 0, "adapter": {"adapterDigest": "sha256:" + "a" * 64}})
    view = of(pod(ended(0, message), init=ended(0, name="publish")), condition=DONE)
    assert (view.finished, view.succeeded, view.exit_code) == (True, True, 0)
    assert view.termination is not None
    assert view.termination.adapter is not None
    assert view.finished_at == instant(AT)


def test_a_failed_container_tells_its_exit_code_and_message() -> None:
    view = of(pod(ended(12, MESSAGE)), condition=FAILED)
    assert (view.succeeded, view.exit_code) == (False, 12)
    assert view.termination is not None
    assert view.termination.message == "nan"


def test_a_failed_init_container_speaks_for_the_pod() -> None:
    view = of(pod(init=ended(10, name="publish"), main=waits("PodInitializing")), condition=FAILED)
    assert view.exit_code == 10


def test_a_sidecar_may_end_as_it_likes() -> None:
    view = of(pod(ended(0, "{}"), sidecar=ended(137, name="engine")), condition=DONE)
    assert view.exit_code == 0


def test_a_message_that_is_not_ours_is_no_message() -> None:
    assert of(pod(ended(1, "Traceback ...")), condition=FAILED).termination is None


def test_running_out_of_memory_is_told() -> None:
    assert of(pod(ended(137, reason="OOMKilled")), condition=FAILED).out_of_memory


def test_a_pod_that_was_disrupted_is_told() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    assert of(pod(ended(143), conditions=(target,)), condition=FAILED).disrupted


def test_a_job_past_its_deadline_is_told_although_its_pod_is_gone() -> None:
    view = of(condition=LATE)
    assert (view.deadline_exceeded, view.exit_code) == (True, None)
    assert is_told(view)


def test_a_job_whose_pod_is_gone_has_not_told_how_it_ended() -> None:
    view = of(condition=FAILED)
    assert view.exit_code is None
    assert not is_told(view)


def test_the_newest_of_several_pods_speaks() -> None:
    view = of(pod(ended(1), created="2026-01-02T03:00:00Z"), pod(ended(3), created="2026-01-02T04:00:00Z"), condition=FAILED)
    assert view.exit_code == 3


def test_a_pod_of_another_job_does_not_speak() -> None:
    assert of(pod(ended(1), owner="other"), condition=FAILED).exit_code is None


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: insufficient nvidia.com/gpu"}

WAITS: dict[str, tuple[KubeObject, str | None]] = {
    "no node fits": (pod(conditions=(UNSCHEDULABLE,)), "Unschedulable: 0/1 nodes: insufficient nvidia.com/gpu"),
    "its image cannot be pulled": (pod(waits("ImagePullBackOff", "no such image")), "ImagePullBackOff: no such image"),
    "its engine keeps failing": (pod(sidecar=waits("CrashLoopBackOff", name="engine"), main=waits("PodInitializing")), "CrashLoopBackOff"),
    "it just starts": (pod(waits("ContainerCreating")), None),
}


@pytest.mark.parametrize("sentence", WAITS)
def test_a_pod_that_has_not_started_tells_why_when(sentence: str) -> None:
    item, expected = WAITS[sentence]
    assert of(item).waiting == expected


PARENTS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "a training on the incumbent": ({"parentDigest": "sha256:p"}, "sha256:p"),
    "an evaluation against the incumbent": ({"incumbentDigest": "sha256:i"}, "sha256:i"),
    "a step on the base": ({"parentDigest": None}, ""),
    "a job without input": (None, ""),
}


@pytest.mark.parametrize("sentence", PARENTS)
def test_the_parent_is_the_one_that_the_attempt_was_started_with(sentence: str) -> None:
    told, expected = PARENTS[sentence]
    assert of(told=told).parent_digest == expected


OURS = {LABEL_STEP: "train", LABEL_CANDIDATE_UID: "c", LABEL_ATTEMPT: "1"}


@pytest.mark.parametrize("rows", [-1, 2**53, 10**30])
def test_a_message_with_a_number_that_no_status_holds_says_nothing(rows: int) -> None:
    said = {"step": "snapshot", "exitCode": 0, "snapshot": {"snapshotDigest": "sha256:" + "0" * 64, "rows": rows, "rewarded": 0}}
    sound = json.loads(json.dumps(said))
    sound["snapshot"]["rows"] = 2**53 - 1
    seen = [job_view(job(DONE), [pod(ended(0, json.dumps(told)))]) for told in (sound, said)]
    assert [view is not None and view.termination is not None for view in seen] == [True, False]


FOREIGN: dict[str, dict[str, str]] = {
    "no labels": {},
    "an attempt that is no number": OURS | {LABEL_ATTEMPT: "x"},
    "an attempt after which there is no room for the next one's name": OURS | {LABEL_ATTEMPT: "9" * 63},
    "an attempt zero": OURS | {LABEL_ATTEMPT: "0"},
    "a step that there is not": OURS | {LABEL_STEP: "dance"},
    "no candidate": OURS | {LABEL_CANDIDATE_UID: ""},
}


@pytest.mark.parametrize("sentence", FOREIGN)
def test_a_job_is_not_ours_with(sentence: str) -> None:
    assert job_view(job(labels=OURS), ()) is not None
    assert job_view(job(labels=FOREIGN[sentence]), ()) is None


def test_an_input_too_deep_to_read_names_no_parent() -> None:
    deep = job()
    deep["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": ENV_JOB, "value": "[" * 100_000}]
    seen = job_view(deep, ())
    assert seen is not None
    assert seen.parent_digest == ""


STARTS: dict[str, tuple[tuple[KubeObject, ...], bool]] = {
    "there is no Pod": ((), False),
    "its image cannot be pulled": ((pod(waits("ErrImagePull")),), False),
    "it runs": ((pod({"name": "main", "state": {"running": {"startedAt": AT}}}),), True),
    "it ran": ((pod(ended(1)),), True),
    "it is being deleted, and told as ended although it never ran": ((deleted(pod(ended(137))),), False),
}


@pytest.mark.parametrize("sentence", STARTS)
def test_an_attempt_has_started_when_its_pod_is_known_to_have_run(sentence: str) -> None:
    pods, expected = STARTS[sentence]
    seen = job_view(job(), pods)
    assert seen is not None
    assert seen.has_started is expected
