"""Tampering: each thing that somebody else changes or tries is told once, forgotten after an hour, and nothing that serves waits for it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest

from gatevalve.contracts.kinds import AdapterChannelStatus, Tampering
from gatevalve.contracts.serving import RefusedRequest, SignedDocument
from gatevalve.decide.channel import decide
from gatevalve.decide.conditions import timestamp
from gatevalve.decide.plan import RestoreKeys
from support.world import SimPod, World, digest, entry


@cache
def _live() -> World:
    world = World(pods=[SimPod("pod-a"), SimPod("pod-b")])
    world.run()
    world.apply("monday")
    world.run()
    assert world.answering() == {entry(3)}
    return world


def live() -> World:
    """A world whose first promotion serves from two pods."""
    return deepcopy(_live())


def steps(world: World, count: int = 5) -> None:
    """A few reconciles without the time that `run` lets pass."""
    for _ in range(count):
        world.reconcile()
        world._tick()


def earlier(world: World) -> SignedDocument:
    """The document of the time when the base served, signed by the operator."""
    assert world.committed is not None
    document = world.committed.document
    routes = (document.routes[0].model_copy(update={"adapter": None, "entry": entry(0)}),)
    old = document.model_copy(update={"revision": (0, 0), "adapters": (), "routes": routes})
    return SignedDocument(document=old, signature="signed")


def older_step(world: World) -> SignedDocument:
    """The document that serves, in an older revision of the same entry."""
    assert world.committed is not None
    document = world.committed.document
    return SignedDocument(document=document.model_copy(update={"revision": (document.revision[0], 0)}), signature="signed")


def foreign(world: World) -> SignedDocument:
    """The document that serves, signed for another pool."""
    assert world.committed is not None
    return SignedDocument(document=world.committed.document.model_copy(update={"pool": "other"}), signature="signed")


def attempt(world: World, path: str = "POST /v1/load_lora_adapter", pod: int = 0) -> None:
    """A request that a pod refuses now."""
    world.pods[pod].refused = RefusedRequest(at=timestamp(world.now), message=f"{path} tried to load an adapter")


def swap(world: World) -> None:
    world.pods[1].forged.add(digest("adapter of uid-monday"))


def hold_foreign(world: World) -> None:
    world.pods[0].foreign = ("evil",)


def forge_status(world: World) -> None:
    world.forge(world.apply("liar"), state="Promoted")


ATTACKS: dict[str, tuple[Callable[[World], object], str, str]] = {
    "the document is edited": (lambda world: world.replay(None, "its signature does not verify"), "DocumentForged", "does not verify"),
    "the document's key is removed": (lambda world: world.replay(None), "DocumentForged", "key support is gone"),
    "an older document is put back": (lambda world: world.replay(earlier(world)), "DocumentForged", "revision 0.0 again"),
    "an older step is put back": (lambda world: world.replay(older_step(world)), "DocumentForged", "revision 3.0 again"),
    "another pool's document is put there": (lambda world: world.replay(foreign(world)), "DocumentForged", "of pool other"),
    "the keys are edited": (lambda world: setattr(world, "keys_problem", "key tls.crt is gone"), "KeysForged", "tls.crt is gone"),
    "an adapter's bytes are swapped in the store": (swap, "AdapterForged", "pod-b refused it"),
    "an engine holds an adapter of nobody": (hold_foreign, "UnauthorizedAdapter", "adapter evil in an engine: no document put it on pod-a"),
    "a request goes round the alias": (attempt, "UnauthorizedRequest", "pod-a at 2026-"),
    "a candidate's status is written by hand": (forge_status, "StatusForged", "status Promoted of candidate liar"),
}


@pytest.mark.parametrize("sentence", ATTACKS)
def test_it_is_told_once_and_the_alias_stays_when(sentence: str) -> None:
    attack, reason, words = ATTACKS[sentence]
    world = live()
    attack(world)
    steps(world)
    assert world.condition("Untampered") == ("False", reason)
    assert world.channel_status.tampering is not None
    assert words in world.channel_status.tampering.message
    assert [reason in event and words in event for event in world.told("Tampered")] == [True]
    assert world.answering() == {entry(3)}


@pytest.mark.parametrize("sentence", ATTACKS)
def test_a_way_back_goes_at_once_although(sentence: str) -> None:
    world = live()
    ATTACKS[sentence][0](world)
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    steps(world, 3)
    assert world.answering() == {entry(world.log[-1].spec.sequence)}
    assert world.story()[-1] == "Rollback:Pinned"


@pytest.mark.parametrize("sentence", [name for name in ATTACKS if "document" in name or "older" in name])
def test_the_document_is_restored_and_no_pod_goes_back_when(sentence: str) -> None:
    world = live()
    serving = world.committed.document if world.committed else None
    assert serving is not None
    ATTACKS[sentence][0](world)
    steps(world)
    assert world.committed is not None
    restored = world.committed.document
    assert restored.model_copy(update={"revision": serving.revision}) == serving
    assert tuple(restored.revision) >= tuple(serving.revision)
    assert [pod.document for pod in world.pods] == [restored, restored]


def test_what_nobody_touched_is_untampered() -> None:
    world = live()
    assert world.condition("Untampered") == ("True", "AsExpected")
    assert world.told("Tampered") == []


def test_a_document_that_is_lost_while_no_pod_answers_is_written_in_a_revision_that_pods_take() -> None:
    world = live()
    newest = world.pods[0].document
    assert newest is not None
    for pod in world.pods:
        pod.reachable = False
    world.replay(None)
    steps(world)
    for pod in world.pods:
        pod.reachable = True
        pod.document = newest.model_copy(update={"revision": (3, 0), "drain_seconds": 7})
    steps(world)
    assert world.committed is not None
    assert world.committed.document.revision == (3, 1)
    assert {pod.document for pod in world.pods} == {world.committed.document}


def test_while_an_adapter_is_preloaded_the_document_that_leads_to_the_one_before_is_restored() -> None:
    world = World(pods=[SimPod("pod-a", fails=True)])
    world.run()
    world.apply("monday")
    while world.story()[-1] != "Promote:GatePassed":
        steps(world, 1)
    steps(world, 2)
    world.replay(None, "no JSON")
    steps(world)
    assert world.committed is not None
    assert [route.entry for route in world.committed.document.routes] == [entry(0)]
    assert world.committed.document == world.pods[0].document


def test_a_rollout_is_no_tampering() -> None:
    world = live()
    world.apply("tuesday")
    world.run()
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    assert world.told("Tampered") == []


def test_keys_that_are_edited_during_a_way_back_are_told_all_the_same() -> None:
    world = live()
    world.keys_problem = "key tls.crt is gone"
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    steps(world)
    assert (world.tampering(), world.answering()) == ("KeysForged", {entry(world.log[-1].spec.sequence)})


# ---- memory


def test_an_hour_after_the_last_finding_all_is_well_again() -> None:
    world = live()
    world.replay(None)
    steps(world)
    world.now += timedelta(minutes=58)
    steps(world, 2)
    assert world.condition("Untampered")[0] == "False"
    world.now += timedelta(minutes=3)
    steps(world, 2)
    assert world.condition("Untampered") == ("True", "AsExpected")
    assert world.tampering() == "DocumentForged"


def test_a_finding_that_lasts_is_told_once_and_forgotten_an_hour_after_its_end() -> None:
    world = live()
    hold_foreign(world)
    for _ in range(40):
        steps(world, 1)
        world.now += timedelta(minutes=5)
    assert world.condition("Untampered") == ("False", "UnauthorizedAdapter")
    assert len(world.told("Tampered")) == 1
    world.pods[0].foreign = ()
    world.now += timedelta(minutes=40)
    steps(world, 1)
    assert world.condition("Untampered")[0] == "False"
    world.now += timedelta(minutes=30)
    steps(world, 1)
    assert world.condition("Untampered")[0] == "True"


def test_a_finding_that_comes_back_after_it_was_forgotten_is_told_again() -> None:
    world = live()
    hold_foreign(world)
    steps(world)
    world.pods[0].foreign = ()
    world.now += timedelta(minutes=90)
    steps(world)
    hold_foreign(world)
    steps(world)
    assert len(world.told("Tampered")) == 2


def test_two_findings_that_last_do_not_take_turns() -> None:
    world = live()
    hold_foreign(world)
    steps(world)
    swap(world)
    steps(world)
    world.pods[0].foreign = ("evil", "worse")
    steps(world, 20)
    assert [event.split(": ")[1] for event in world.told("Tampered")] == ["UnauthorizedAdapter", "AdapterForged", "UnauthorizedAdapter"]
    assert not decide(world.view()).statuses


def test_a_pod_that_answers_now_and_then_does_not_repeat_what_it_holds() -> None:
    world = live()
    for pod in world.pods:
        pod.foreign = ("evil",)
    for count in range(10):
        world.pods[0].reachable = count % 2 == 0
        steps(world, 1)
    assert len(world.told("Tampered")) == 1


def test_each_edit_of_the_document_is_told() -> None:
    world = live()
    for _ in range(3):
        world.replay(None, "no JSON")
        steps(world)
    assert len(world.told("Tampered")) == 3


def test_whoever_tries_every_route_does_not_fill_the_events() -> None:
    world = live()
    for count in range(50):
        attempt(world, f"POST /route-{count}")
        steps(world, 1)
    assert len(world.told("Tampered")) == 1
    world.now += timedelta(minutes=2)
    attempt(world, "POST /one-more")
    steps(world, 1)
    assert len(world.told("Tampered")) == 2


def test_a_request_that_was_refused_long_ago_is_no_news_to_a_new_channel() -> None:
    world = live()
    attempt(world)
    world.now += timedelta(hours=2)
    steps(world)
    assert world.told("Tampered") == []


@pytest.mark.parametrize(("reason", "hours"), [("Whatever", 0), ("KeysForged", 2)], ids=["no reason of ours", "a time to come"])
def test_a_tampering_that_is_itself_forged_counts_as_none(reason: str, hours: int) -> None:
    world = live()
    forged = Tampering(reason=reason, message="hello", at=timestamp(world.now + timedelta(hours=hours)))
    world.channel_status = world.channel_status.model_copy(update={"tampering": forged})
    steps(world)
    assert world.condition("Untampered") == ("True", "AsExpected")
    assert world.tampering() is None


def test_many_findings_fit_into_the_status() -> None:
    world = live()
    world.pods[0].foreign = tuple(f"evil-{index:02d}-{'x' * 200}" for index in range(16))
    steps(world)
    AdapterChannelStatus.parse(world.channel_status.wire())
    assert len(world.told("Tampered")) == 5


# ---- evidence and statuses


def with_open_test(world: World, name: str) -> str:
    """A candidate whose test is open."""
    uid = world.apply(name)
    while world.story()[-1] != "Test:TestOpened":
        steps(world, 1)
    return uid


def test_forged_evidence_is_told_before_its_verdict_takes_the_trace_away() -> None:
    world = live()
    uid = with_open_test(world, "tuesday")
    world.evidence_problem, world.evidence_forged = "report.json has another digest", True
    while not world.told("Tampered"):
        steps(world, 1)
        assert world.story()[-1] == "Test:TestOpened"
    steps(world)
    assert (world.state(uid), world.story()[-1], world.tampering()) == ("Inconclusive", "Reject:EvidenceUnsound", "EvidenceForged")


def test_evidence_that_merely_does_not_parse_is_no_tampering() -> None:
    world = live()
    uid = with_open_test(world, "tuesday")
    world.evidence_problem = "report.json: suites: field required"
    world.run()
    assert (world.state(uid), world.tampering()) == ("Inconclusive", None)


@pytest.mark.parametrize("field", ["incumbentDigest", "anchorDigest"])
def test_an_evaluation_that_finds_another_arm_unsound_is_told(field: str) -> None:
    world = live()
    with_open_test(world, "tuesday")
    world.script = lambda step, attempt: 10 if step == "evaluate" else 0
    steps(world, 2)
    job = next(job for job in world.jobs.values() if job.view.step == "evaluate" and job.view.exit_code == 10)
    assert job.view.termination is not None
    said = job.view.termination.model_copy(update={"message": f"{field}: the published adapter is not sound (digest)"})
    job.view = replace(job.view, termination=said)
    steps(world)
    assert (world.tampering(), world.answering()) == ("AdapterForged", {entry(3)})


def test_of_a_broken_log_it_is_not_said_that_statuses_are_forged() -> None:
    world = live()
    world.log_problem = "support-000002: its digest is wrong"
    del world.log[2:]
    steps(world)
    assert (world.state("uid-monday"), world.told("Tampered")) == ("Promoted", [])


def test_keys_are_restored_whatever_else_is_wrong() -> None:
    world = live()
    world.log_problem, world.keys_problem = "support-000002: its digest is wrong", "it is gone"
    assert decide(world.view()).actions == (RestoreKeys(),)
    steps(world)
    assert (decide(world.view()).actions, world.tampering()) == ((), "KeysForged")
