"""Gathering: the view says what is so, also when watches lag, objects are broken, pods lie and stores fail."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import StoreError
from gatevalve.contracts.files import Progress
from gatevalve.contracts.kinds import AdapterChannelStatus, CandidateRef
from gatevalve.contracts.names import (
    KEYS_CONFIGMAP,
    LABEL_ATTEMPT,
    LABEL_CANDIDATE_UID,
    LABEL_CHANNEL,
    LABEL_STEP,
    evidence_dir,
    progress_file,
)
from gatevalve.contracts.reasons import Action
from gatevalve.contracts.serving import ChannelDocument, Route
from gatevalve.decide.plan import Plan
from gatevalve.decide.view import View
from gatevalve.engine.engine import Engine, Ports
from gatevalve.io import store
from gatevalve.io.ports import (
    ADAPTER_CANDIDATES,
    ADAPTER_CHANNELS,
    ADAPTER_RELEASES,
    CONFIGMAPS,
    GATE_POLICIES,
    JOBS,
    PODS,
    Evidence,
)
from gatevalve.io.signing import Signer
from gatevalve.io.store import Area, FileLog, SealedEvidence
from support import world
from support.engine_world import (
    CHANNEL_UID,
    DIGEST,
    FakeCluster,
    FakePod,
    FakePods,
    VirtualClock,
    draft,
    keys_configmap,
    release_object,
    sealed_log,
    settings,
    signer,
)

pytestmark = pytest.mark.component

AT = "2026-01-02T03:04:05Z"
CONFIGMAP = "gatevalve-pool-support"


class FlakyEvidence(SealedEvidence):
    """The real sealed area, which may not answer."""

    broken = False

    async def read(self, channel_uid: str, test_entry: str, report_digest: str, pairs_digest: str) -> Evidence:
        if self.broken:
            raise StoreError("the bucket does not answer")
        return await super().read(channel_uid, test_entry, report_digest, pairs_digest)


@dataclass
class Scene:
    root: Path
    key: Signer
    cluster: FakeCluster
    pods: FakePods
    sealed: FlakyEvidence
    engine: Engine

    async def view(self, resync: bool = True) -> View:
        if resync:
            await self.engine.resync()
        view = await self.engine._gatherer.gather("support")
        await self.engine._answers.close()
        return view

    def put_log(self, *drafts: Any) -> None:
        for entry in sealed_log(self.key, *drafts):
            self.cluster.put(ADAPTER_RELEASES, release_object(entry))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    key, cluster = signer(tmp_path), FakeCluster()
    pods, sealed = FakePods(key, VirtualClock()), FlakyEvidence(Area(f"file://{tmp_path}/sealed"))
    ports = Ports(cluster, pods, FileLog(Area(f"file://{tmp_path}/log")), sealed, key, VirtualClock())
    engine = Engine(ports, settings(key.key_id), lambda view: Plan(), CollectorRegistry())
    cluster.put(CONFIGMAPS, keys_configmap(key))
    cluster.put(GATE_POLICIES, {"metadata": {"name": "support-v1"}, "spec": world.policy().wire()})
    cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support", "uid": CHANNEL_UID}, "spec": world.channel_spec().wire()})
    return Scene(tmp_path, key, cluster, pods, sealed, engine)


# ---- objects


async def test_the_policy_comes_with_its_digest(scene: Scene) -> None:
    policy = (await scene.view()).policy
    assert policy is not None
    assert policy.digest == world.policy().digest_of()


async def test_a_broken_policy_is_told_and_a_missing_one_is_none(scene: Scene) -> None:
    scene.cluster.put(GATE_POLICIES, {"metadata": {"name": "support-v1"}, "spec": {"suites": []}})
    broken = (await scene.view()).policy
    assert broken is not None
    assert broken.spec is None
    assert "suites" in (broken.problem or "")
    scene.cluster.remove(GATE_POLICIES, "support-v1")
    assert (await scene.view()).policy is None


async def test_a_channel_with_a_broken_spec_is_told(scene: Scene) -> None:
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support"}, "spec": {"alias": "UPPER"}})
    view = await scene.view()
    assert view.channel is not None
    assert view.channel.spec is None
    assert "alias" in (view.channel.problem or "")
    assert view.pool.pods == ()


async def test_a_status_that_somebody_broke_counts_as_empty(scene: Scene) -> None:
    known = scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]
    scene.cluster.put(ADAPTER_CHANNELS, {**known, "status": {"live": "everything"}})
    view = await scene.view()
    assert view.channel is not None
    assert view.channel.status == AdapterChannelStatus()


async def test_candidates_of_the_channel_are_seen_also_broken_ones(scene: Scene) -> None:
    scene.cluster.put(
        ADAPTER_CANDIDATES,
        {"metadata": {"name": "good"}, "spec": {"channel": "support", "artifact": {"uri": "file:///a", "digest": DIGEST}}},
    )
    scene.cluster.put(ADAPTER_CANDIDATES, {"metadata": {"name": "bad"}, "spec": {"channel": "support"}})
    scene.cluster.put(ADAPTER_CANDIDATES, {"metadata": {"name": "foreign"}, "spec": {"channel": "other"}})
    view = await scene.view()
    assert [(c.meta.name, c.spec is not None) for c in view.candidates] == [("bad", False), ("good", True)]
    assert "exactly one" in (view.candidates[0].problem or "")


OWNERS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "an older channel with the same alias on the pool": ({}, "2026-01-01T00:00:00Z", "rival"),
    "a younger channel with the same alias": ({}, "2026-01-03T00:00:00Z", None),
    "an older channel with another alias": ({"alias": "other"}, "2026-01-01T00:00:00Z", None),
    "an older channel on another pool": ({"serving": {"pool": "other"}}, "2026-01-01T00:00:00Z", None),
}


async def test_the_alias_stays_with_the_channel_that_is_committed_with_it_although_an_older_one_names_it(scene: Scene) -> None:
    metadata = {"name": "rival", "creationTimestamp": "2026-01-01T00:00:00Z"}
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": metadata, "spec": world.channel_spec().wire()})
    signed = scene.key.sign_document(_document(scene).model_copy(update={"alias": "support"})).canonical().decode()
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "data": {"support": signed}})
    assert (await scene.view()).pool.alias_owner is None


async def test_the_alias_belongs_to_a_younger_channel_that_is_committed_with_it(scene: Scene) -> None:
    metadata = {"name": "rival", "creationTimestamp": "2026-01-03T00:00:00Z"}
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": metadata, "spec": world.channel_spec().wire()})
    signed = scene.key.sign_document(_document(scene, "rival").model_copy(update={"alias": "support"})).canonical().decode()
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "data": {"rival": signed}})
    assert (await scene.view()).pool.alias_owner == "rival"


@pytest.mark.parametrize("sentence", OWNERS)
async def test_the_alias_belongs_to(sentence: str, scene: Scene) -> None:
    changes, created, owner = OWNERS[sentence]
    metadata = {"name": "rival", "creationTimestamp": created}
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": metadata, "spec": world.channel_spec(**changes).wire()})
    assert (await scene.view()).pool.alias_owner == owner


async def test_the_alias_stays_with_a_deleted_channel_whose_document_pods_still_hold(scene: Scene) -> None:
    document = _document(scene, "gone").model_copy(update={"alias": "support"})
    signed = scene.key.sign_document(document).canonical().decode()
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "data": {"gone": signed}})
    assert (await scene.view()).pool.alias_owner == "gone"


# ---- log


async def test_an_entry_that_no_watch_has_told_of_is_in_the_view(scene: Scene) -> None:
    scene.put_log(draft(0))
    await scene.view()
    known = scene.cluster.objects[ADAPTER_RELEASES.plural, "support-000000"]["spec"]["digest"]
    scene.cluster.put(ADAPTER_RELEASES, release_object(scene.key.seal(draft(1), known)))
    assert len((await scene.view(resync=False)).log.entries) == 2


async def test_watches_that_tell_a_later_entry_first_are_no_problem(scene: Scene) -> None:
    scene.put_log(draft(0), draft(1), draft(2))
    for name in ("support-000000", "support-000002"):
        scene.engine.saw(ADAPTER_RELEASES, "ADDED", scene.cluster.objects[ADAPTER_RELEASES.plural, name])
    view = await scene.view(resync=False)
    assert (len(view.log.entries), view.log.problem) == (3, None)


async def test_an_external_log_that_does_not_answer_is_told_and_is_no_problem_of_the_log(scene: Scene) -> None:
    scene.put_log(draft(0))
    (scene.root / "log").write_text("not a directory")
    log = (await scene.view()).log
    assert (log.problem, [entry.exported for entry in log.entries]) == (None, [False])
    assert log.external_error


async def test_an_external_log_that_does_not_answer_is_logged_once_until_it_answers(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.put_log(draft(0))
    for file in ("not a directory", None, "again"):
        (scene.root / "log").write_text(file) if file else (scene.root / "log").unlink()
        await scene.view()
        await scene.view()
    assert [record.levelname for record in caplog.records if "external log" in record.message] == ["WARNING", "WARNING"]


# ---- pool


def _document(scene: Scene, channel: str = "support") -> ChannelDocument:
    return ChannelDocument(
        namespace="team",
        pool="support",
        channel=channel,
        uid=CHANNEL_UID,
        base_name="tiny-words",
        base_digest=world.BASE_DIGEST,
        key_id=scene.key.key_id,
        revision=(0, 0),
        alias="support",
        routes=(Route(entry="support-000000"),),
    )


def _sound(scene: Scene) -> str:
    return scene.key.sign_document(_document(scene)).canonical().decode()


def _edited(scene: Scene) -> str:
    return _sound(scene).replace('"revision":[0,0]', '"revision":[9,0]')


def _foreign(scene: Scene) -> str:
    return scene.key.sign_document(_document(scene, "other")).canonical().decode()


COMMITTED: dict[str, tuple[Callable[[Scene], str], str | None]] = {
    "a sound document": (_sound, None),
    "an edited document": (_edited, "signature"),
    "another channel's document": (_foreign, "document of channel other"),
    "no JSON": (lambda scene: "hello", "SignedDocument"),
}


@pytest.mark.parametrize("sentence", COMMITTED)
async def test_the_configmap_holds(sentence: str, scene: Scene) -> None:
    make, complaint = COMMITTED[sentence]
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "data": {"support": make(scene)}})
    pool = (await scene.view()).pool
    assert (pool.document is None) == (complaint is not None)
    assert complaint is None or complaint in (pool.document_problem or "")
    assert pool.resource_version is not None


KEYS: dict[str, tuple[dict[str, str] | None, str | None]] = {
    "is as the chart made it": ({}, None),
    "holds other certificates beside ours": ({"next.crt": "another"}, None),
    "holds another certificate in place of ours": ({"tls.crt": "another"}, "key tls.crt holds sha256:"),
    "has lost ours": ({"tls.crt": ""}, "key tls.crt holds sha256:"),
    "is gone": (None, "it is gone"),
}


@pytest.mark.parametrize("sentence", KEYS)
async def test_the_configmap_of_keys(sentence: str, scene: Scene) -> None:
    edit, complaint = KEYS[sentence]
    sound = keys_configmap(scene.key)
    if edit is None:
        scene.cluster.remove(CONFIGMAPS, KEYS_CONFIGMAP)
    else:
        scene.cluster.put(CONFIGMAPS, {**sound, "data": {**sound["data"], **edit}})
    problem = (await scene.view()).pool.keys_problem
    assert (problem is None) == (complaint is None)
    assert (complaint or "") in (problem or "")


async def test_an_alias_that_pods_answer_is_not_lost_to_an_older_channel_when_the_document_is_removed(scene: Scene) -> None:
    metadata = {"name": "rival", "creationTimestamp": "2026-01-01T00:00:00Z"}
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": metadata, "spec": world.channel_spec().wire()})
    pod = FakePod("pod", "10.0.0.1", "uid", held=scene.key.sign_document(_document(scene)))
    scene.pods.pods[pod.ip] = pod
    scene.cluster.put(PODS, pod.object("support"))
    assert (await scene.view()).pool.alias_owner is None


async def test_pods_are_seen_with_their_reports_or_with_why_there_is_none(scene: Scene) -> None:
    pods = {name: FakePod(name, f"10.0.0.{n}", f"uid-{name}") for n, name in enumerate(["fine", "down", "moved", "starting"])}
    for pod in pods.values():
        scene.pods.pods[pod.ip] = pod
        scene.cluster.put(PODS, pod.object("support"))
    pods["down"].down, pods["moved"].uid = True, "another pod at this address"
    starting = scene.cluster.objects[PODS.plural, "starting"]
    scene.cluster.put(PODS, {**starting, "status": {"phase": "Pending"}})
    found = {pod.name: pod for pod in (await scene.view()).pool.pods}
    assert {name: pod.reachable for name, pod in found.items()} == {"fine": True, "down": False, "moved": False, "starting": False}
    assert "refused" in (found["down"].error or "")
    assert "another pod at this address" in (found["moved"].error or "")
    assert found["starting"].error


async def test_a_pod_that_has_ended_is_no_pod_of_the_pool(scene: Scene) -> None:
    pod = FakePod("evicted", "10.0.0.1", "uid").object("support")
    scene.cluster.put(PODS, {**pod, "status": {"phase": "Failed"}})
    assert (await scene.view()).pool.pods == ()


# ---- jobs and evidence


def put_job(
    scene: Scene, number: int = 1, step: str = "evaluate", told: dict[str, Any] | None = None, code: int = 0, uid: str = "c-uid"
) -> None:
    name = f"c1-{step}-{number}"
    labels = {LABEL_CHANNEL: "support", LABEL_CANDIDATE_UID: uid, LABEL_STEP: step, LABEL_ATTEMPT: str(number)}
    end = {"type": "Complete" if code == 0 else "Failed", "status": "True", "lastTransitionTime": AT}
    job = {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"template": {"spec": {}}}, "status": {"conditions": [end]}}
    scene.cluster.put(JOBS, job)
    message = json.dumps({"version": 1, "step": step, "exitCode": code, **(told or {})})
    pod = {
        "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-name": name}, "ownerReferences": [{"uid": name}]},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": code, "message": message}}}]},
    }
    scene.cluster.put(PODS, pod)


async def test_what_a_job_said_is_remembered_after_its_pod_is_gone(scene: Scene) -> None:
    put_job(scene, step="train", code=12)
    assert (await scene.view()).jobs[0].exit_code == 12
    scene.cluster.remove(PODS, "c1-train-1")
    assert (await scene.view()).jobs[0].exit_code == 12


async def test_a_job_that_is_being_deleted_keeps_what_it_said(scene: Scene) -> None:
    put_job(scene, step="train", code=12)
    await scene.view()
    known = scene.cluster.objects[JOBS.plural, "c1-train-1"]
    scene.cluster.put(JOBS, {**known, "metadata": {**known["metadata"], "deletionTimestamp": AT}})
    (job,) = (await scene.view()).jobs
    assert (job.exit_code, job.deleting) == (12, True)


async def test_a_job_that_is_gone_is_forgotten(scene: Scene) -> None:
    put_job(scene, step="train", code=12)
    await scene.view()
    scene.cluster.remove(JOBS, "c1-train-1")
    view = await scene.view()
    assert view.jobs == ()
    assert scene.engine._gatherer._told == {}


async def test_of_many_jobs_each_hears_its_own_pod(scene: Scene) -> None:
    for number in range(1, 31):
        put_job(scene, number, "train", code=number % 3)
    assert [job.exit_code for job in sorted((await scene.view()).jobs, key=lambda job: job.attempt)] == [n % 3 for n in range(1, 31)]


def put_evidence(scene: Scene, entry: str = "support-000001") -> dict[str, str]:
    """What an evaluation Job says of the evidence that it left."""
    directory = scene.root / "sealed" / evidence_dir(CHANNEL_UID, entry)
    directory.mkdir(parents=True)
    packed = gzip.compress(b"")
    report = {
        "testEntry": entry,
        "testDigest": DIGEST,
        "channelUid": CHANNEL_UID,
        "candidateUid": "c-uid",
        "round": 1,
        "stage": "Full",
        "policyDigest": DIGEST,
        "baseDigest": DIGEST,
        "candidateDigest": DIGEST,
        "suites": [],
        "pairs": {"path": "pairs.jsonl.gz", "size": len(packed), "sha256": sha256(packed)},
        "engine": "vllm",
        "arms": {"candidate": "candidate", "incumbent": "base", "anchor": "base"},
    }
    raw = json.dumps(report).encode()
    (directory / "pairs.jsonl.gz").write_bytes(packed)
    (directory / "report.json").write_bytes(raw)
    return {"evidenceDigest": sha256(raw), "pairsDigest": sha256(packed)}


def open_test(scene: Scene, *more: Any) -> None:
    scene.put_log(draft(0), draft(1, Action.TEST, candidate=CandidateRef(name="c1", uid="c-uid")), *more)


async def test_evidence_is_read_once_its_job_has_said_what_it_is(scene: Scene) -> None:
    open_test(scene)
    said = put_evidence(scene)
    assert (await scene.view()).evidence is None
    put_job(scene, told={"evidence": said})
    evidence = (await scene.view()).evidence
    assert evidence is not None
    assert (evidence.test_entry, evidence.digest, evidence.problem) == ("support-000001", said["evidenceDigest"], None)


def put_running(scene: Scene, uid: str = "c-uid") -> None:
    put_job(scene, uid=uid)
    job = scene.cluster.objects[JOBS.plural, "c1-evaluate-1"]
    scene.cluster.put(JOBS, {**job, "status": {"active": 1, "startTime": AT}})


def put_progress(scene: Scene, raw: bytes) -> None:
    path = scene.root / "sealed" / progress_file(CHANNEL_UID, "support-000001")
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)


FAR = Progress(answered=120, of=960, per_second="14.2", seconds_left=59)


async def test_progress_is_read_while_the_evaluation_runs(scene: Scene) -> None:
    open_test(scene)
    put_progress(scene, FAR.canonical())
    assert (await scene.view()).progress is None
    put_running(scene)
    assert (await scene.view()).progress == FAR
    put_job(scene)
    assert (await scene.view()).progress is None


async def test_another_candidates_evaluation_is_not_this_tests_progress(scene: Scene) -> None:
    open_test(scene)
    put_progress(scene, FAR.canonical())
    put_running(scene, uid="another")
    assert (await scene.view()).progress is None


SILENT: dict[str, bytes] = {
    "no JSON": b"{",
    "another file": b'{"version":1}',
    "a rate that is no number": FAR.canonical().replace(b"14.2", b"soon"),
    "fewer than none": FAR.canonical().replace(b"120", b"-1"),
    "more than it may hold": b" " * 5000 + FAR.canonical(),
    "an extra word": FAR.canonical().replace(b"{", b'{"score":1,'),
}


@pytest.mark.parametrize("raw", SILENT.values(), ids=SILENT)
async def test_a_file_that_is_no_progress_says_nothing(raw: bytes, scene: Scene) -> None:
    open_test(scene)
    put_running(scene)
    put_progress(scene, raw)
    assert (await scene.view()).progress is None


async def test_a_running_evaluation_that_says_nothing_yet_has_no_progress(scene: Scene) -> None:
    open_test(scene)
    put_running(scene)
    assert (await scene.view()).progress is None


async def test_nobody_waits_for_progress_that_a_store_does_not_hand_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    open_test(scene)
    put_running(scene)
    put_progress(scene, FAR.canonical())
    hung, real = threading.Event(), scene.sealed._area.read
    monkeypatch.setattr(store, "PROGRESS_SECONDS", 0.05)
    monkeypatch.setattr(scene.sealed._area, "read", lambda name, limit: (hung.wait(20), real(name, limit))[1])
    assert [(await scene.view()).progress for _ in range(3)] == [None] * 3
    hung.set()
    assert await eventually_told(scene) == FAR


async def eventually_told(scene: Scene) -> Progress | None:
    for _ in range(100):
        if (told := (await scene.view()).progress) is not None:
            return told
        await asyncio.sleep(0.05)
    return None


async def test_a_test_with_a_verdict_needs_no_evidence_any_more(scene: Scene) -> None:
    open_test(scene, draft(2, Action.REJECT, candidate=CandidateRef(name="c1", uid="c-uid")))
    put_job(scene, told={"evidence": put_evidence(scene)})
    assert (await scene.view()).evidence is None


async def test_evidence_of_another_candidates_job_is_not_read(scene: Scene) -> None:
    open_test(scene)
    put_job(scene, told={"evidence": put_evidence(scene)}, uid="another")
    assert (await scene.view()).evidence is None


async def test_a_store_that_does_not_answer_is_no_fault_of_the_evidence(scene: Scene) -> None:
    open_test(scene)
    put_job(scene, told={"evidence": put_evidence(scene)})
    scene.sealed.broken = True
    assert (await scene.view()).evidence is None
    scene.sealed.broken = False
    evidence = (await scene.view()).evidence
    assert evidence is not None
    assert evidence.problem is None


async def test_two_jobs_that_name_different_results_are_a_problem(scene: Scene) -> None:
    open_test(scene)
    said = put_evidence(scene)
    put_job(scene, 1, told={"evidence": said})
    put_job(scene, 2, told={"evidence": {**said, "evidenceDigest": DIGEST}})
    evidence = (await scene.view()).evidence
    assert evidence is not None
    assert "2 different results" in (evidence.problem or "")
    assert evidence.forged


async def test_evidence_that_was_overwritten_is_a_problem(scene: Scene) -> None:
    open_test(scene)
    put_job(scene, told={"evidence": put_evidence(scene)})
    (scene.root / "sealed" / evidence_dir(CHANNEL_UID, "support-000001") / "report.json").write_bytes(b"{}")
    evidence = (await scene.view()).evidence
    assert evidence is not None
    assert "digest" in (evidence.problem or "")
    assert evidence.forged


async def test_evidence_that_is_what_its_job_named_and_does_not_parse_is_not_forged(scene: Scene) -> None:
    open_test(scene)
    said = put_evidence(scene)
    (scene.root / "sealed" / evidence_dir(CHANNEL_UID, "support-000001") / "report.json").write_bytes(b"{}")
    put_job(scene, told={"evidence": {**said, "evidenceDigest": sha256(b"{}")}})
    evidence = (await scene.view()).evidence
    assert evidence is not None
    assert (evidence.problem is None, evidence.forged) == (False, False)
