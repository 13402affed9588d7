"""Attempts to get past the gate, on the story's real pods: the alias answers as before, and what was tried is told.

Each is made with all rights of a cluster's administrator. Where an admission policy refuses it, that policy is taken away for the moment
and it is made again. Every test leaves a healthy channel behind.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from demo import objects
from demo.bypass import POOL_CONFIGMAP, Intruder
from demo.stage import CHANNEL, NAMESPACE
from demo.story import POISONED, Story
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.names import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    API_VERSION,
    CERTIFICATE_FILE,
    DATA_PATH,
    KEYS_CONFIGMAP,
    LABEL_ATTEMPT,
    LABEL_CANDIDATE,
    LABEL_CHANNEL,
    LABEL_STEP,
    digest_hex,
    inbox_dir,
)
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.serving import ChannelDocument
from gatevalve_serving.allow_list import ALLOWED
from gatevalve_serving.bypass import SAGEMAKER_ADAPTER_HEADER
from minicluster import ClusterError
from support.attacked_channel import Attacked, Pod
from support.serving import SigningKey

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.timeout(900)]

OPEN = f"{CHANNEL}-000000"
RELEASE = "adapterrelease"
PROBE_SECONDS = 420
"""An evaluation of its own for each sentinel."""


@pytest.fixture(scope="module")
def attacked(story: Story) -> Attacked:
    """The channel after the story, with the base live."""
    if not story.stage.cluster.owned:
        pytest.skip("only on the rig can tests reach stores, processes and etcd")
    found = Attacked(story.stage)
    if found.newest("Promote", "Rollback", "Open")["spec"]["serves"].get("base") is None:
        found.answers_from(found.pin(OPEN))
        found.unpin()
    found.mended()
    return found


@pytest.fixture(scope="module")
def intruder(attacked: Attacked) -> Intruder:
    """Somebody with an adapter that the gate refused."""
    return Intruder.with_refused_adapter(attacked.stage)


# ---- the release log


def test_a_forged_release_is_refused_and_without_admission_breaks_the_log_until_it_is_deleted(attacked: Attacked, intruder: Intruder):
    forged = intruder.forged_entry()
    with attacked.without("releases", "create", send=forged):
        with attacked.broken_log(forged["metadata"]["name"]):
            attacked.kubectl("create", send=forged)
        attacked.kubectl("delete", RELEASE, forged["metadata"]["name"])
        attacked.mended()


def test_an_entry_cannot_be_edited_and_edited_in_etcd_breaks_the_log_until_it_is_restored(attacked: Attacked):
    entry = attacked.newest("Accept")["metadata"]["name"]
    edit = attacked.patch(RELEASE, entry, {"spec": {"message": "somebody else's words"}})
    with attacked.without("releases", "delete", RELEASE, entry):
        assert "immutable" in attacked.refusal(*edit)
    with attacked.etcd() as etcd:
        kept = etcd.read(entry)
        with attacked.broken_log(entry):
            etcd.write(entry, {**kept, "spec": {**kept["spec"], "message": "somebody else's words"}})
        etcd.write(entry, kept)
    attacked.mended()


def test_an_entry_deleted_and_made_again_with_another_spec_breaks_the_log_until_it_is_made_as_it_was(attacked: Attacked):
    thing = from_its_copy(attacked, attacked.head())
    entry = thing["metadata"]["name"]
    other = {**thing, "spec": {**thing["spec"], "message": "somebody else's words"}}
    with attacked.without("releases", "delete", RELEASE, entry):
        with attacked.broken_log():
            attacked.kubectl("delete", RELEASE, entry)
            attacked.kubectl("create", send=other)
        attacked.kubectl("delete", RELEASE, entry)
        attacked.kubectl("create", send=thing)
        attacked.mended()


def test_an_etcd_that_lost_the_newest_entries_breaks_the_log_until_it_has_them_again(attacked: Attacked):
    # To the log a restored earlier copy of etcd is this: the newest entries are gone, and no admission has seen them go.
    names = [release["metadata"]["name"] for release in attacked.stage.releases()[-2:]]
    with attacked.etcd() as etcd:
        lost = {name: etcd.read(name) for name in names}
        with attacked.broken_log("beyond"):
            etcd.delete(*reversed(names))
        for name, thing in lost.items():
            etcd.write(name, thing)
    attacked.mended()


def test_an_external_copy_that_was_edited_breaks_the_log_until_it_is_restored(attacked: Attacked):
    newest = max(attacked.area("log").glob("*.json"))
    with edited(newest), attacked.broken_log(newest.name, "differs"):
        pass
    attacked.mended()


# ---- past the alias


def test_no_route_of_the_engine_loads_or_names_an_adapter(attacked: Attacked, intruder: Intruder):
    name, path = intruder.adapter["adapter"], f"{DATA_PATH}/{intruder.adapter['uri']}"
    load = {"lora_name": name, "lora_path": path, "name": name, "src": path}
    serving = attacked.stage.pool_pods()[0]
    log, before = attacked.kubectl("logs", serving, "--container", "vllm"), restarts(attacked, serving)
    with attacked.tampering("UnauthorizedRequest", "a request to"), attacked.pod() as pod:
        routes = engine_routes(log)
        assert {("POST", "/v1/load_lora_adapter"), ("POST", "/adapters"), ("POST", "/invocations")} <= routes
        answers = {(method, path): pod.request(method, path, load | asks_for(name)).status for method, path in routes - ALLOWED.keys()}
        assert {route: status for route, status in answers.items() if status != 404} == {}
        for path in ("/v1/chat/completions", "/v1/completions", "/tokenize"):
            assert pod.request("POST", path, asks_for(name)).status == 404
            header = {f"{SAGEMAKER_ADAPTER_HEADER.decode()}-identifier": name}
            assert pod.request("POST", path, asks_for(CHANNEL), header).status == 400
        report = pod.report()
    assert restarts(attacked, serving) == before
    assert report.get("foreignAdapters", []) == []
    assert name not in [adapter["name"] for adapter in report["adapters"]]
    assert attacked.metric("unauthorized_adapters") == 0


def test_feedback_for_a_reply_that_nobody_was_given_is_refused(attacked: Attacked):
    # The demo's pool has no API key; that feedback needs the one of chat is shown in tests/component/serving.
    with attacked.untouched(), attacked.pod() as pod:
        assert pod.request("POST", "/v1/feedback", {"id": "chatcmpl-0123456789abcdef", "score": 1.0}).status == 404
        mine = pod.ask().body["id"]
        assert pod.request("POST", "/v1/feedback", {"id": mine, "score": 1.0}).status == 202
    assert attacked.condition("Ready")[0] == "True"


# ---- bytes in the store, before they are loaded


def test_an_adapter_whose_bytes_were_swapped_before_it_is_loaded_does_not_answer_until_they_are_restored(attacked: Attacked):
    promoted = attacked.newest("Promote")
    serves = promoted["spec"]["serves"]
    with attacked.pod() as pod:
        attacked.eventually("the pod to let go of it", lambda: serves["adapter"] not in names_of(pod))
    with edited(published(attacked, serves["digest"]) / ADAPTER_WEIGHTS), attacked.tampering("AdapterForged", serves["adapter"]):
        entry = attacked.pin(promoted["metadata"]["name"])
        with attacked.pod() as pod:
            attacked.eventually("the pod to refuse it", lambda: "DigestMismatch" in json.dumps(pod.report()))
    attacked.answers_from(entry)
    attacked.unpin()
    attacked.mended()


# ---- documents and keys


def test_an_edited_document_is_refused_by_pods_and_restored_by_the_operator(attacked: Attacked, intruder: Intruder):
    held = committed(attacked)
    forged = intruder.rerouted(held)
    edit = attacked.patch("configmap", POOL_CONFIGMAP, {"data": {CHANNEL: json.dumps(forged)}})
    with attacked.without("keys", *edit), attacked.tampering("DocumentForged", POOL_CONFIGMAP), attacked.pod() as pod:
        assert refused(pod, forged) == "Unsigned"
        attacked.kubectl(*edit)
        attacked.eventually("the document restored", lambda: committed(attacked) == held)
    attacked.mended()


def test_a_signed_document_of_earlier_is_refused_by_pods_and_replaced_by_the_operator(attacked: Attacked):
    earlier = committed(attacked)
    attacked.answers_from(attacked.pin(OPEN))
    attacked.unpin()
    replay = attacked.patch("configmap", POOL_CONFIGMAP, {"data": {CHANNEL: json.dumps(earlier)}})
    with attacked.without("keys", *replay), attacked.tampering("DocumentForged", "again"), attacked.pod() as pod:
        assert refused(pod, earlier) == "RevisionOld"
        attacked.kubectl(*replay)
        attacked.eventually("a newer document", lambda: committed(attacked)["document"]["revision"] > earlier["document"]["revision"])
    attacked.mended()


def test_a_key_of_somebody_else_is_not_trusted_and_the_operator_restores_its_own(attacked: Attacked):
    foreign, held = SigningKey(), committed(attacked)["document"]
    ours = attacked.stage.get("configmap", KEYS_CONFIGMAP)["data"][CERTIFICATE_FILE]
    edit = attacked.patch("configmap", KEYS_CONFIGMAP, {"data": {CERTIFICATE_FILE: foreign.certificate.decode()}})
    later = {**held, "revision": [held["revision"][0], held["revision"][1] + 1]}
    with attacked.without("keys", *edit), attacked.tampering("KeysForged", KEYS_CONFIGMAP), attacked.pod() as pod:
        attacked.kubectl(*edit)
        assert refused(pod, signed_by(foreign, {**later, "keyId": foreign.key_id})) == "KeyUnknown"
        assert refused(pod, signed_by(foreign, later)) == "Unsigned"
        attacked.eventually(
            "our certificate restored", lambda: attacked.stage.get("configmap", KEYS_CONFIGMAP)["data"][CERTIFICATE_FILE] == ours
        )
    attacked.mended()


# ---- evidence


def test_evidence_of_another_candidate_put_in_place_before_the_verdict_makes_it_inconclusive(attacked: Attacked):
    name = "evidence-swapped"
    with attacked.untouched():
        attacked.kubectl("create", send=artifact(attacked, name, weakened(attacked)))
        swap_evidence_while_the_operator_is_away(attacked, name)
        test = attacked.newest("Test")["metadata"]["name"]
        ended = attacked.stage.finish_candidate(name)
        attacked.told("Untampered", "False", "EvidenceForged", test)
    assert ended["status"]["decision"]["verdict"] == "Inconclusive"
    assert ended["status"]["decision"]["reason"] == "EvidenceUnsound"
    attacked.event("Tampered", "EvidenceForged", test)
    assert attacked.metric("tampering_total", reason="EvidenceForged") == 1
    attacked.mended()


# ---- statuses, parents, refused weights


def test_a_verdict_written_into_a_status_promotes_nothing_and_is_written_anew(attacked: Attacked):
    name = POISONED[0].name
    before, head = attacked.stage.get("adaptercandidate", name)["status"]["state"], attacked.head()
    edit = attacked.patch("adaptercandidate", name, {"status": {"state": "Accepted"}}, "--subresource", "status")
    with attacked.without("statuses", *edit), attacked.tampering("StatusForged", name):
        attacked.kubectl(*edit)
        attacked.eventually("the state written anew", lambda: attacked.stage.get("adaptercandidate", name)["status"]["state"] == before)
    assert attacked.head() == head
    attacked.mended()


def test_refused_weights_are_no_parent_and_get_no_second_test_as_an_artifact(attacked: Attacked, intruder: Intruder):
    name, digest, head = "refused-again", intruder.adapter["digest"], attacked.head()
    pause(attacked, True)
    attacked.kubectl("create", send=artifact(attacked, name, published(attacked, digest)))
    attacked.eventually("it to wait", lambda: in_queue(attacked, name))
    facts = {
        "incumbentEntry": OPEN,
        "incumbentDigest": digest,
        "policy": "support-v1",
        "policyDigest": digest,
        "startedAt": "2026-01-01T00:00:00Z",
    }
    edit = attacked.patch("adaptercandidate", name, {"status": {"state": "Accepted", "facts": facts}}, "--subresource", "status")
    with attacked.without("statuses", *edit), attacked.tampering("StatusForged", name):
        attacked.kubectl(*edit)
        attacked.eventually("it to wait again", lambda: in_queue(attacked, name))
    assert [job for job in attacked.stage.items("jobs") if job["metadata"]["name"].startswith(name)] == []
    pause(attacked, False)
    ended = attacked.stage.finish_candidate(name)
    assert (ended["status"]["state"], attacked.condition("Decided", name, "adaptercandidate")[1]) == ("Errored", "Quarantined")
    assert ended["status"].get("facts", {}).get("incumbentDigest") != digest
    assert attacked.head() == head
    attacked.event("Errored", digest)
    assert attacked.metric("candidates_total", verdict="Errored", reason="Quarantined") == 1
    attacked.mended()


def test_a_candidate_approves_neither_itself_nor_in_the_name_of_another(attacked: Attacked, intruder: Intruder):
    approval = {"decision": "Approve", "by": attacked.stage.user(), "evidenceDigest": intruder.adapter["digest"]}
    candidate = objects.candidate("approves-itself", ("2026-01-01T09:00:00Z", "2026-01-01T09:10:00Z"), "SFT")
    candidate["spec"]["approval"] = approval
    with attacked.untouched():
        assert "approval must be absent at creation" in attacked.refusal("create", send=candidate)
        name = POISONED[0].name
        told = attacked.refusal(*attacked.patch("adaptercandidate", name, {"spec": {"approval": {**approval, "by": "somebody-else"}}}))
        assert "by must be your own user name" in told
    assert "approves-itself" not in attacked.kubectl("get", "adaptercandidates")


# ---- the policy


def test_a_policy_made_again_looser_under_its_name_judges_nothing_until_a_person_approves_it(attacked: Attacked, intruder: Intruder):
    strict = bare(attacked.stage.get("gatepolicy", "support-v1"))
    loose = copy.deepcopy(strict)
    loose["spec"]["guardAlphaBasisPoints"] = 2000
    digest = GatePolicySpec.parse(loose["spec"]).digest_of()
    approve = {"digest": digest, "by": attacked.stage.user(), "reason": f"a test at {time.time()}"}
    with attacked.untouched():
        remake_policy(attacked, loose)
        attacked.told("GateReady", "False", "PolicyUnapproved", digest)
        attacked.event("PolicyUnapproved", digest)
        assert attacked.metric("policy_unapproved") == 1
        attacked.kubectl("create", send=artifact(attacked, "under-the-loose-one", published(attacked, intruder.adapter["digest"])))
        attacked.eventually(
            "it is refused", lambda: attacked.condition("Decided", "under-the-loose-one", "adaptercandidate")[1] == "ChannelNotReady"
        )
        attacked.kubectl("delete", "adaptercandidate", "under-the-loose-one")
        foreign = attacked.refusal(*attacked.patch("adapterchannel", CHANNEL, {"spec": {"gatePolicyApproval": {**approve, "by": "ada"}}}))
        assert "spec.gatePolicyApproval.by must be your own user name" in foreign
        attacked.kubectl(*attacked.patch("adapterchannel", CHANNEL, {"spec": {"gatePolicyApproval": approve}}))
        attacked.told("GateReady", "True", "AsExpected")
        written = attacked.newest("Policy")["spec"]
        assert (written["reason"], written["actor"]) == ("PolicyApproved", approve["by"])
        attacked.kubectl(*attacked.patch("adapterchannel", CHANNEL, [{"op": "remove", "path": "/spec/gatePolicyApproval"}]))
        remake_policy(attacked, strict)
        attacked.eventually("the strict one in force", lambda: attacked.newest("Policy")["spec"]["reason"] == "PolicyChanged")
    attacked.mended()
    assert attacked.metric("policy_unapproved") == 0


def test_after_another_policy_the_gate_itself_is_probed_and_refuses_both_sentinels(attacked: Attacked):
    policy = attacked.newest("Policy")["spec"]["sequence"]
    with attacked.untouched():
        for kind in ("Same", "Bad"):
            attacked.eventually(f"sentinel {kind} passed", partial(has_passed_since, attacked, kind, policy), PROBE_SECONDS)
    attacked.told("SentinelsPassed", "True", "AsExpected")
    assert all(attacked.metric("sentinels_total", kind=kind, outcome="Passed") >= 1 for kind in ("Same", "Bad"))
    assert attacked.newest("Open", "Promote", "Rollback")["spec"]["sequence"] < policy


def has_passed_since(attacked: Attacked, kind: str, sequence: int) -> bool:
    """A sentinel of this kind passed after an entry."""
    entries = [release["spec"] for release in attacked.stage.releases()[sequence:]]
    return any(entry["reason"] == "SentinelPassed" and entry["sentinel"]["kind"] == kind for entry in entries)


# ---- the audit


def test_evidence_edited_after_the_verdict_is_found_by_verify_and_by_the_operators_audit_and_meanwhile_pods_refuse_a_forged_file(
    attacked: Attacked, intruder: Intruder
):
    accept = attacked.newest("Accept")
    report = attacked.area("sealed") / "evidence" / accept["spec"]["gate"]["evidence"]["uri"].rsplit("/", 1)[1] / "report.json"
    held = committed(attacked)
    edit = attacked.patch("configmap", POOL_CONFIGMAP, {"data": {CHANNEL: json.dumps(intruder.rerouted(held))}})
    assert verify_sealed(attacked) == (0, "")
    with edited(report):
        assert accept["metadata"]["name"] in verify_sealed(attacked)[1]
        with attacked.broken_log(accept["metadata"]["name"]):
            with attacked.without("keys", *edit):
                with attacked.operator_away(), attacked.pod() as pod:
                    attacked.kubectl(*edit)
                    attacked.kubectl("annotate", "pod", attacked.stage.pool_pods()[0], "--overwrite", f"test/looked-at={time.time()}")
                    attacked.eventually("the pod to refuse its file", lambda: pod.report().get("reason") == "Unsigned")
                attacked.eventually("the document restored", lambda: committed(attacked) == held)
            attacked.event("Tampered", "DocumentForged", POOL_CONFIGMAP)
    assert verify_sealed(attacked) == (0, "")
    with attacked.operator_away():
        pass
    attacked.mended()


# ---- bytes in the store, after they were loaded


def test_bytes_swapped_under_a_loaded_adapter_change_no_answer_and_no_pod_comes_up_with_them(attacked: Attacked):
    promoted = attacked.newest("Promote")
    serves = promoted["spec"]["serves"]
    entry = attacked.pin(promoted["metadata"]["name"])
    attacked.answers_from(entry)
    with attacked.pod() as pod:
        words = pod.words()
    with edited(published(attacked, serves["digest"]) / ADAPTER_WEIGHTS):
        with attacked.untouched(), attacked.pod() as pod:
            assert pod.words() == words
        kill_the_engine(attacked)
        attacked.answers_from(entry)
        with attacked.pod() as pod:
            assert pod.words() == words
        attacked.kubectl("delete", "pod", attacked.stage.pool_pods()[0])
        attacked.eventually("the new pod to refuse the bytes", lambda: new_pod_refuses(attacked, serves["adapter"]))
        attacked.event("Tampered", "AdapterForged", serves["adapter"])
        assert "AdapterForged" in attacked.tamperings()
        assert attacked.stage.get("pod", attacked.stage.pool_pods()[0])["status"]["containerStatuses"][0]["ready"] is False
        attacked.answers_from(attacked.pin(OPEN))
    attacked.answers_from(attacked.pin(promoted["metadata"]["name"]))
    with attacked.pod() as pod:
        assert pod.words() == words
    attacked.unpin()
    attacked.mended()


def test_after_all_of_it_the_log_verifies_and_the_operators_own_audit_finds_nothing(attacked: Attacked):
    attacked.eventually("a whole verification", lambda: attacked.metric("log_verified_timestamp_seconds") > 0, seconds=90)
    assert verify_sealed(attacked) == (0, "")
    attacked.mended()


# ---- how it is done


def bare(thing: dict[str, Any]) -> dict[str, Any]:
    """An object as somebody would make it anew."""
    metadata = {key: value for key, value in thing["metadata"].items() if key in ("name", "labels")}
    return {"apiVersion": thing["apiVersion"], "kind": thing["kind"], "metadata": metadata, "spec": thing["spec"]}


def from_its_copy(attacked: Attacked, entry: str) -> dict[str, Any]:
    """An entry as its copy in the external log has it."""
    spec = json.loads((attacked.area("log") / f"{entry.rpartition('-')[2]}.json").read_bytes())
    return {
        "apiVersion": API_VERSION,
        "kind": "AdapterRelease",
        "metadata": {"name": entry, "labels": {LABEL_CHANNEL: CHANNEL}},
        "spec": spec,
    }


@contextmanager
def edited(file: Path) -> Iterator[None]:
    """A file with another last byte, for the moment."""
    kept = file.read_bytes()
    file.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    try:
        yield
    finally:
        file.write_bytes(kept)


def published(attacked: Attacked, digest: str) -> Path:
    """An adapter's directory in the data area."""
    return attacked.area("data") / "adapters" / digest_hex(digest)


def weakened(attacked: Attacked) -> Path:
    """The newest promoted adapter with slightly smaller weights: other bytes, which nobody has judged."""
    made = attacked.area("data").parent / inbox_dir() / "weakened"
    shutil.copytree(published(attacked, attacked.newest("Promote")["spec"]["serves"]["digest"]), made)
    tensors = load_file(made / ADAPTER_WEIGHTS)
    save_file({name: tensor * (0.98 if "lora_B" in name else 1) for name, tensor in tensors.items()}, made / ADAPTER_WEIGHTS)
    return made


def artifact(attacked: Attacked, name: str, files: Path) -> dict[str, Any]:
    """A candidate that offers an adapter's two files from the inbox."""
    inbox = attacked.area("data").parent / inbox_dir() / name
    inbox.mkdir(parents=True)
    for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(files / file, inbox / file)
    candidate = objects.candidate(name, ("", ""), "SFT")
    candidate["spec"].pop("train")
    candidate["spec"]["artifact"] = {"uri": f"file://{DATA_PATH}/{inbox_dir()}/{name}", "digest": directory_digest(inbox)}
    return candidate


def in_queue(attacked: Attacked, name: str) -> bool:
    return bool(attacked.stage.get("adaptercandidate", name).get("status", {}).get("state") == "Queued")


def pause(attacked: Attacked, paused: bool) -> None:
    attacked.kubectl(*attacked.patch("adapterchannel", CHANNEL, {"spec": {"paused": paused}}))


def remake_policy(attacked: Attacked, policy: dict[str, Any]) -> None:
    attacked.kubectl("delete", "gatepolicy", policy["metadata"]["name"])
    attacked.kubectl("create", send=policy)


def committed(attacked: Attacked) -> dict[str, Any]:
    """The signed document in the pool's ConfigMap."""
    found: dict[str, Any] = json.loads(attacked.stage.get("configmap", POOL_CONFIGMAP)["data"][CHANNEL])
    return found


def signed_by(key: SigningKey, document: dict[str, Any]) -> dict[str, Any]:
    """A document with somebody's signature."""
    wire: dict[str, Any] = key.sign(ChannelDocument.parse(document)).wire()
    return wire


def refused(pod: Pod, signed: dict[str, Any]) -> str:
    """Why the pod does not take a document."""
    reply = pod.request("PUT", f"/gatevalve/v1/channels/{CHANNEL}", signed)
    assert reply.status == 409, reply
    return str(reply.body["reason"])


def asks_for(model: str) -> dict[str, Any]:
    """A body that chat, completions and tokenize all take."""
    return {"model": model, "messages": [{"role": "user", "content": "a"}], "prompt": "a", "max_tokens": 1}


def engine_routes(log: str) -> set[tuple[str, str]]:
    """(method, path) of every route that vLLM says it has, and POST to each of the paths."""
    listed = re.findall(r"Route: (\S+), Methods: ([A-Z, ]+)", log)
    return {(method, re.sub(r"{.*?}", "x", path)) for path, methods in listed for method in [*methods.split(", "), "POST"]}


def names_of(pod: Pod) -> list[str]:
    return [adapter["name"] for adapter in pod.report()["adapters"]]


def swap_evidence_while_the_operator_is_away(attacked: Attacked, name: str) -> None:
    """Put an accepted candidate's evidence in the place of this one's, between its evaluation and its verdict."""
    accepted = attacked.newest("Accept")["spec"]["gate"]["evidence"]["uri"].rsplit("/", 1)[1]
    for attempt in range(1, 4):  # an engine may fail, and only the operator starts the next attempt
        job = partial(evaluation, attacked, name, attempt)
        attacked.eventually(f"evaluation {attempt}", job)
        with attacked.operator_away():
            attacked.eventually("its end", partial(has_ended, job), seconds=600)
            if job()["status"].get("succeeded"):
                return put_in_place(attacked.area("sealed") / "evidence", accepted, attacked.newest("Test")["metadata"]["name"])
    raise AssertionError(f"no evaluation of {name} has succeeded")


def evaluation(attacked: Attacked, name: str, attempt: int) -> dict[str, Any]:
    """The Job of an attempt at a candidate's evaluation; empty while there is none."""
    wanted = f"{LABEL_CANDIDATE}={name},{LABEL_STEP}=evaluate,{LABEL_ATTEMPT}={attempt}"
    return next(iter(attacked.stage.items("jobs", "--selector", wanted)), {})


def has_ended(job: Callable[[], dict[str, Any]]) -> bool:
    return not job()["status"].keys().isdisjoint({"succeeded", "failed"})


def put_in_place(evidence: Path, of: str, at: str) -> None:
    """One test's evidence in the place of another's."""
    for file in (evidence / of).iterdir():
        shutil.copyfile(file, evidence / at / file.name)


def verify_sealed(attacked: Attacked) -> tuple[int, str]:
    """Exit code of `kubectl gatevalve verify` with log and evidence at hand, and what it found."""
    tool = str(Path(sys.executable).parent / "kubectl-gatevalve")
    areas = ("--log", str(attacked.area("log").parent), "--sealed", str(attacked.area("sealed").parent))
    command = (tool, "verify", CHANNEL, "--namespace", NAMESPACE, "--kubeconfig", str(attacked.stage.cluster.kubeconfig), *areas)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr if done.returncode else ""


def kill_the_engine(attacked: Attacked) -> None:
    """SIGKILL of vLLM; the kubelet starts the container again."""
    pod = attacked.stage.pool_pods()[0]
    before = restarts(attacked, pod)
    attacked.stage.cluster.kill_container(pod, "vllm", NAMESPACE)
    attacked.eventually("the engine to be started again", lambda: restarts(attacked, pod) > before)


def restarts(attacked: Attacked, pod: str) -> int:
    return int(attacked.stage.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"])


def new_pod_refuses(attacked: Attacked, adapter: str) -> bool:
    """The pool's only pod reports DigestMismatch and answers nobody."""
    try:
        with attacked.pod() as pod:
            failed = [one for one in pod.report()["adapters"] if one["name"] == adapter and one.get("reason") == "DigestMismatch"]
            return bool(failed) and pod.ask().status != 200
    except (ClusterError, OSError, IndexError, TypeError, KeyError):
        return False
