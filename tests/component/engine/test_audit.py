"""The operator's audit: soon after the start, then hourly, a log is verified whole; what it finds holds the channel until mended."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from gatevalve.contracts.errors import ClusterError, StoreError
from gatevalve.contracts.reasons import Action, EntryReason, Verdict
from gatevalve.decide import entries
from gatevalve.decide.channel import decide
from gatevalve.decide.log import fold
from gatevalve.decide.plan import Plan
from gatevalve.decide.view import LogView
from gatevalve.engine import audit
from gatevalve.engine.audit import AUDIT_AGAIN_SECONDS, AUDIT_SECONDS, FIRST_AUDIT_SECONDS
from gatevalve.engine.engine import Engine, Ports
from gatevalve.io.clock import SystemClock
from gatevalve.io.ports import ADAPTER_CHANNELS, ADAPTER_RELEASES, GATE_POLICIES, Evidence
from gatevalve.io.store import Area, FileLog, SealedEvidence
from support import world
from support.audited import ACCEPTED, ACTIONS, NOT_BETTER, Life
from support.engine_world import START, FakeCluster, FakePods, VirtualClock, settings

pytestmark = pytest.mark.component

PATIENCE = 20.0


class FlakySealed(SealedEvidence):
    """The real sealed area, which may not answer."""

    broken = False

    async def recorded(self, channel_uid: str, test_entry: str, report_digest: str) -> Evidence:
        if self.broken:
            raise StoreError("the bucket does not answer")
        return await super().recorded(channel_uid, test_entry, report_digest)


class FlakyCopies(FileLog):
    """The real external log, which may not answer; `meanwhile` happens just before it is listed."""

    broken = False
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def sequences(self, channel_uid: str) -> frozenset[int]:
        if self.broken:
            raise StoreError("the bucket does not answer")
        self.meanwhile()
        return await super().sequences(channel_uid)


class Sleeps(VirtualClock):
    """A virtual clock that remembers how long it was asked to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await super().sleep(seconds)


@dataclass
class Scene:
    """The auditor of an operator on the log of a whole life, with time that stands still."""

    life: Life
    cluster: FakeCluster
    clock: Sleeps
    copies: FlakyCopies
    sealed: FlakySealed
    engine: Engine
    registry: CollectorRegistry

    async def next_audit(self) -> float:
        """Let the time pass that the auditor sleeps, and the audit run to its end; how long it then sleeps."""
        asked = len(self.clock.asked)
        await self.clock.advance(self.clock.asked[-1])
        deadline = time.monotonic() + PATIENCE
        while len(self.clock.asked) == asked:
            assert time.monotonic() < deadline, "the audit did not end"
            await asyncio.sleep(0.01)
        return self.clock.asked[-1]

    async def log(self) -> LogView:
        return (await self.engine._gatherer.gather("support")).log

    @property
    def verified(self) -> float | None:
        """Seconds after the start of the last whole verification."""
        found = self.registry.get_sample_value("gatevalve_log_verified_timestamp_seconds", {"channel": "support"})
        return found - START.timestamp() if found else None

    def publish(self) -> None:
        """The log, as it now is in `life`, into the API server."""
        for thing in self.life.things:
            self.cluster.put(ADAPTER_RELEASES, thing)


def cluster_of(life: Life) -> FakeCluster:
    cluster = FakeCluster()
    cluster.put(GATE_POLICIES, {"metadata": {"name": "support-v1"}, "spec": world.policy().wire()})
    cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support", "uid": life.uid}, "spec": world.channel_spec().wire()})
    return cluster


@pytest.fixture
async def scene(life: Life) -> AsyncIterator[Scene]:
    cluster, clock, registry = cluster_of(life), Sleeps(), CollectorRegistry()
    copies, sealed = FlakyCopies(Area(f"file://{life.root}/log")), FlakySealed(Area(f"file://{life.root}/sealed"))
    ports = Ports(cluster, FakePods(life.key, clock), copies, sealed, life.key, clock)
    engine = Engine(ports, settings(life.key.key_id), lambda view: Plan(), registry)
    scene = Scene(life, cluster, clock, copies, sealed, engine, registry)
    scene.publish()
    await engine.resync()
    task = asyncio.create_task(engine._auditor.run())
    await asyncio.sleep(0)
    yield scene
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_sound_log_is_verified_soon_after_the_start_and_then_hourly(scene: Scene) -> None:
    assert await scene.next_audit() == AUDIT_SECONDS
    assert scene.verified == FIRST_AUDIT_SECONDS <= 60
    assert await scene.next_audit() == AUDIT_SECONDS
    assert scene.verified == FIRST_AUDIT_SECONDS + 3600
    assert (await scene.log()).problem is None


def _pairs(scene: Scene) -> None:
    pairs = scene.life.evidence(ACCEPTED) / "pairs.jsonl.gz"
    pairs.write_bytes(gzip.compress(gzip.decompress(pairs.read_bytes()) + b"\n"))


def _evidence_gone(scene: Scene) -> None:
    shutil.rmtree(scene.life.evidence(NOT_BETTER))


def _signed_anew(scene: Scene) -> None:
    scene.life.resign(3, lambda spec: spec.model_copy(update={"candidate": None}))
    scene.publish()


def _restored(scene: Scene) -> None:
    """etcd set back to an earlier copy: the API server lacks an entry, and no watch has told of it."""
    del scene.cluster.objects[ADAPTER_RELEASES.plural, f"support-{len(ACTIONS) - 1:06d}"]
    scene.cluster._version = 1


def _copy_edited(scene: Scene) -> None:
    scene.life.copy(1).write_bytes(b"{}")


def _copy_linked(scene: Scene) -> None:
    scene.life.copy(1).rename(scene.life.root / "elsewhere")
    scene.life.copy(1).symlink_to(scene.life.root / "elsewhere")


SAID, BROKEN = False, True

TAMPERED: dict[str, tuple[Callable[[Scene], None], bool, str]] = {
    "evidence was edited after its verdict": (_pairs, SAID, "support-000002 rests on evidence that is not what it was"),
    "evidence was swept away": (_evidence_gone, SAID, "support-000005 rests on evidence that is gone"),
    "a log was signed anew by somebody who has the key": (_signed_anew, SAID, "support-000003: it promotes what was never accepted"),
    "the API server was set back": (_restored, BROKEN, "beyond the API server's log of 11 entries"),
    "an external copy in the middle was edited": (_copy_edited, BROKEN, "000001.json differs"),
    "an external copy was replaced by a link": (_copy_linked, BROKEN, "000001.json differs"),
}
"""What was done; whether it breaks the chain, so that nothing can follow, or is a finding in what entries say; and what is told."""


@pytest.mark.parametrize("sentence", TAMPERED)
async def test_the_log_is_invalid_once_it_was_audited_when(sentence: str, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[str] = []
    monkeypatch.setattr(scene.engine.queue, "add", due.append)
    tamper, broken, complaint = TAMPERED[sentence]
    await scene.next_audit()
    verified = scene.verified
    tamper(scene)
    due.clear()
    assert await scene.next_audit() == AUDIT_AGAIN_SECONDS
    log = await scene.log()
    assert complaint in ((log.problem if broken else log.finding) or "")
    assert None in (log.problem, log.finding)
    assert scene.verified == verified
    assert due == ["support"]


async def test_an_api_server_that_was_set_back_is_noticed_by_the_next_reconcile(scene: Scene) -> None:
    assert (await scene.log()).problem is None
    _restored(scene)
    log = await scene.log()
    assert "beyond the API server's log of 11 entries" in (log.problem or "")
    assert len(log.entries) == 11


async def test_a_log_that_was_mended_is_valid_again_after_the_next_audit_minutes_later(scene: Scene) -> None:
    kept = scene.life.root / "kept"
    shutil.copytree(scene.life.evidence(NOT_BETTER), kept)
    _evidence_gone(scene)
    await scene.next_audit()
    assert (await scene.log()).finding
    shutil.copytree(kept, scene.life.evidence(NOT_BETTER))
    assert await scene.next_audit() == AUDIT_SECONDS
    assert (await scene.log()).finding is None
    assert scene.verified == FIRST_AUDIT_SECONDS + AUDIT_AGAIN_SECONDS


async def test_a_recreated_channel_may_adopt_a_log_whose_evidence_is_lost(scene: Scene) -> None:
    _evidence_gone(scene)
    await scene.next_audit()
    scene.cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support", "uid": "new"}, "spec": world.channel_spec().wire()})
    await scene.engine.resync()
    assert await scene.next_audit() == AUDIT_SECONDS
    assert (await scene.log()).finding is None


def _sealed_broken(scene: Scene) -> None:
    scene.sealed.broken = True


def _sealed_unmounted(scene: Scene) -> None:
    (scene.life.root / "sealed").rename(scene.life.root / "away")


def _copies_broken(scene: Scene) -> None:
    scene.copies.broken = True


def _cluster_down(scene: Scene) -> None:
    scene.cluster.fail("list", ADAPTER_RELEASES.plural, ClusterError("no answer"))


UNREADABLE: dict[str, Callable[[Scene], None]] = {
    "the sealed area does not answer": _sealed_broken,
    "the sealed area is not mounted": _sealed_unmounted,
    "the external log does not answer": _copies_broken,
    "the API server does not answer": _cluster_down,
}


@pytest.mark.parametrize("sentence", UNREADABLE)
async def test_it_is_no_verdict_on_the_log_and_soon_tried_again_that(sentence: str, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    UNREADABLE[sentence](scene)
    assert await scene.next_audit() == AUDIT_AGAIN_SECONDS
    assert scene.verified is None
    assert ((await scene.log()).problem, (await scene.log()).finding) == (None, None)
    assert "support" in caplog.text


async def test_what_cannot_be_read_does_not_clear_what_was_found_before(scene: Scene) -> None:
    _evidence_gone(scene)
    await scene.next_audit()
    _sealed_broken(scene)
    await scene.next_audit()
    assert "gone" in ((await scene.log()).finding or "")


async def test_an_entry_that_is_written_while_the_external_log_is_read_is_no_problem(scene: Scene) -> None:
    head = scene.cluster.objects.pop((ADAPTER_RELEASES.plural, f"support-{len(ACTIONS) - 1:06d}"))
    scene.life.copy(len(ACTIONS) - 1).rename(scene.life.root / "later")

    def write() -> None:
        scene.cluster.put(ADAPTER_RELEASES, head)
        (scene.life.root / "later").rename(scene.life.copy(len(ACTIONS) - 1))

    scene.copies.meanwhile = write
    assert await scene.next_audit() == AUDIT_SECONDS


async def test_an_audit_that_fails_for_a_reason_nobody_thought_of_is_logged_and_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "log_problems", lambda state: 1 // 0)
    assert await scene.next_audit() == AUDIT_AGAIN_SECONDS
    assert "ZeroDivisionError" in caplog.text
    assert scene.verified is None


async def test_after_a_finding_a_way_back_is_appended_and_nothing_else(scene: Scene) -> None:
    _evidence_gone(scene)
    await scene.next_audit()
    view = await scene.engine._gatherer.gather("support")
    state, appender = fold(view.log), scene.engine._executor.appender
    test = next(spec for spec in state.specs if spec.action is Action.TEST)
    reject = entries.reject_entry(view, state, test, Verdict.INCONCLUSIVE, EntryReason.STALE, "", None)
    with pytest.raises(ClusterError, match=r"nothing but a way back is appended to a log that does not stand its audit: support-000005"):
        await appender.append(view, reject)
    back = await appender.append(view, entries.rollback_entry(view, state, state.serving[0], EntryReason.PINNED, "complaints", "ann"))
    log = await scene.log()
    assert (log.entries[-1].spec, log.problem) == (back, None)
    assert log.finding is not None


async def test_the_running_operator_holds_the_channel_on_what_its_audit_finds(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FIRST_AUDIT_SECONDS", 0.0)
    shutil.rmtree(life.evidence(ACCEPTED))
    cluster, clock = cluster_of(life), SystemClock()
    for thing in life.things:
        cluster.put(ADAPTER_RELEASES, thing)
    sealed, copies = SealedEvidence(Area(f"file://{life.root}/sealed")), FileLog(Area(f"file://{life.root}/log"))
    engine = Engine(
        Ports(cluster, FakePods(life.key, clock), copies, sealed, life.key, clock), settings(life.key.key_id), decide, CollectorRegistry()
    )
    cluster.watchers.append(engine.saw)
    await engine.resync()
    task = asyncio.create_task(engine.run())
    try:
        await _eventually(lambda: _log_valid(cluster) == ("False", "LogInvalid"))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def _log_valid(cluster: FakeCluster) -> tuple[str, str] | None:
    conditions = cluster.objects[ADAPTER_CHANNELS.plural, "support"].get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "LogValid"), None)
