"""Crashes on real parts: an operator killed after every single write, two at once, one asleep, an API server and an engine that die."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from demo import objects
from demo.stage import CHANNEL, NAMESPACE, Stage
from demo.story import HONEST, Story
from gatevalve.contracts.names import entry_name
from minicluster import ClusterError
from support.crashing_operator import DEATH

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.timeout(1200)]

REPO = Path(__file__).parents[2]
OPERATOR, SECOND = "deployment/gatevalve-operator", "second-operator"
PATIENCE_SECONDS = 300.0
DEATHS = frozenset(
    {
        "create adapterreleases",
        "bytes of",
        "fsync of",
        "link",
        "create jobs",
        "put support to",
        "apply configmaps",
        "apply adaptercandidates",
    }
)
"""Kinds of writes of each of which a process must have died."""

BASE_ENTRY = "support-000000"
MINE = ("killed-", "shared-")
"""Jobs of this module's candidates."""

AWAKE_SECONDS = 5.0
"""Long enough for an operator that wakes to try what it had in mind."""


@pytest.fixture(scope="module")
def session(story: Story, stage: Stage) -> tuple[str, str]:
    """The window of one honest session with the base."""
    if "base" not in next(release["spec"]["serves"] for release in reversed(stage.releases()) if "serves" in release["spec"]):
        rollback = entry(len(stage.releases()))
        pin(stage, BASE_ENTRY)
        wait_live(stage, rollback)
        unpin(stage)
    report = stage.client("traffic-crashes", "traffic", "--count", "640", "--seed", "77")
    return report["from"], report["to"]


def test_a_candidate_lives_one_life_although_its_operator_is_killed_after_every_single_write(
    stage: Stage, session: tuple[str, str]
) -> None:
    before = len(stage.releases())
    crash_after_every_write(stage)
    stage.apply(objects.candidate("killed", session, HONEST[0].recipe))
    ended = stage.finish_candidate("killed")
    assert ended["status"]["state"] == "Promoted", json.dumps(ended["status"], indent=1)
    wait_live(stage, entry(before + 2))
    pin(stage, BASE_ENTRY)
    wait_live(stage, entry(before + 3))
    deaths = told_deaths(stage)
    run_undisturbed(stage)
    settled(stage)
    assert actions(stage)[before:] == ["Test", "Accept", "Promote", "Rollback"]
    must_be_sound(stage)
    assert deaths.keys() >= DEATHS, deaths


def test_two_operators_of_which_one_sleeps_while_api_server_and_engine_are_killed_in_mid_rollout(
    stage: Stage, session: tuple[str, str]
) -> None:
    unpin(stage)
    patch_operator(stage)
    add_operator(stage)
    candidate = objects.candidate("shared", session, HONEST[0].recipe)
    candidate["spec"]["train"]["seed"] = 2
    before = len(stage.releases())
    stage.apply(candidate)
    stage.wait_for("two operators", PATIENCE_SECONDS, lambda: len(processes_of(stage, "gatevalve-operator")) == 2)
    sleeper, (pod,), promote = processes_of(stage, "gatevalve-operator")[0], stage.pool_pods(), entry(before + 2)
    stage.wait_for("the Promote entry", PATIENCE_SECONDS, lambda: promote in {name_of(release) for release in stage.releases()})
    os.kill(sleeper, signal.SIGSTOP)
    try:
        stage.cluster.kill_container(pod, "vllm", NAMESPACE)
        os.kill(api_server(stage), signal.SIGKILL)
        wait_for_api(stage)
        wait_live(stage, promote)
        pin(stage, BASE_ENTRY)
        wait_live(stage, entry(before + 3))
        committed = documents(stage)
    finally:
        os.kill(sleeper, signal.SIGCONT)
    time.sleep(AWAKE_SECONDS)
    settled(stage)
    assert documents(stage) == committed
    assert actions(stage)[before:] == ["Test", "Accept", "Promote", "Rollback"]
    must_be_sound(stage)
    stage.kubectl("delete", "deployment", SECOND)
    run_undisturbed(stage)


# ---- what the tests do


def crash_after_every_write(stage: Stage) -> None:
    """Put the crashing program in the operator's place."""
    environment = [{"name": "PYTHONPATH", "value": f"{REPO}/tests"}]
    patch_operator(stage, command=["python", "-m", "support.crashing_operator"], env=environment)


def run_undisturbed(stage: Stage) -> None:
    """The operator as the chart installs it."""
    stage.kubectl("rollout", "undo", OPERATOR)
    stage.kubectl("rollout", "status", OPERATOR, "--timeout", "120s", timeout=150)


def add_operator(stage: Stage) -> None:
    """Another operator beside the chart's, with a port of its own: Pods of the rig share a network."""
    deployment = stage.get("deployment", "gatevalve-operator")
    deployment["metadata"] = {"name": SECOND, "labels": {"app": SECOND}}
    template = deployment["spec"]["template"]
    deployment["spec"]["selector"]["matchLabels"] = template["metadata"]["labels"] = {"app": SECOND}
    container = template["spec"]["containers"][0]
    next(item for item in container["env"] if item["name"] == "GATEVALVE_METRICS_PORT")["value"] = "8081"
    del container["ports"], deployment["status"]
    stage.apply(deployment)
    stage.kubectl("rollout", "status", f"deployment/{SECOND}", "--timeout", "120s", timeout=150)


def patch_operator(stage: Stage, **changes: Any) -> None:
    """Change the operator's Deployment; the probes go, which judge a process that is there all the time."""
    container = {"name": "operator", **dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe")), **changes}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    stage.kubectl("patch", OPERATOR, "--type", "strategic", "--patch", json.dumps(patch))
    stage.kubectl("rollout", "status", OPERATOR, "--timeout", "120s", timeout=150)


def pin(stage: Stage, entry: str) -> None:
    patch = {"spec": {"pin": {"entry": entry, "reason": "a test", "by": stage.user()}}}
    stage.kubectl("patch", "adapterchannel", CHANNEL, "--type", "merge", "--patch", json.dumps(patch))


def entry(sequence: int) -> str:
    return entry_name(CHANNEL, sequence)


def unpin(stage: Stage) -> None:
    stage.kubectl("patch", "adapterchannel", CHANNEL, "--type", "json", "--patch", '[{"op": "remove", "path": "/spec/pin"}]')


def wait_live(stage: Stage, entry: str) -> None:
    stage.wait_for(f"{entry} live", PATIENCE_SECONDS, lambda: any(is_live(release, entry) for release in stage.releases()))


def is_live(release: dict[str, Any], entry: str) -> bool:
    return name_of(release) == entry and "liveSince" in release.get("status", {})


def wait_for_api(stage: Stage) -> None:
    """The rig starts the API server again after a second."""

    def answers() -> bool:
        try:
            return stage.kubectl("get", "--raw", "/readyz").strip() == "ok"
        except ClusterError:
            return False

    stage.wait_for("the API server to answer again", PATIENCE_SECONDS, answers)


# ---- what the tests look at


def processes_of(stage: Stage, program: str) -> list[int]:
    """Processes of a program in this cluster's containers, whose files lie in the cluster's directory."""
    return [pid for pid in running(program) if str(stage.cluster.dir) in read_process(pid, "mountinfo")]


def api_server(stage: Stage) -> int:
    """The process of this cluster's API server."""
    (found,) = [pid for pid in running("kube-apiserver") if str(stage.cluster.dir) in read_process(pid, "cmdline")]
    return found


def running(program: str) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return sorted(pid for pid in pids if program in " ".join(Path(part).name for part in read_process(pid, "cmdline").split("\0")[:3]))


def read_process(pid: int, name: str) -> str:
    """A file of /proc; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def documents(stage: Stage) -> dict[str, str]:
    """What the pool's ConfigMap holds: the committed documents."""
    data: dict[str, str] = stage.get("configmap", "gatevalve-pool-support")["data"]
    return data


def told_deaths(stage: Stage) -> Counter[str]:
    """How often a process of the crashing operator was killed after each kind of write."""
    log = stage.kubectl("logs", OPERATOR, "--tail", "-1")
    whats = [line.removeprefix(DEATH).strip() for line in log.splitlines() if line.startswith(DEATH)]
    return Counter(" ".join(word for word in what.split("/")[0].split() if not re.search("[0-9]", word)) for what in whats)


def actions(stage: Stage) -> list[str]:
    return [release["spec"]["action"] for release in stage.releases()]


def settled(stage: Stage) -> None:
    """The channel is Ready and Serving, and its status names the newest serving entry."""

    def is_settled() -> bool:
        status = stage.get("adapterchannel", CHANNEL)["status"]
        reasons = {condition["type"]: condition["reason"] for condition in status["conditions"]}
        newest = next(name_of(release) for release in reversed(stage.releases()) if "serves" in release["spec"])
        return {reasons[kind] for kind in ("Ready", "Serving", "LogValid")} == {"AsExpected"} and status["live"]["entry"] == newest

    stage.wait_for("the channel to settle", PATIENCE_SECONDS, is_settled)


def must_be_sound(stage: Stage) -> None:
    """The log verifies, no candidate has two entries of one action, no step ran twice, every pod and every client sees the live entry."""
    verify(stage)
    told = [
        (release["spec"]["candidate"]["uid"], release["spec"]["action"]) for release in stage.releases() if "candidate" in release["spec"]
    ]
    assert len(told) == len(set(told)), told
    jobs = [name for job in stage.items("jobs", "--selector", "gatevalve.dev/candidate-uid") if (name := name_of(job)).startswith(MINE)]
    assert [name for name in jobs if not name.endswith("-1")] == []
    live = stage.get("adapterchannel", CHANNEL)["status"]["live"]["entry"]
    assert {pod["metadata"]["annotations"]["gatevalve.dev/support"] for pod in stage.items("pods", "-l", "gatevalve.dev/pool")} == {live}
    asked = stage.client(f"ask-{live}-{int(time.time())}", "held-out", "--count", "20")
    assert set(asked["entries"]) == {live}


def verify(stage: Stage) -> None:
    """The tool that users have, with the external log and the evidence: every entry has its copy, every verdict is judged anew."""
    areas = [f"--{area}={stage.cluster.claim_path(f'gatevalve-{area}', NAMESPACE)}" for area in ("log", "sealed")]
    tool = str(Path(sys.executable).parent / "kubectl-gatevalve")
    where = ["--namespace", NAMESPACE, "--kubeconfig", str(stage.cluster.kubeconfig)]
    done = subprocess.run([tool, "verify", CHANNEL, *where, *areas], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def name_of(release: dict[str, Any]) -> str:
    return str(release["metadata"]["name"])
