"""Jobs as attempts: what a Job and its Pods tell of an exit code, a termination message, and why nothing has started yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import Termination
from gatevalve.contracts.names import ENV_JOB, LABEL_ATTEMPT, LABEL_CANDIDATE_UID, LABEL_STEP
from gatevalve.contracts.reasons import Step
from gatevalve.decide.view import JobView
from gatevalve.io.ports import KubeObject

STARTING = frozenset({"ContainerCreating", "PodInitializing"})
"""Waiting reasons of every healthy start."""

STEPS = frozenset(map(str, Step))
ATTEMPT = re.compile("[1-9][0-9]{0,3}")
"""More digits would leave the next attempt's name no room."""

PARENT_FIELDS = ("parentDigest", "incumbentDigest")


def job_view(job: KubeObject, pods: Iterable[KubeObject]) -> JobView | None:
    """An attempt with what its newest Pod said; None for a Job that is not one of ours."""
    labels = job["metadata"].get("labels") or {}
    step, attempt, uid = labels.get(LABEL_STEP), labels.get(LABEL_ATTEMPT, ""), labels.get(LABEL_CANDIDATE_UID)
    if step not in STEPS or not uid or ATTEMPT.fullmatch(attempt) is None:
        return None
    own = sorted((pod for pod in pods if _is_owned(pod, job)), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    pod = own[-1] if own else None
    end = _condition(job, "Complete") or _condition(job, "Failed")
    succeeded = _condition(job, "Complete") is not None
    failed, code = _exit(pod, succeeded) if pod else (None, None)
    return JobView(
        name=job["metadata"]["name"],
        candidate_uid=uid,
        step=step,
        attempt=int(attempt),
        started_at=instant(job["metadata"]["creationTimestamp"]),
        finished=end is not None,
        succeeded=succeeded,
        exit_code=code,
        out_of_memory=(failed or {}).get("reason") == "OOMKilled",
        disrupted=pod is not None and _condition(pod, "DisruptionTarget") is not None,
        deadline_exceeded=(end or {}).get("reason") == "DeadlineExceeded",
        waiting=_waiting(pod) if end is None else None,
        termination=_termination(failed) if failed else None,
        parent_digest=_parent(job),
        finished_at=instant(end["lastTransitionTime"]) if end and end.get("lastTransitionTime") else None,
        deleting="deletionTimestamp" in job["metadata"],
        has_started=_has_started(pod),
    )


def is_told(view: JobView) -> bool:
    """The attempt has ended and said how: nothing about it changes any more."""
    return view.finished and (view.exit_code is not None or view.deadline_exceeded)


def instant(text: str) -> datetime:
    """A Kubernetes time."""
    return datetime.fromisoformat(text)


def _exit(pod: KubeObject, succeeded: bool) -> tuple[dict[str, Any] | None, int | None]:
    """The terminated state that speaks for the Pod: the first container that failed, or the last that is done."""
    ended = [state for status in _steps(pod) if (state := (status.get("state") or {}).get("terminated"))]
    failed = next((state for state in ended if state.get("exitCode") != 0), None)
    if failed is not None:
        return failed, int(failed["exitCode"])
    if succeeded or (pod.get("status") or {}).get("phase") == "Succeeded":
        return (ended[-1], 0) if ended else (None, None)
    return None, None


def _steps(pod: KubeObject) -> Sequence[dict[str, Any]]:
    """Statuses of the containers that do a step's work, in running order; sidecars end as they like."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {container["name"] for container in spec.get("initContainers") or () if container.get("restartPolicy") == "Always"}
    before = [item for item in status.get("initContainerStatuses") or () if item["name"] not in sidecars]
    return [*before, *(status.get("containerStatuses") or ())]


def _waiting(pod: KubeObject | None) -> str | None:
    """Why a Pod has not started: unschedulable, an image that cannot be pulled, a container that keeps failing."""
    if pod is None:
        return None
    scheduled = next((item for item in _conditions(pod) if item.get("type") == "PodScheduled" and item.get("status") == "False"), None)
    if scheduled is not None:
        return _sentence(scheduled)
    status = pod.get("status") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    states = [state for item in every if (state := (item.get("state") or {}).get("waiting")) and state.get("reason") not in STARTING]
    return _sentence(states[0]) if states else None


def _has_started(pod: KubeObject | None) -> bool:
    """A container of it runs or ran. Of a Pod that is being deleted that is not known: containers are told as ended that never ran."""
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return False
    status = pod.get("status") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return any((item.get("state") or {}).keys() & {"running", "terminated"} for item in every)


def _sentence(state: dict[str, Any]) -> str:
    return ": ".join(part for part in (str(state.get("reason") or ""), str(state.get("message") or "")) if part)[:500]


def _termination(state: dict[str, Any]) -> Termination | None:
    try:
        return Termination.parse_json(state.get("message") or "")
    except ContractError:
        return None


def _parent(job: KubeObject) -> str:
    """The parent in the input of the Job's own containers; '' for the base."""
    for told in _inputs(job):
        for field in PARENT_FIELDS:
            if isinstance(told.get(field), str):
                return str(told[field])
    return ""


def _inputs(job: KubeObject) -> Iterable[dict[str, Any]]:
    pod = job["spec"]["template"]["spec"]
    for container in [*pod.get("containers", ()), *pod.get("initContainers", ())]:
        for variable in container.get("env") or ():
            if variable.get("name") == ENV_JOB:
                yield _decoded(variable.get("value") or "")


def _decoded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_owned(pod: KubeObject, job: KubeObject) -> bool:
    return any(owner.get("uid") == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())


def _condition(thing: KubeObject, kind: str) -> dict[str, Any] | None:
    return next((item for item in _conditions(thing) if item.get("type") == kind and item.get("status") == "True"), None)


def _conditions(thing: KubeObject) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = (thing.get("status") or {}).get("conditions") or ()
    return found
