"""Muting: whoever can make noise (a request, a loud pod) hides nothing graver, neither beforehand nor at the time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from gatevalve.contracts.jobs import UNMARKED
from gatevalve.contracts.kinds import AdapterChannelStatus, KnownTampering, Tampering
from gatevalve.contracts.serving import AdapterReport, AdapterState, PodReport, RefusedRequest
from gatevalve.decide.conditions import timestamp
from gatevalve.decide.tampering import MOST_KNOWN, MOST_TOLD
from gatevalve_serving.bypass import Attempts, Bypass
from gatevalve_serving.progress import Progress
from support.world import SimPod, World, digest, entry
from unit.decide.test_tampering import ATTACKS, attempt, hold_foreign, live, steps, swap, with_open_test

GRAVER = {sentence: attack for sentence, attack in ATTACKS.items() if attack[1] != "UnauthorizedRequest"}


@dataclass
class LoudPod(SimPod):
    """A pod that says of adapters which nobody knows that their bytes were swapped."""

    def _report(self) -> PodReport:
        loud = [
            AdapterReport(name=f"n{index}", digest=digest(str(index)), state=AdapterState.FAILED, reason="DigestMismatch", message="m")
            for index in range(MOST_TOLD + 1)
        ]
        return super()._report().model_copy(update={"adapters": tuple(loud)})


def ask(world: World, path: str) -> None:
    """A request that a pod refuses now; the pod's own code words it."""
    attempts = Attempts(Progress(), 0.0)
    attempts.note(Bypass.ROUTE, "GET", path)
    assert attempts.newest is not None
    world.pods[0].refused = RefusedRequest(at=timestamp(world.now), message=attempts.newest.message)


def test_a_path_that_spells_what_will_be_found_mutes_nothing() -> None:
    world = live()
    with_open_test(world, "tuesday")
    test = entry(len(world.log) - 1)
    name = world.pods[1]._report().adapters[0].name
    ask(world, f"/adapters/evidence of {test}/adapter {name} in the store/")
    steps(world, 1)
    world.evidence_problem, world.evidence_forged = "report.json has another digest", True
    swap(world)
    steps(world)
    assert [event.split(": ")[1] for event in world.told("Tampered")] == ["UnauthorizedRequest", "AdapterForged", "EvidenceForged"]


@pytest.mark.parametrize("longer_first", [True, False])
def test_a_subject_that_is_part_of_a_known_one_is_told_all_the_same(longer_first: bool) -> None:
    world = live()
    for name in ("x-evil", "evil")[:: 1 if longer_first else -1]:
        world.pods[0].foreign = tuple(sorted({*world.pods[0].foreign, name}))
        steps(world)
    assert len(world.told("Tampered")) == 2


def test_two_subjects_that_begin_with_the_same_words_are_two() -> None:
    world = live()
    for ending in ("a", "b"):
        world.pods[0].foreign = (*world.pods[0].foreign, "x" * 150 + ending)
        steps(world)
    assert len(world.told("Tampered")) == 2


@pytest.mark.parametrize("sentence", GRAVER)
def test_a_refused_request_takes_out_of_sight_nothing_graver_that_lasts_or_is_remembered(sentence: str) -> None:
    attack, reason, words = GRAVER[sentence]
    world = live()
    attack(world)
    steps(world)
    for _ in range(3):
        world.now += timedelta(minutes=11)
        attempt(world)
        steps(world)
    assert world.channel_status.tampering is not None
    assert (world.condition("Untampered"), words in world.channel_status.tampering.message) == (("False", reason), True)
    assert len([event for event in world.told("Tampered") if "UnauthorizedRequest" in event]) == 3


def test_a_refused_request_is_in_sight_again_once_what_was_graver_is_forgotten() -> None:
    world = live()
    world.keys_problem = "it is gone"
    steps(world)
    world.now += timedelta(minutes=62)
    attempt(world)
    steps(world)
    assert world.condition("Untampered") == ("False", "UnauthorizedRequest")


def test_something_graver_than_a_refused_request_takes_its_place_at_once() -> None:
    world = live()
    attempt(world)
    steps(world)
    hold_foreign(world)
    steps(world)
    assert world.condition("Untampered") == ("False", "UnauthorizedAdapter")


def test_a_pod_whose_clock_goes_ahead_tells_one_request_a_minute_like_any_other() -> None:
    world = live()
    for count in range(30):
        message = f"GET /adapters/{count}: a route"
        world.pods[0].refused = RefusedRequest(at=timestamp(world.now + timedelta(hours=5, seconds=count)), message=message)
        steps(world, 1)
    assert len(world.told("Tampered")) == 1


def test_a_loud_pod_hides_no_other_kind_of_finding() -> None:
    world = live()
    world.pods.append(LoudPod("pod-0"))
    steps(world)
    uid = with_open_test(world, "tuesday")
    world.evidence_problem, world.evidence_forged = "report.json has another digest", True
    world.forge(world.apply("liar"), state="Promoted")
    hold_foreign(world)
    steps(world)
    told = [event.split(": ")[1] for event in world.told("Tampered")]
    assert {kind: told.count(kind) for kind in told} == {
        "AdapterForged": MOST_TOLD,
        "EvidenceForged": 1,
        "StatusForged": 1,
        "UnauthorizedAdapter": 1,
    }
    assert world.state(uid) == "Inconclusive"


def test_what_lasts_is_not_pushed_out_of_memory_by_what_comes_and_goes() -> None:
    world = live()
    hold_foreign(world)
    for _ in range(MOST_KNOWN + 10):
        world.replay(None, "no JSON")
        steps(world, 2)
    assert len([event for event in world.told("Tampered") if "UnauthorizedAdapter" in event]) == 1
    assert world.channel_status.tampering is not None
    assert len(world.channel_status.tampering.known) == MOST_KNOWN
    AdapterChannelStatus.parse(world.channel_status.wire())


@pytest.mark.parametrize(
    ("reason", "minutes"), [("Whatever", 0), ("UnauthorizedAdapter", 120)], ids=["no reason of ours", "a time to come"]
)
def test_memories_that_are_themselves_forged_count_as_none(reason: str, minutes: int) -> None:
    world = live()
    hold_foreign(world)
    steps(world)
    told = world.channel_status.tampering
    assert told is not None
    forged = KnownTampering(reason=reason, subject=told.known[0].subject, at=timestamp(world.now + timedelta(minutes=minutes)))
    said = Tampering(reason="KeysForged", message="hello", at=timestamp(world.now), known=(forged,))
    world.channel_status = world.channel_status.model_copy(update={"tampering": said})
    steps(world)
    assert world.tampering() == "UnauthorizedAdapter"
    assert world.channel_status.tampering is not None
    assert [known.reason for known in world.channel_status.tampering.known] == ["UnauthorizedAdapter"]


@pytest.mark.parametrize(
    "where", ["evidence/channel-1/support-000004/report.json", "rounds/channel-1/2/manifest.json", "journal-candidate.jsonl line 7"]
)
def test_what_an_evaluation_finds_planted_in_the_sealed_area_is_told(where: str) -> None:
    world = live()
    with_open_test(world, "tuesday")
    said = f"{where}: {UNMARKED}; find out who wrote to the sealed area; then open a new test, for items a new round"
    world.script = lambda step, attempt: 10 if step == "evaluate" else 0
    world.says = said
    steps(world)
    assert (world.tampering(), world.answering()) == ("EvidenceForged", {entry(3)})
    assert where in world.told("Tampered")[0]


def test_an_evaluation_that_misses_an_input_tells_of_no_tampering() -> None:
    world = live()
    with_open_test(world, "tuesday")
    world.script = lambda step, attempt: 10 if step == "evaluate" else 0
    steps(world)
    assert world.tampering() is None
