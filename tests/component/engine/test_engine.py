"""The engine with the real decision, the real store and key, over an API server and pods in memory."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gatevalve.contracts.errors import ClusterError, StoreError
from gatevalve.contracts.kinds import AdapterReleaseSpec, GateFacts, Lineage, Opening, Serves
from gatevalve.contracts.names import KEYS_CONFIGMAP, adapter_dir, adapter_name, log_file
from gatevalve.contracts.reasons import Action, EntryReason
from gatevalve.contracts.serving import PodReport, SignedDocument
from gatevalve.decide.channel import decide
from gatevalve.engine.chain import copy_of, read_link, verify_chain
from gatevalve.engine.engine import Engine, Ports
from gatevalve.io.clock import SystemClock
from gatevalve.io.ports import (
    ADAPTER_CANDIDATES,
    ADAPTER_CHANNELS,
    ADAPTER_RELEASES,
    CONFIGMAPS,
    EVENTS,
    GATE_POLICIES,
    PODS,
    KubeObject,
    PodAddress,
)
from gatevalve.io.signing import Signer
from gatevalve.io.store import Area, FileLog, SealedEvidence
from support import world
from support.engine_world import FakeCluster, FakePod, FakePods, draft, keys_configmap, release_object, settings, signer

pytestmark = pytest.mark.component

UID = "channel-uid"
POOL_CONFIGMAP = "gatevalve-pool-support"
PATIENCE = 6.0
PIN = {"entry": "support-000000", "reason": "bad answers", "by": "jo"}


class FlakyLog(FileLog):
    """The real external log; `broken` makes it refuse writes, `unreadable` everything."""

    broken = False
    unreadable = False

    async def publish(self, channel_uid: str, sequence: int, data: bytes) -> None:
        if self.broken or self.unreadable:
            raise StoreError("the disk is full")
        await super().publish(channel_uid, sequence, data)

    async def sequences(self, channel_uid: str) -> frozenset[int]:
        if self.unreadable:
            raise StoreError("the bucket does not answer")
        return await super().sequences(channel_uid)


@dataclass
class Rig:
    """A cluster, two pods, a store and a key; engines come and go."""

    root: Path
    key: Signer
    cluster: FakeCluster
    pods: FakePods
    store: FlakyLog
    registries: list[CollectorRegistry] = field(default_factory=list)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        """A running operator; leaving the context is a kill -9 as far as memory goes."""
        ports = Ports(self.cluster, self.pods, self.store, SealedEvidence(Area(f"file://{self.root}/sealed")), self.key, SystemClock())
        registry = CollectorRegistry()
        self.registries.append(registry)
        engine = Engine(ports, settings(self.key.key_id), decide, registry)
        self.cluster.watchers.append(engine.saw)
        await engine.resync()
        task = asyncio.create_task(engine.run())
        try:
            yield engine
        finally:
            self.cluster.watchers.remove(engine.saw)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registries[-1].get_sample_value(f"gatevalve_{name}", labels)

    def add_channel(self, **changes: Any) -> None:
        self.cluster.put(GATE_POLICIES, {"metadata": {"name": "support-v1"}, "spec": world.policy().wire()})
        self.cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support", "uid": UID}, "spec": world.channel_spec(**changes).wire()})

    def patch_channel(self, **changes: Any) -> None:
        known = self.cluster.objects[ADAPTER_CHANNELS.plural, "support"]
        spec = {key: value for key, value in {**known["spec"], **changes}.items() if value is not None}
        generation = known["metadata"]["generation"] + 1
        self.cluster.put(ADAPTER_CHANNELS, {**known, "metadata": {**known["metadata"], "generation": generation}, "spec": spec})

    def append(self, spec: AdapterReleaseSpec, exported: bool = True) -> None:
        """An entry written before, by an operator with this key."""
        last = self.log[-1].digest if self.log else None
        sealed = self.key.seal(spec, last)
        self.cluster.put(ADAPTER_RELEASES, release_object(sealed))
        if exported:
            self.export(sealed.wire(), spec.sequence)

    def export(self, spec: dict[str, Any], sequence: int) -> None:
        path = self.root / "log" / log_file(UID, sequence)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(copy_of(spec))

    @property
    def log(self) -> list[AdapterReleaseSpec]:
        """The log, which must always be sound."""
        things = [thing for (plural, _), thing in sorted(self.cluster.objects.items()) if plural == ADAPTER_RELEASES.plural]
        chain = verify_chain("support", things, lambda thing: read_link(thing, self.key.verify_key))
        assert chain.problem is None
        return [link.spec for link in chain.links]

    @property
    def actions(self) -> list[str]:
        return [str(entry.action) for entry in self.log]

    @property
    def exported(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.root / "log").glob(f"{UID}/*.json"))

    @property
    def committed(self) -> SignedDocument | None:
        configmap = self.cluster.objects.get((CONFIGMAPS.plural, POOL_CONFIGMAP))
        return SignedDocument.parse_json(configmap["data"]["support"]) if configmap and "support" in configmap.get("data", {}) else None

    def serves(self, entry: str) -> bool:
        """Committed, and every pod that is up answers from it."""
        up = [pod for pod in self.pods.pods.values() if not pod.down and not pod.hangs]
        held = [pod.held.document.routes[0].entry if pod.held else None for pod in up]
        return self.committed is not None and self.committed.document.routes[0].entry == entry and set(held) == {entry}

    def channel(self) -> KubeObject:
        return self.cluster.objects[ADAPTER_CHANNELS.plural, "support"]

    def condition(self, kind: str, resource: str = "adapterchannels", name: str = "support") -> tuple[str, str] | None:
        conditions = self.cluster.objects[resource, name].get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == kind), None)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    key = signer(tmp_path)
    cluster = FakeCluster()
    pods = FakePods(key, SystemClock())
    for number in (1, 2):
        pod = FakePod(f"pod-{number}", f"10.0.0.{number}", f"pod-uid-{number}", base=("tiny-words", world.BASE_DIGEST))
        pods.pods[pod.ip] = pod
        cluster.put(PODS, pod.object("support"))
    cluster.put(CONFIGMAPS, keys_configmap(key))
    return Rig(tmp_path, key, cluster, pods, FlakyLog(Area(f"file://{tmp_path}/log")))


async def eventually(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"never: {what or holds}"
        await asyncio.sleep(0.005)


def opening() -> AdapterReleaseSpec:
    facts = Opening(base=world.channel_spec().base, policy_digest=world.policy().digest_of())
    return draft(
        0, uid=UID, opening=facts, serves=Serves(base=True), policy=world.policy(), reason=EntryReason.CHANNEL_OPENED, action=Action.OPEN
    )


def promotion(sequence: int, content: str) -> AdapterReleaseSpec:
    """An Accept is left out: whether one precedes is the decision's business, tested there."""
    digest = world.digest(content)
    serves = Serves(adapter=adapter_name("support", digest), digest=digest, uri=adapter_dir(UID, digest), rank=8)
    lineage = Lineage(base_digest=world.BASE_DIGEST, adapter_digest=digest)
    gate = GateFacts(policy_digest=world.policy().digest_of(), round=1, test=1)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return draft(
        sequence, Action.PROMOTE, uid=UID, serves=serves, lineage=lineage, gate=gate, reason=EntryReason.GATE_PASSED, decided_at=now
    )


async def opened(rig: Rig, promotions: int = 0) -> None:
    """A channel whose log starts with Open and some promotions of the past."""
    rig.add_channel(serving={"pool": "support", "rolloutSeconds": 86_400})
    rig.append(opening())
    for number in range(1, promotions + 1):
        rig.append(promotion(number, f"adapter {number}"))
        name = f"support-{number:06d}"
        known = rig.cluster.objects[ADAPTER_RELEASES.plural, name]
        if number < promotions:
            rig.cluster.put(ADAPTER_RELEASES, {**known, "status": {"liveSince": "2026-01-02T03:04:05Z"}})


# ---- the path


async def test_a_new_channel_is_opened_copied_committed_and_served_from_the_base(rig: Rig) -> None:
    rig.add_channel()
    async with rig.engine():
        await eventually(lambda: rig.condition("Ready") == ("True", "AsExpected"), "Ready")
    assert rig.actions == ["Open"]
    assert rig.exported == [0]
    assert rig.serves("support-000000")
    assert rig.committed is not None
    rig.key.verify_key.verify_document(rig.committed)
    annotations = [rig.cluster.objects[PODS.plural, name]["metadata"].get("annotations") for name in ("pod-1", "pod-2")]
    assert annotations == [{"gatevalve.dev/support": "support-000000"}] * 2
    assert rig.metric("log_valid", channel="support") == 1
    assert rig.metric("releases_total", channel="support", action="Open") == 1
    assert rig.metric("live_release_info", channel="support", entry="support-000000") == 1


async def test_a_settled_channel_is_left_alone(rig: Rig) -> None:
    rig.add_channel()
    async with rig.engine() as engine:
        await eventually(lambda: rig.condition("Ready") == ("True", "AsExpected"), "Ready")
        await eventually(lambda: engine.queue.depth == 0, "quiet")
        await asyncio.sleep(0.2)
        before = len([call for call in rig.cluster.calls if call[0] not in ("get", "list")])
        engine.queue.add("support")
        await asyncio.sleep(0.3)
        assert len([call for call in rig.cluster.calls if call[0] not in ("get", "list")]) == before


async def test_a_promotion_is_preloaded_on_one_pod_then_on_the_other_then_committed_and_its_times_are_told(rig: Rig) -> None:
    await opened(rig)
    async with rig.engine():
        await eventually(lambda: "timings" in rig.cluster.objects[ADAPTER_RELEASES.plural, "support-000000"].get("status", {}), "timed")
        rig.append(promotion(1, "adapter 1"))
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        await eventually(lambda: "liveSince" in rig.cluster.objects[ADAPTER_RELEASES.plural, "support-000001"].get("status", {}), "live")
    status = rig.cluster.objects[ADAPTER_RELEASES.plural, "support-000001"]["status"]
    assert status["pods"] == {"desired": 2, "loaded": 2, "verified": 2, "failed": 0}
    assert 0 <= status["timings"]["flipMs"] < 10_000
    assert status["timings"]["preloadMs"] >= 0
    assert rig.metric("flip_seconds_count", channel="support") == 2, "of the base and of the promotion"
    assert rig.metric("preload_seconds_count", channel="support") == 1


async def test_a_pin_rolls_back_in_seconds(rig: Rig) -> None:
    await opened(rig, promotions=1)
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        started = time.monotonic()
        rig.patch_channel(pin=PIN)
        await eventually(lambda: rig.serves("support-000002"), "the rollback serves")
        seconds = time.monotonic() - started
        await eventually(lambda: rig.metric("rollback_seconds_count", channel="support") == 1, "the rollback is measured")
    assert rig.actions == ["Open", "Promote", "Rollback"]
    assert rig.log[-1].actor == "jo"
    assert rig.exported == [0, 1, 2]
    assert seconds < 10


async def test_a_pod_that_hangs_does_not_hold_up_a_rollback_on_the_other(rig: Rig) -> None:
    await opened(rig, promotions=1)
    async with rig.engine() as engine:
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        rig.pods.pods["10.0.0.2"].hangs = True
        engine.queue.add("support")
        await asyncio.sleep(3.5)
        started = time.monotonic()
        rig.patch_channel(pin=PIN)
        await eventually(lambda: rig.serves("support-000002"), "the rollback serves")
        assert time.monotonic() - started < 2.0


async def test_removing_the_pin_does_not_promote_again(rig: Rig) -> None:
    await opened(rig, promotions=1)
    async with rig.engine() as engine:
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        rig.patch_channel(pin=PIN)
        await eventually(lambda: rig.serves("support-000002"), "the rollback serves")
        rig.patch_channel(pin=None)
        engine.queue.add("support")
        await asyncio.sleep(0.3)
        assert rig.serves("support-000002")
        assert rig.actions == ["Open", "Promote", "Rollback"]


# ---- the append protocol


async def test_an_entry_whose_copy_fails_is_not_lost_and_nothing_follows_it_until_it_is_copied(rig: Rig) -> None:
    rig.add_channel()
    rig.store.broken = True
    async with rig.engine():
        await eventually(lambda: rig.cluster.objects.get((ADAPTER_RELEASES.plural, "support-000000")), "Open is created")
        await asyncio.sleep(0.5)
        assert rig.actions == ["Open"]
        assert rig.exported == []
        rig.store.broken = False
        await eventually(lambda: rig.exported == [0], "Open is copied")
    assert rig.actions == ["Open"]


async def test_a_rollback_acts_although_the_external_log_does_not_answer_and_is_copied_later(rig: Rig) -> None:
    await opened(rig, promotions=1)
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        rig.store.unreadable = True
        rig.patch_channel(pin=PIN)
        await eventually(lambda: rig.serves("support-000002"), "the rollback serves")
        assert rig.exported == [0, 1]
        rig.store.unreadable = False
        await eventually(lambda: rig.exported == [0, 1, 2], "the rollback is copied")


async def test_a_create_whose_answer_is_lost_leaves_no_twin(rig: Rig) -> None:
    rig.add_channel()
    create = rig.cluster.create

    async def lossy(resource: Any, body: Any) -> KubeObject:
        created = await create(resource, body)
        if resource is ADAPTER_RELEASES:
            rig.cluster.create = create  # type: ignore[method-assign]
            raise ClusterError("the connection broke")
        return created

    rig.cluster.create = lossy  # type: ignore[method-assign]
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000000"), "the base serves")
    assert rig.actions == ["Open"]


async def test_of_two_operators_each_entry_is_written_by_one(rig: Rig) -> None:
    rig.add_channel()
    async with rig.engine(), rig.engine():
        await eventually(lambda: rig.condition("Ready") == ("True", "AsExpected"), "Ready")
        rig.patch_channel(pin={"entry": "support-000000", "reason": "stay with the base", "by": "jo"})
        await asyncio.sleep(0.3)
    assert rig.actions == ["Open", "Rollback"]


# ---- a log that is not what it was


def _edit(rig: Rig) -> None:
    known = rig.cluster.objects[ADAPTER_RELEASES.plural, "support-000001"]
    rig.cluster.put(ADAPTER_RELEASES, {**known, "spec": {**known["spec"], "message": "edited"}})


def _delete_head(rig: Rig) -> None:
    rig.cluster.remove(ADAPTER_RELEASES, "support-000001")


def _delete_middle(rig: Rig) -> None:
    rig.cluster.remove(ADAPTER_RELEASES, "support-000000")


def _forge(rig: Rig) -> None:
    forger = signer(rig.root, "forger")
    last = rig.log[-1].digest
    rig.cluster.put(ADAPTER_RELEASES, release_object(forger.seal(promotion(2, "evil"), last)))


def _other_copy(rig: Rig) -> None:
    rig.export({"other": "bytes"}, 1)


def _longer_copy(rig: Rig) -> None:
    rig.export({"other": "bytes"}, 2)


TAMPERINGS: dict[str, tuple[Callable[[Rig], None], str]] = {
    "an entry is edited": (_edit, "support-000001: its digest"),
    "the newest entry is deleted": (_delete_head, "beyond"),
    "an earlier entry is deleted": (_delete_middle, "support-000000 is missing"),
    "an entry is forged": (_forge, "support-000002"),
    "an external copy is overwritten": (_other_copy, "differs"),
    "the external log grows by itself": (_longer_copy, "beyond"),
}


@pytest.mark.parametrize("sentence", TAMPERINGS)
async def test_the_channel_freezes_and_goes_on_serving_when(sentence: str, rig: Rig) -> None:
    tamper, complaint = TAMPERINGS[sentence]
    await opened(rig, promotions=1)
    async with rig.engine() as engine:
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        tamper(rig)
        engine.queue.add("support")
        await eventually(lambda: rig.condition("LogValid") == ("False", "LogInvalid"), "LogInvalid")
        message = next(c["message"] for c in rig.channel()["status"]["conditions"] if c["type"] == "LogValid")
        assert complaint in message
        assert rig.serves("support-000001")
        await eventually(lambda: rig.metric("log_valid", channel="support") == 0, "the metric says so")


async def test_an_entry_beyond_the_external_head_that_is_signed_and_chained_is_copied_at_start(rig: Rig) -> None:
    rig.add_channel()
    rig.append(opening())
    rig.append(promotion(1, "adapter 1"), exported=False)
    async with rig.engine():
        await eventually(lambda: rig.exported == [0, 1], "copied")


# ---- documents and keys that are not what they were


def _edit_data(rig: Rig, name: str, **data: str | None) -> None:
    known = rig.cluster.objects[CONFIGMAPS.plural, name]
    kept = {key: value for key, value in {**known["data"], **data}.items() if value is not None}
    metadata = {**known["metadata"], "labels": {}}
    rig.cluster.put(CONFIGMAPS, {**known, "metadata": metadata, "data": kept})


def _replay(rig: Rig) -> None:
    assert rig.committed is not None
    routes = (rig.committed.document.routes[0].model_copy(update={"adapter": None, "entry": "support-000000"}),)
    old = rig.committed.document.model_copy(update={"revision": (0, 0), "adapters": (), "routes": routes})
    _edit_data(rig, POOL_CONFIGMAP, support=rig.key.sign_document(old).canonical().decode())


def _sign_as_another(rig: Rig) -> None:
    assert rig.committed is not None
    forger = signer(rig.root, "forger")
    document = rig.committed.document.model_copy(update={"key_id": forger.key_id, "revision": (9, 9)})
    _edit_data(rig, POOL_CONFIGMAP, support=forger.sign_document(document).canonical().decode())


FORGERIES: dict[str, tuple[Callable[[Rig], None], str]] = {
    "the document is no document": (lambda rig: _edit_data(rig, POOL_CONFIGMAP, support="hello"), "DocumentForged"),
    "the document is signed by another key": (_sign_as_another, "DocumentForged"),
    "an older document is put back": (_replay, "DocumentForged"),
    "the document is removed": (lambda rig: _edit_data(rig, POOL_CONFIGMAP, support=None), "DocumentForged"),
    "the pool's ConfigMap is deleted": (lambda rig: rig.cluster.remove(CONFIGMAPS, POOL_CONFIGMAP), "DocumentForged"),
    "the certificate is replaced": (lambda rig: _edit_data(rig, KEYS_CONFIGMAP, **{"tls.crt": "another"}), "KeysForged"),
    "the ConfigMap of keys is deleted": (lambda rig: rig.cluster.remove(CONFIGMAPS, KEYS_CONFIGMAP), "KeysForged"),
}


def _configmaps(rig: Rig) -> dict[str, Any]:
    return {name: thing["data"] for (plural, name), thing in rig.cluster.objects.items() if plural == CONFIGMAPS.plural}


@pytest.mark.parametrize("sentence", FORGERIES)
async def test_it_is_restored_at_once_and_told_and_no_pod_goes_back_when(sentence: str, rig: Rig) -> None:
    forge, reason = FORGERIES[sentence]
    await opened(rig, promotions=1)
    async with rig.engine():
        await eventually(lambda: rig.condition("Ready") == ("True", "AsExpected"), "Ready")
        sound, held = _configmaps(rig), [pod.held for pod in rig.pods.pods.values()]
        for _ in range(2):
            forge(rig)
            await eventually(lambda: _configmaps(rig) == sound, "restored")
        await eventually(lambda: rig.condition("Untampered") == ("False", reason), "told")
    assert [pod.held for pod in rig.pods.pods.values()] == held
    assert rig.serves("support-000001")


@pytest.mark.parametrize("sentence", FORGERIES)
async def test_a_rollback_goes_on_when(sentence: str, rig: Rig) -> None:
    await opened(rig, promotions=1)
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        FORGERIES[sentence][0](rig)
        rig.patch_channel(pin=PIN)
        await eventually(lambda: _is_sound(rig) and rig.serves("support-000002"), "the rollback serves")


def _is_sound(rig: Rig) -> bool:
    return str(_configmaps(rig).get(POOL_CONFIGMAP, {}).get("support", "hello")) != "hello"


# ---- kills


async def _promote_then_pin(rig: Rig) -> None:
    await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
    rig.patch_channel(pin=PIN)
    await eventually(lambda: rig.serves("support-000002"), "the rollback serves")


@pytest.mark.parametrize("calls", range(1, 40, 2))
async def test_an_operator_killed_at_any_call_to_the_api_server_leaves_what_the_next_one_finishes(calls: int, rig: Rig) -> None:
    await opened(rig, promotions=1)
    left, called, dead = calls, rig.cluster._called, asyncio.Event()

    async def counted(verb: str, resource: Any, what: str) -> None:
        nonlocal left
        await called(verb, resource, what)
        left -= 1
        if left <= 0 and verb != "list":
            dead.set()
            await asyncio.Event().wait()

    async with rig.engine():
        rig.cluster._called = counted  # type: ignore[method-assign]
        story = asyncio.create_task(_promote_then_pin(rig))
        await asyncio.wait({story, asyncio.create_task(dead.wait())}, return_when=asyncio.FIRST_COMPLETED)
        story.cancel()
    rig.cluster._called = called  # type: ignore[method-assign]
    async with rig.engine():
        rig.patch_channel(pin=PIN)
        await eventually(lambda: rig.serves("support-000002"), "the rollback serves")
        await eventually(lambda: rig.exported == [0, 1, 2], "everything is copied")
    assert rig.actions == ["Open", "Promote", "Rollback"]


# ---- facts that change behind the operator's back


async def test_a_commit_that_meets_another_channels_commit_is_tried_again(rig: Rig) -> None:
    await opened(rig)
    apply = rig.cluster.apply
    met = False

    async def crossed(resource: Any, body: Any, manager: str, subresource: str = "") -> KubeObject:
        nonlocal met
        if resource is CONFIGMAPS and not met:
            met = True
            known = rig.cluster.objects[CONFIGMAPS.plural, POOL_CONFIGMAP]
            rig.cluster.put(CONFIGMAPS, {**known, "data": {**known["data"], "other": "theirs"}})
        return await apply(resource, body, manager, subresource)

    rig.cluster.apply = crossed  # type: ignore[method-assign]
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000000"), "the base serves")
        rig.append(promotion(1, "adapter 1"))
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
    assert met
    assert rig.cluster.objects[CONFIGMAPS.plural, POOL_CONFIGMAP]["data"]["other"] == "theirs"


async def test_a_rollback_serves_however_often_somebody_annotates_the_pools_configmap(rig: Rig) -> None:
    await opened(rig, promotions=1)
    report = rig.pods.report

    async def slow(pod: PodAddress, channel: str, seconds: float) -> PodReport:
        await asyncio.sleep(0.03)
        return await report(pod, channel, seconds)

    async def annotate() -> None:
        for number in itertools.count():
            await rig.cluster.merge(CONFIGMAPS, POOL_CONFIGMAP, {"metadata": {"annotations": {"n": str(number)}}})
            await asyncio.sleep(0.005)

    async with rig.engine():
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        rig.pods.report = slow  # type: ignore[method-assign]
        annotating = asyncio.create_task(annotate())
        await asyncio.sleep(0.1)
        rig.patch_channel(pin=PIN)
        await eventually(lambda: rig.serves("support-000002"), "the rollback serves")
        annotating.cancel()
    assert rig.metric("reconcile_errors_total", channel="support") == 0


GONE: dict[str, Callable[[Rig], object]] = {
    "that is deleted": lambda rig: rig.cluster.remove(ADAPTER_CHANNELS, "support"),
    "whose spec cannot be read": lambda rig: rig.patch_channel(alias="Not An Alias"),
}


@pytest.mark.parametrize("sentence", GONE)
async def test_nobody_asks_the_pods_of_a_channel(sentence: str, rig: Rig) -> None:
    await opened(rig)
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000000") and _watching())
        GONE[sentence](rig)
        await eventually(lambda: not _watching(), "its pods are left alone")


def _watching() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("watch support")]


async def test_a_deletion_that_no_watch_told_is_noticed_by_the_resync(rig: Rig) -> None:
    await opened(rig)
    async with rig.engine() as engine:
        await eventually(lambda: rig.serves("support-000000"), "the base serves")
        del rig.cluster.objects[ADAPTER_CHANNELS.plural, "support"]
        rig.cluster._version += 1
        await engine.resync()
        assert engine.cache.get(ADAPTER_CHANNELS, "support") is None


async def test_a_candidate_of_a_channel_that_does_not_exist_is_told_so(rig: Rig) -> None:
    spec = {"channel": "nowhere", "artifact": {"uri": "file:///a", "digest": world.BASE_DIGEST}}
    async with rig.engine():
        rig.cluster.put(ADAPTER_CANDIDATES, {"metadata": {"name": "c1"}, "spec": spec})
        await eventually(lambda: rig.condition("Decided", ADAPTER_CANDIDATES.plural, "c1"), "the candidate has a condition")


async def test_a_restarted_pod_gets_the_committed_document_again(rig: Rig) -> None:
    await opened(rig)
    pod = rig.pods.pods["10.0.0.2"]
    async with rig.engine():
        await eventually(lambda: rig.condition("Ready") == ("True", "AsExpected"), "Ready")
        pod.restart()
        await eventually(lambda: rig.serves("support-000000") and pod.held is not None, "the document is back")


async def test_events_tell_what_happened(rig: Rig) -> None:
    await opened(rig, promotions=1)
    async with rig.engine():
        await eventually(lambda: rig.serves("support-000001"), "the promotion serves")
        rig.patch_channel(pin=PIN)
        reasons = lambda: {thing["reason"] for (plural, _), thing in rig.cluster.objects.items() if plural == EVENTS.plural}  # noqa: E731
        await eventually(lambda: {"Live", "RolledBack"} <= reasons(), "events")


async def test_a_gather_of_two_pods_takes_less_than_a_tenth_of_a_second(rig: Rig) -> None:
    await opened(rig, promotions=40)
    async with rig.engine() as engine:
        await eventually(lambda: rig.serves("support-000040"), "the promotion serves")
        times = []
        for _ in range(10):
            started = time.perf_counter()
            await engine._gatherer.gather("support")
            times.append(time.perf_counter() - started)
        assert sorted(times)[5] < 0.1
