"""The product on real parts: control plane, Helm, vLLM, traffic, training, gate, log. One story, then its rough edges."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from demo import objects
from demo.stage import CHANNEL, NAMESPACE, Stage
from demo.story import HONEST, Outcome, Story
from demo.verify import verify_log
from support.role_use import RARE, role_use

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.timeout(1800)]

OPERATOR = "deployment/gatevalve-operator"
POOL = "deployment/gatevalve-pool-support"
PATIENCE_SECONDS = 300


def test_the_base_answers_between_a_quarter_and_a_half(outcome: Outcome):
    assert 0.25 < outcome.curve[0] < 0.55


def test_an_honest_session_is_accepted_served_and_lifts_held_out_accuracy(outcome: Outcome):
    assert outcome.verdicts[0]["state"] == "Promoted"
    assert outcome.curve[1] > outcome.curve[0] + 0.05


def test_a_session_with_flipped_scores_is_refused(outcome: Outcome):
    assert outcome.verdicts[1]["state"] in ("Rejected", "Inconclusive", "Skipped")
    assert outcome.poisoned_rejected == 1


def test_every_attempt_to_go_round_the_gate_is_blocked(outcome: Outcome):
    assert (outcome.bypass_attempts, outcome.bypass_attempts_blocked) == (4, 4)


def test_no_client_request_failed(outcome: Outcome):
    assert outcome.requests > 1000
    assert outcome.failed_requests == 0


def test_flip_and_rollback_take_about_a_second(outcome: Outcome):
    assert all(flip < 10_000 for flip in outcome.flip_ms)
    assert outcome.rollback_ms is not None
    assert outcome.rollback_ms < 10_000


def test_the_log_tells_the_story_and_verifies(outcome: Outcome, stage: Stage):
    actions = [release["spec"]["action"] for release in stage.releases()]
    assert actions[:7] == ["Open", "Test", "Accept", "Promote", "Test", "Reject", "Rollback"]
    assert outcome.chain_ok


def test_removing_the_pin_promotes_nothing_by_itself(story: Story, stage: Stage):
    assert "pin" not in stage.get("adapterchannel", CHANNEL)["spec"]
    time.sleep(3)
    assert stage.releases()[-1]["spec"]["action"] == "Rollback"


def test_kubectl_get_reads_like_a_story(story: Story, stage: Stage):
    table = stage.kubectl("get", "acand,arel,achan")
    assert "Promoted" in table
    assert "GatePassed" in table
    assert "Pinned" in table


def test_pods_tell_which_entry_they_serve(story: Story, stage: Stage):
    live = stage.get("adapterchannel", CHANNEL)["status"]["live"]["entry"]
    pod = stage.items("pods", "--selector", "gatevalve.dev/pool=support")[0]
    assert pod["metadata"]["annotations"]["gatevalve.dev/support"] == live


def test_conditions_carry_the_generation_they_saw(story: Story, stage: Stage):
    stage.wait_for("the channel's status to catch up", PATIENCE_SECONDS, lambda: caught_up(stage))


def test_the_trainer_cannot_see_the_sealed_area(story: Story, stage: Stage):
    job = next(job for job in stage.items("jobs") if "-train-" in job["metadata"]["name"])
    pod = job["spec"]["template"]["spec"]
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
    assert "gatevalve-sealed" not in claims
    assert pod["automountServiceAccountToken"] is False


def test_metrics_count_what_happened(story: Story, stage: Stage):
    with stage.cluster.port_forward(NAMESPACE, OPERATOR, 8080) as port:
        text = subprocess.run(
            ["curl", "--silent", "--show-error", f"http://127.0.0.1:{port}/metrics"], capture_output=True, text=True, check=True
        ).stdout
    assert 'gatevalve_candidates_total{channel="support",reason="GatePassed",verdict="Accepted"} 1.0' in text
    assert 'gatevalve_log_valid{channel="support"} 1.0' in text


def test_pods_serve_and_restart_alone_while_the_operator_is_down(story: Story, stage: Stage):
    stage.kubectl("scale", OPERATOR, "--replicas", "0")
    stage.wait_for("the operator to be gone", PATIENCE_SECONDS, lambda: not operator_pods(stage))
    live = stage.get("adapterchannel", CHANNEL)["status"]["live"]["entry"]
    pod = stage.pool_pods()[0]
    stage.cluster.kill_container(pod, "vllm", NAMESPACE)
    stage.wait_for("the engine to be started again", PATIENCE_SECONDS, lambda: restarts(stage, pod) > 0)
    stage.kubectl("wait", "--for", "condition=Ready", f"pod/{pod}", "--timeout", f"{PATIENCE_SECONDS}s", timeout=PATIENCE_SECONDS + 30)
    report = stage.client("alone", "held-out")
    assert set(report["entries"]) == {live}


def test_a_candidate_applied_while_the_operator_is_down_is_taken_up_when_it_is_back_and_survives_its_kills(story: Story, stage: Stage):
    name = "killed-often"
    session = HONEST[0]
    report = stage.client("traffic-killed-often", "traffic", "--count", "640", "--seed", "77")
    stage.apply(objects.candidate(name, (report["from"], report["to"]), session.recipe))
    stage.kubectl("scale", OPERATOR, "--replicas", "1")
    for state in ("Drawing", "Snapshotting", "Training", "Evaluating"):
        stage.wait_for(f"{name} {state}", PATIENCE_SECONDS, partial(reached, stage, name, state))
        kill_operator(stage)
    ended = stage.finish_candidate(name)
    assert ended["status"]["state"] == "Promoted"
    names = [release["metadata"]["name"] for release in stage.releases()]
    assert names == [f"support-{sequence:06d}" for sequence in range(len(names))]
    mine = [release["spec"]["action"] for release in stage.releases() if (release["spec"].get("candidate") or {}).get("name") == name]
    assert mine == ["Test", "Accept", "Promote"]
    stage.wait_live(names[-1])
    assert verify_log(stage, stage.console)


def test_deleting_a_candidate_stops_its_jobs_and_refunds_no_test(story: Story, stage: Stage):
    name = "deleted"
    before = stage.get("adapterchannel", CHANNEL)["status"]["round"]
    report = stage.client("traffic-deleted", "traffic", "--count", "320", "--seed", "78")
    stage.apply(objects.candidate(name, (report["from"], report["to"]), "SFT"))
    stage.wait_for(f"{name} to be evaluated", PATIENCE_SECONDS, lambda: reached(stage, name, "Evaluating"))
    stage.wait_for("its test", PATIENCE_SECONDS, lambda: stage.releases()[-1]["spec"]["action"] == "Test")
    stage.kubectl("delete", "adaptercandidate", name)
    stage.wait_for("the test's end", PATIENCE_SECONDS, lambda: stage.releases()[-1]["spec"]["reason"] == "CandidateDeleted")
    stage.wait_for(
        "its Jobs to go", PATIENCE_SECONDS, lambda: not [j for j in stage.items("jobs") if j["metadata"]["name"].startswith(name)]
    )
    after = stage.get("adapterchannel", CHANNEL)["status"]["round"]
    assert (after["number"], after["tests"]) == (before["number"], before["tests"] + 1)


def test_the_kubectl_plugin_prints_and_verifies_the_log_and_finds_a_foreign_key(story: Story, stage: Stage):
    tool = str(Path(sys.executable).parent / "kubectl-gatevalve")
    common = [CHANNEL, "--namespace", NAMESPACE, "--kubeconfig", str(stage.cluster.kubeconfig)]
    history = subprocess.run([tool, "history", *common], capture_output=True, text=True, check=True).stdout
    assert "Promote" in history
    foreign = subprocess.run([tool, "verify", *common, "--key-sha256", "sha256:" + "0" * 64], capture_output=True, text=True, check=False)
    assert foreign.returncode == 1


def test_the_operator_was_denied_nothing_and_is_granted_nothing_that_it_did_not_use(story: Story, stage: Stage):
    # The last test of this module: the audit log then holds a candidate's whole life.
    if not stage.cluster.owned:
        pytest.skip("only clusters of the rig write an audit log that the tests can read")
    use = role_use(stage.cluster, NAMESPACE)
    assert use.denied == set()
    assert use.unused - set(RARE) == set()
    assert set(RARE) <= use.granted


# ---- what the tests look at


def caught_up(stage: Stage) -> bool:
    channel = stage.get("adapterchannel", CHANNEL)
    seen = {condition["observedGeneration"] for condition in channel["status"]["conditions"]}
    return seen == {channel["metadata"]["generation"]}


def operator_pods(stage: Stage) -> list[dict[str, Any]]:
    return stage.items("pods", "--selector", "app.kubernetes.io/component=operator")


def restarts(stage: Stage, pod: str) -> int:
    statuses = stage.get("pod", pod)["status"].get("containerStatuses", [])
    return int(sum(status["restartCount"] for status in statuses))


def reached(stage: Stage, candidate: str, state: str) -> bool:
    order = ["Queued", "Drawing", "Snapshotting", "Training", "Evaluating", "Promoted"]
    seen = stage.get("adaptercandidate", candidate).get("status", {}).get("state", "Queued")
    assert seen in order, json.dumps(stage.get("adaptercandidate", candidate)["status"], indent=1)
    return order.index(seen) >= order.index(state)


def kill_operator(stage: Stage) -> None:
    """SIGKILL of the operator's process; the kubelet starts it again."""
    running = [pod for pod in operator_pods(stage) if pod["status"].get("phase") == "Running"]
    for pod in running:
        stage.cluster.kill_container(pod["metadata"]["name"], "operator", NAMESPACE)
