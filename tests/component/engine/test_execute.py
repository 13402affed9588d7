"""Executing a plan: the append protocol, the commit point, statuses and events, each also when the world has moved on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gatevalve.contracts.errors import ClusterError, ConflictError, GatevalveError, IntegrityError, InvalidError, StoreError
from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus, AdapterReleaseSpec, CandidateRef, Condition
from gatevalve.contracts.names import KEYS_CONFIGMAP, LABEL_ATTEMPT, LABEL_CANDIDATE_UID, LABEL_CHANNEL, LABEL_STEP, log_file
from gatevalve.contracts.reasons import CandidateState, EventReason
from gatevalve.contracts.serving import ChannelDocument, Route, SignedDocument
from gatevalve.decide.plan import (
    AnnotatePod,
    AppendEntry,
    CandidateStatusUpdate,
    ChannelStatusUpdate,
    CommitDocument,
    CopyEntry,
    CreateJob,
    DeleteJob,
    Event,
    Plan,
    PushDocument,
    RestoreKeys,
)
from gatevalve.decide.view import View
from gatevalve.engine.engine import Engine, Ports
from gatevalve.engine.execute import COMMIT_PAUSE_SECONDS, COMMIT_TRIES
from gatevalve.io.ports import ADAPTER_CANDIDATES, ADAPTER_CHANNELS, ADAPTER_RELEASES, CONFIGMAPS, EVENTS, JOBS, PODS, KubeObject
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
    release_object,
    sealed_log,
    settings,
    signer,
)

pytestmark = pytest.mark.component

CONFIGMAP = "gatevalve-pool-support"


@dataclass
class Scene:
    root: Path
    key: Signer
    clock: VirtualClock
    cluster: FakeCluster
    pods: FakePods
    engine: Engine

    async def view(self) -> View:
        """What a gather sees now."""
        await self.engine.resync()
        return await self.engine._gatherer.gather("support")

    async def run(self, view: View, *actions: Any, statuses: tuple[Any, ...] = (), events: tuple[Event, ...] = ()) -> None:
        await self.engine._executor.execute(Plan(actions, statuses, events), view)

    def status(self, candidate: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.objects[ADAPTER_CANDIDATES.plural, candidate].get("status", {})
        return found

    def events(self) -> list[str]:
        things = [thing for (plural, _), thing in self.cluster.objects.items() if plural == EVENTS.plural]
        return sorted(f"{thing['involvedObject']['name']}: {thing['reason']}" for thing in things)

    def entries(self) -> list[str]:
        return sorted(name for plural, name in self.cluster.objects if plural == ADAPTER_RELEASES.plural)

    def copies(self) -> list[str]:
        return sorted(path.name for path in (self.root / "log").glob("*/*.json"))

    def document(self, sequence: int = 0) -> ChannelDocument:
        entry = f"support-{sequence:06d}"
        return ChannelDocument(
            namespace="team",
            pool="support",
            channel="support",
            uid=CHANNEL_UID,
            base_name="tiny-words",
            base_digest=world.BASE_DIGEST,
            key_id=self.key.key_id,
            revision=(sequence, 0),
            alias="support",
            routes=(Route(entry=entry),),
        )


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    key, clock, cluster = signer(tmp_path), VirtualClock(), FakeCluster()
    pods = FakePods(key, clock)
    log, sealed = FileLog(Area(f"file://{tmp_path}/log")), SealedEvidence(Area(f"file://{tmp_path}/sealed"))
    engine = Engine(Ports(cluster, pods, log, sealed, key, clock), settings(key.key_id), lambda view: Plan(), CollectorRegistry())
    cluster.watchers.append(engine.saw)
    cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support", "uid": CHANNEL_UID}, "spec": world.channel_spec().wire()})
    return Scene(tmp_path, key, clock, cluster, pods, engine)


# ---- append


async def test_an_entry_is_signed_chained_created_and_copied_byte_by_byte(scene: Scene) -> None:
    await scene.run(await scene.view(), AppendEntry(draft(0)))
    await scene.run(await scene.view(), AppendEntry(draft(1)))
    view = await scene.view()
    assert view.log.problem is None
    assert [entry.exported for entry in view.log.entries] == [True, True]
    spec = AdapterReleaseSpec.parse(scene.cluster.objects[ADAPTER_RELEASES.plural, "support-000001"]["spec"])
    assert (scene.root / "log" / log_file(CHANNEL_UID, 1)).read_bytes() == spec.canonical()
    assert spec.previous_digest == view.log.entries[0].spec.digest


async def test_an_entry_that_was_drafted_for_an_older_log_is_not_written(scene: Scene) -> None:
    old = await scene.view()
    await scene.run(old, AppendEntry(draft(0)))
    with pytest.raises(ConflictError):
        await scene.run(await scene.view(), AppendEntry(draft(0)))
    with pytest.raises(ConflictError):
        await scene.run(await scene.view(), AppendEntry(draft(2)))
    assert scene.entries() == ["support-000000"]


async def test_nothing_is_appended_to_a_broken_log(scene: Scene) -> None:
    (first,) = sealed_log(scene.key, draft(0))
    scene.cluster.put(ADAPTER_RELEASES, release_object(first.model_copy(update={"message": "edited"})))
    view = await scene.view()
    with pytest.raises(ClusterError, match="broken log"):
        await scene.run(view, AppendEntry(draft(len(view.log.entries))))


async def test_the_same_decision_that_was_written_before_is_gone_on_with(scene: Scene) -> None:
    view = await scene.view()
    scene.cluster.put(ADAPTER_RELEASES, release_object(scene.key.seal(draft(0, decided_at="2026-01-01T00:00:00Z"), None)))
    await scene.run(view, AppendEntry(draft(0)))
    assert scene.copies() == ["000000.json"]
    assert (await scene.view()).log.entries[0].spec.decided_at == "2026-01-01T00:00:00Z"


def _other_decision(scene: Scene) -> AdapterReleaseSpec:
    return scene.key.seal(draft(0, actor="someone else"), None)


def _forged(scene: Scene) -> AdapterReleaseSpec:
    return signer(scene.root, "forger").seal(draft(0), None)


def _unchained(scene: Scene) -> AdapterReleaseSpec:
    return scene.key.seal(draft(0), DIGEST)


TAKEN: dict[str, Callable[[Scene], AdapterReleaseSpec]] = {
    "another decision": _other_decision,
    "the same decision with a forged signature": _forged,
    "the same decision chained to something else": _unchained,
}


@pytest.mark.parametrize("sentence", TAKEN)
async def test_a_name_taken_by_something_else_stops_the_plan(sentence: str, scene: Scene) -> None:
    view = await scene.view()
    scene.cluster.put(ADAPTER_RELEASES, release_object(TAKEN[sentence](scene)))
    with pytest.raises(ConflictError):
        await scene.run(view, AppendEntry(draft(0)), CreateJob(job()), statuses=(channel_status(),))
    assert scene.copies() == []
    assert "status" not in scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]
    assert (JOBS.plural, "j") not in scene.cluster.objects


async def test_an_entry_that_the_api_server_changes_is_noticed_before_it_is_copied(scene: Scene) -> None:
    create = scene.cluster.create

    async def meddling(resource: Any, body: Any) -> KubeObject:
        return await create(resource, {**body, "spec": {**body["spec"], "message": "by a webhook"}})

    scene.cluster.create = meddling  # type: ignore[method-assign]
    with pytest.raises(IntegrityError, match="webhook"):
        await scene.run(await scene.view(), AppendEntry(draft(0)))
    assert scene.copies() == []


async def test_an_entry_whose_copy_failed_is_not_told_but_the_channels_status_is(scene: Scene) -> None:
    view = await scene.view()
    (scene.root / "log").write_text("not a directory")
    with pytest.raises(StoreError):
        await scene.run(view, AppendEntry(draft(0)), statuses=(channel_status(),), events=(LIVE,))
    assert scene.entries() == ["support-000000"]
    assert scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]["status"]["observedGeneration"] == 7
    assert not scene.events()


async def test_a_candidate_is_not_told_of_an_entry_that_does_not_exist(scene: Scene) -> None:
    view, mine, others = await scene.view(), candidate(scene, "c1"), candidate(scene, "c2")
    scene.cluster.fail("create", ADAPTER_RELEASES.plural, ClusterError("403 Forbidden"))
    entry = draft(0, candidate=CandidateRef(name="c1", uid=mine.uid))
    with pytest.raises(ClusterError, match="403"):
        await scene.run(view, AppendEntry(entry), statuses=(mine, others, channel_status()), events=(started(mine), started(others)))
    assert scene.status("c1") == {}
    assert scene.status("c2")["state"] == "Training"
    assert scene.events() == ["c2: StepStarted"]


async def test_what_somebody_else_wrote_into_a_status_is_removed(scene: Scene) -> None:
    scene.cluster.somebody_elses["support"] = {"pin": "support-000009", "pods": {"desired": 9}}
    await scene.run(await scene.view(), statuses=(channel_status(),))
    status = scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]["status"]
    assert status == channel_status().status.wire()


async def test_an_entry_that_acts_at_once_goes_on_although_its_copy_fails(scene: Scene) -> None:
    view = await scene.view()
    (scene.root / "log").write_text("not a directory")
    await scene.run(view, AppendEntry(draft(0), copy_first=False), statuses=(channel_status(),))
    assert scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]["status"]["observedGeneration"] == 7


async def test_a_copy_can_be_made_up_for_and_is_done_when_it_exists(scene: Scene) -> None:
    scene.cluster.put(ADAPTER_RELEASES, release_object(scene.key.seal(draft(0), None)))
    await scene.run(await scene.view(), CopyEntry(0))
    await scene.run(await scene.view(), CopyEntry(0))
    assert scene.copies() == ["000000.json"]


async def test_a_copy_never_overwrites_another(scene: Scene) -> None:
    scene.cluster.put(ADAPTER_RELEASES, release_object(scene.key.seal(draft(0), None)))
    view = await scene.view()
    path = scene.root / "log" / log_file(CHANNEL_UID, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other")
    with pytest.raises(IntegrityError):
        await scene.run(view, CopyEntry(0))
    assert path.read_bytes() == b"other"


# ---- documents


def commit(scene: Scene, sequence: int, view: View) -> CommitDocument:
    return CommitDocument("support", "support", scene.document(sequence), view.pool.resource_version)


def held(scene: Scene) -> ChannelDocument:
    text = scene.cluster.objects[CONFIGMAPS.plural, CONFIGMAP]["data"]["support"]
    return SignedDocument.parse_json(text).document


def _replace(scene: Scene) -> None:
    signed = scene.key.sign_document(scene.document(2)).canonical().decode()
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "data": {"support": signed}})


KEYS_CHANGED: dict[str, tuple[bool, Callable[[Scene], object]]] = {
    "its key holds another document": (True, _replace),
    "its key is gone": (True, lambda scene: scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "data": {}})),
    "the ConfigMap is gone": (True, lambda scene: scene.cluster.fail("apply", CONFIGMAPS.plural, _gone(scene))),
    "somebody else has made the ConfigMap with that key": (False, _replace),
}


def _gone(scene: Scene) -> ConflictError:
    """What server-side apply answers when an object that is named with a version does not exist."""
    scene.cluster.remove(CONFIGMAPS, CONFIGMAP)
    return ConflictError("the object does not exist")


@pytest.mark.parametrize("sentence", KEYS_CHANGED)
async def test_a_commit_is_refused_and_nothing_follows_it_when_since_the_view(sentence: str, scene: Scene) -> None:
    exists, change = KEYS_CHANGED[sentence]
    if exists:
        await scene.run(await scene.view(), CommitDocument("support", "support", scene.document(0), None))
    view = await scene.view()
    change(scene)
    before = scene.cluster.objects.get((CONFIGMAPS.plural, CONFIGMAP))
    with pytest.raises(ConflictError):
        await scene.run(view, commit(scene, 1, view), CreateJob(job()))
    assert scene.cluster.objects.get((CONFIGMAPS.plural, CONFIGMAP)) == before
    assert (JOBS.plural, "j") not in scene.cluster.objects


def _touch(scene: Scene, **change: Any) -> None:
    known = scene.cluster.objects.get((CONFIGMAPS.plural, CONFIGMAP), {"metadata": {"name": CONFIGMAP}, "data": {}})
    metadata = {**known["metadata"], "annotations": change}
    scene.cluster.put(CONFIGMAPS, {**known, "metadata": metadata, "data": {**known["data"], "other": str(change)}})


def touched_at_each_write(scene: Scene, times: int) -> None:
    """Somebody writes other keys and annotations of the ConfigMap right before each of the next commits arrives."""
    called = scene.cluster._called

    async def meddling(verb: str, resource: Any, what: str) -> None:
        nonlocal times
        await called(verb, resource, what)
        if resource is CONFIGMAPS and verb in ("apply", "create") and times:
            times -= 1
            _touch(scene, times=str(times))

    scene.cluster._called = meddling  # type: ignore[method-assign]


@pytest.mark.parametrize("exists", [True, False], ids=["a commit", "a first commit"])
async def test_it_gets_through_however_often_somebody_annotates_the_configmap_meanwhile(exists: bool, scene: Scene) -> None:
    if exists:
        await scene.run(await scene.view(), CommitDocument("support", "support", scene.document(0), None))
    view = await scene.view()
    touched_at_each_write(scene, COMMIT_TRIES - 1)
    running = asyncio.create_task(scene.run(view, commit(scene, 1, view), CreateJob(job())))
    await scene.clock.advance(COMMIT_TRIES * COMMIT_PAUSE_SECONDS)
    await running
    assert held(scene) == scene.document(1)
    assert scene.cluster.objects[CONFIGMAPS.plural, CONFIGMAP]["data"]["other"] == "{'times': '0'}"
    assert (JOBS.plural, "j") in scene.cluster.objects


async def test_a_commit_takes_its_key_back_from_binary_data(scene: Scene) -> None:
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP}, "binaryData": {"support": "AAAA", "other": "BBBB"}})
    apply = scene.cluster.apply

    async def strict(resource: Any, body: Any, manager: str, subresource: str = "") -> KubeObject:
        if resource is CONFIGMAPS and body["data"].keys() & scene.cluster.objects[CONFIGMAPS.plural, CONFIGMAP]["binaryData"].keys():
            raise InvalidError("422 Invalid: duplicate of key present in data")
        return await apply(resource, body, manager, subresource)

    scene.cluster.apply = strict  # type: ignore[method-assign]
    view = await scene.view()
    assert view.pool.document_problem == "the key support stands under binaryData"
    await scene.run(view, commit(scene, 0, view))
    assert held(scene) == scene.document(0)
    assert scene.cluster.objects[CONFIGMAPS.plural, CONFIGMAP]["binaryData"] == {"other": "BBBB"}
    assert (await scene.view()).pool.document_problem is None


async def test_a_commit_gives_up_when_the_configmap_never_rests(scene: Scene) -> None:
    await scene.run(await scene.view(), CommitDocument("support", "support", scene.document(0), None))
    view = await scene.view()
    touched_at_each_write(scene, 1_000)
    running = asyncio.create_task(scene.run(view, commit(scene, 1, view)))
    await scene.clock.advance(COMMIT_TRIES * COMMIT_PAUSE_SECONDS)
    with pytest.raises(ConflictError):
        await running
    assert held(scene) == scene.document(0)


async def test_pushes_go_out_together_and_a_pod_that_hangs_or_is_down_stops_nothing(scene: Scene) -> None:
    for number in range(3):
        pod = FakePod(f"pod-{number}", f"10.0.0.{number}", f"uid-{number}")
        scene.pods.pods[pod.ip] = pod
        scene.cluster.put(PODS, pod.object("support"))
    view = await scene.view()
    scene.pods.pods["10.0.0.0"].hangs = scene.pods.pods["10.0.0.1"].down = True
    pushes = [PushDocument(f"pod-{number}", scene.document()) for number in range(3)]
    running = asyncio.create_task(scene.run(view, *pushes, CreateJob(job())))
    await scene.clock.advance(0.1)
    assert scene.pods.pods["10.0.0.2"].held is not None
    await scene.clock.advance(6)
    await running
    assert (JOBS.plural, "j") in scene.cluster.objects
    await scene.engine._answers.close()


async def test_a_pod_that_is_gone_needs_no_annotation(scene: Scene) -> None:
    await scene.run(await scene.view(), AnnotatePod("gone", "support", "support-000000"))
    assert not [key for key in scene.cluster.objects if key[0] == PODS.plural]


async def test_a_commit_puts_back_the_label_that_somebody_removed(scene: Scene) -> None:
    scene.cluster.put(CONFIGMAPS, {"metadata": {"name": CONFIGMAP, "labels": {}}, "data": {}})
    view = await scene.view()
    await scene.run(view, CommitDocument("support", "support", scene.document(0), view.pool.resource_version))
    assert scene.cluster.objects[CONFIGMAPS.plural, CONFIGMAP]["metadata"]["labels"] == {"gatevalve.dev/pool": "support"}


KEYS_FOUND: dict[str, dict[str, Any] | None] = {"is gone": None, "holds another certificate": {"tls.crt": "another", "next.crt": "kept"}}


@pytest.mark.parametrize("sentence", KEYS_FOUND)
async def test_our_certificate_is_written_again_when_the_configmap_of_keys(sentence: str, scene: Scene) -> None:
    data = KEYS_FOUND[sentence]
    if data is not None:
        scene.cluster.put(CONFIGMAPS, {"metadata": {"name": KEYS_CONFIGMAP}, "data": data})
    await scene.run(await scene.view(), RestoreKeys())
    found = scene.cluster.objects[CONFIGMAPS.plural, KEYS_CONFIGMAP]["data"]
    assert found == {**(data or {}), "tls.crt": scene.key.verify_key.certificate.decode()}
    assert (await scene.view()).pool.keys_problem is None


async def test_keys_that_cannot_be_written_hold_up_nothing(scene: Scene) -> None:
    view = await scene.view()
    scene.cluster.fail("apply", CONFIGMAPS.plural, ClusterError("403 Forbidden"))
    await scene.run(view, RestoreKeys(), CreateJob(job()))
    assert (JOBS.plural, "j") in scene.cluster.objects


# ---- jobs


def job(candidate_uid: str = "c") -> dict[str, Any]:
    labels = {LABEL_CHANNEL: "support", LABEL_CANDIDATE_UID: candidate_uid}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": labels}, "spec": {}}


def candidate(scene: Scene, name: str, **more: Any) -> CandidateStatusUpdate:
    """A candidate that exists, and the status that a plan has for it when its training starts."""
    made = scene.cluster.put(ADAPTER_CANDIDATES, {"metadata": {"name": name}, "spec": {"channel": "support"}})
    said = [
        Condition(type=kind, status="False", reason=reason, message="Job j", last_transition_time="2026-01-02T03:04:05Z")
        for kind, reason in (("SnapshotReady", "Done"), ("Trained", "InProgress"), ("Decided", "InProgress"))
    ]
    status = AdapterCandidateStatus(state=CandidateState.TRAINING, conditions=tuple(said), **more)
    return CandidateStatusUpdate(name, made["metadata"]["uid"], status)


def started(update: CandidateStatusUpdate) -> Event:
    return Event("AdapterCandidate", update.name, update.uid, EventReason.STEP_STARTED, "Job j")


REFUSED: dict[str, tuple[ClusterError, dict[str, Any], str, tuple[str, str], list[str]]] = {
    "waits when a quota refuses its Job": (
        ClusterError("403 Forbidden: exceeded quota"),
        {},
        "Training",
        ("False", "InProgress"),
        ["support: Live"],
    ),
    "ends when its Job is invalid": (
        InvalidError("422 Invalid: exceeded quota"),
        {},
        "Errored",
        ("True", "StepFailed"),
        ["c1: Errored", "support: Live"],
    ),
    "waits when the Job is invalid that its opened test needs": (
        InvalidError("422 Invalid: exceeded quota"),
        {"test": "support-000001"},
        "Training",
        ("False", "InProgress"),
        ["support: Live"],
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
async def test_a_candidate(sentence: str, scene: Scene) -> None:
    error, more, state, decided, events = REFUSED[sentence]
    mine = candidate(scene, "c1", **more)
    view = await scene.view()
    scene.cluster.fail("create", JOBS.plural, error)
    with pytest.raises(ClusterError, match="quota"):
        await scene.run(view, CreateJob(job(mine.uid)), statuses=(channel_status(), mine), events=(LIVE, started(mine)))
    told = {condition["type"]: condition for condition in scene.status("c1")["conditions"]}
    assert scene.status("c1")["state"] == state
    assert (told["Decided"]["status"], told["Decided"]["reason"]) == decided
    assert (told["SnapshotReady"]["message"], "exceeded quota" in told["Trained"]["message"]) == ("Job j", True)
    assert "exceeded quota" in told["Decided"]["message"]
    assert scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]["status"]["observedGeneration"] == 7
    assert scene.events() == events


async def test_a_refused_job_is_told_once(scene: Scene) -> None:
    mine = candidate(scene, "c1")
    scene.cluster.fail("create", JOBS.plural, *[ClusterError("403 Forbidden")] * 2)
    versions = []
    for _ in range(2):
        with pytest.raises(ClusterError):
            await scene.run(await scene.view(), CreateJob(job(mine.uid)), statuses=(mine,))
        versions.append(scene.cluster.objects[ADAPTER_CANDIDATES.plural, "c1"]["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]


async def test_a_candidate_whose_job_could_not_be_stopped_has_not_ended(scene: Scene) -> None:
    mine = candidate(scene, "c1")
    running = job(mine.uid)
    running["metadata"]["labels"] |= {LABEL_STEP: "train", LABEL_ATTEMPT: "1"}
    running["spec"] = {"template": {"spec": {}}}
    scene.cluster.put(JOBS, running)
    view = await scene.view()
    scene.cluster.fail("delete", JOBS.plural, ClusterError("403 Forbidden"))
    with pytest.raises(ClusterError):
        await scene.run(view, DeleteJob("j"), statuses=(mine,))
    assert scene.status("c1") == {}


async def test_a_job_that_exists_is_the_same_attempt(scene: Scene) -> None:
    view = await scene.view()
    await scene.run(view, CreateJob(job()))
    first = scene.cluster.objects[JOBS.plural, "j"]["metadata"]["uid"]
    await scene.run(view, CreateJob(job()))
    assert scene.cluster.objects[JOBS.plural, "j"]["metadata"]["uid"] == first


async def test_a_job_is_deleted_once_and_gone_already_is_fine(scene: Scene) -> None:
    view = await scene.view()
    await scene.run(view, CreateJob(job()))
    await scene.run(view, DeleteJob("j"))
    await scene.run(view, DeleteJob("j"))
    assert (JOBS.plural, "j") not in scene.cluster.objects


# ---- statuses and events

LIVE = Event("AdapterChannel", "support", CHANNEL_UID, EventReason.LIVE, "support-000000 is live on 2 pods")


def channel_status(uid: str = CHANNEL_UID) -> ChannelStatusUpdate:
    return ChannelStatusUpdate("support", uid, AdapterChannelStatus(observed_generation=7))


async def test_a_status_is_written_once(scene: Scene) -> None:
    view = await scene.view()
    await scene.run(view, statuses=(channel_status(),))
    version = scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]["metadata"]["resourceVersion"]
    calls = len(scene.cluster.calls)
    await scene.run(view, statuses=(channel_status(),))
    assert scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]["metadata"]["resourceVersion"] == version
    assert len(scene.cluster.calls) == calls


async def test_an_object_made_anew_does_not_get_the_old_ones_status(scene: Scene) -> None:
    await scene.run(await scene.view(), statuses=(channel_status(uid="the old one"),))
    assert "status" not in scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]


async def test_an_object_made_anew_without_a_watch_telling_does_not_get_the_old_ones_status(scene: Scene) -> None:
    view = await scene.view()
    scene.cluster.watchers.clear()
    scene.cluster.remove(ADAPTER_CHANNELS, "support")
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support"}, "spec": world.channel_spec().wire()})
    with pytest.raises(ConflictError):
        await scene.run(view, statuses=(channel_status(),))
    assert "status" not in scene.cluster.objects[ADAPTER_CHANNELS.plural, "support"]


async def test_a_status_that_conflicts_keeps_neither_the_others_nor_the_events(scene: Scene) -> None:
    candidate = scene.cluster.put(ADAPTER_CANDIDATES, {"metadata": {"name": "c1"}, "spec": {"channel": "support"}})
    view = await scene.view()
    scene.cluster.watchers.clear()
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support"}, "spec": world.channel_spec(paused=True).wire()})
    update = CandidateStatusUpdate("c1", candidate["metadata"]["uid"], AdapterCandidateStatus(state=CandidateState.SKIPPED))
    with pytest.raises(ConflictError):
        await scene.run(view, statuses=(channel_status(), update), events=(LIVE,))
    assert scene.cluster.objects[ADAPTER_CANDIDATES.plural, "c1"]["status"]["state"] == "Skipped"
    assert [key for key in scene.cluster.objects if key[0] == EVENTS.plural]


async def test_an_api_server_that_refuses_stops_the_plan_where_it_is(scene: Scene) -> None:
    view = await scene.view()
    scene.cluster.fail("create", JOBS.plural, ClusterError("exceeded quota"))
    with pytest.raises(GatevalveError, match="quota"):
        await scene.run(view, CreateJob(job()), AppendEntry(draft(0)))
    assert scene.entries() == []
