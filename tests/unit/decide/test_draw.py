"""The draw Job: no candidate costs anything before the round has its items; while it has not, everybody is told and nobody trains."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.jobs import UNMARKED, DrawInput
from gatevalve.contracts.names import ENV_JOB
from gatevalve.contracts.policy import GatePolicySpec, Items
from gatevalve.decide.audit import log_problems
from gatevalve.decide.log import LogState
from support.world import Killed, World, digest, entry, policy

SHORT = "suite target: 12 fresh conversations of the sealed side, 60 are needed; wait for traffic"
OPENED = ["Open:ChannelOpened"]
USED_UP = "the fixed Primary suite's budget is used up; name a policy with fresh items"


class Supply:
    """Draws are short of items until somebody sends traffic; every other step is done at once."""

    def __init__(self) -> None:
        self.short = True
        self.code = 16

    def __call__(self, step: str, attempt: int) -> int:
        return self.code if self.short and step == "draw" else 0


def waiting() -> tuple[World, str, Supply]:
    """A candidate whose round is short of items."""
    supply = Supply()
    world = World(script=supply)
    world.run()
    world.says = SHORT
    uid = world.apply("monday")
    pass_by(world, seconds=30)
    return world, uid, supply


def pass_by(world: World, seconds: int, step: int = 5) -> None:
    """Time goes by, and the operator looks whenever it would."""
    end = world.now + timedelta(seconds=seconds)
    while world.now < end:
        while world.reconcile():
            pass
        world._tick()
        world.now += timedelta(seconds=step - 1)


def steps(world: World) -> list[str]:
    return sorted({job.view.step for job in world.jobs.values()})


def draws(world: World) -> list[int]:
    return sorted(job.view.attempt for job in world.jobs.values() if job.view.step == "draw")


def decided(world: World, uid: str) -> tuple[str, str, str]:
    found = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    return found.status, found.reason, found.message


def told(world: World, name: str) -> DrawInput:
    container = world.jobs[name].manifest["spec"]["template"]["spec"]["containers"][0]
    return DrawInput.parse_json(next(item["value"] for item in container["env"] if item["name"] == ENV_JOB))


def test_the_first_job_of_a_candidate_draws_the_round_that_its_test_will_belong_to() -> None:
    world = World()
    world.run()
    world.apply("monday")
    while not world.jobs:
        world.reconcile()
    (name,) = world.jobs
    job = told(world, name)
    assert (name, job.round, job.policy_digest, job.policy) == ("monday-uid-mond-draw-1", 1, world.policy.digest_of(), world.policy)
    assert world.state("uid-monday") == "Drawing"
    world.run()
    assert [entry.spec.gate.round for entry in world.log if entry.spec.gate is not None] == [1, 1, 1]
    assert world.state("uid-monday") == "Promoted"


def test_a_candidate_waits_for_items_without_training_without_a_test_and_everybody_is_told_why() -> None:
    world, uid, _ = waiting()
    assert (steps(world), world.story(), world.state(uid)) == (["draw"], OPENED, "Drawing")
    assert decided(world, uid) == ("False", "ItemSupply", SHORT)
    assert world.condition("RoundWaiting") == ("True", "ItemSupply")
    assert next(c.message for c in world.channel_status.conditions if c.type == "RoundWaiting") == SHORT


def test_when_there_are_enough_items_it_goes_on_and_nothing_waits_any_more() -> None:
    world, uid, supply = waiting()
    pass_by(world, seconds=3600)
    supply.short = False
    pass_by(world, seconds=900)
    assert world.state(uid) == "Promoted"
    assert world.condition("RoundWaiting") == ("False", "AsExpected")
    assert world.told("StepFailed") == []


def test_while_the_next_attempt_counts_anew_the_last_count_stays_told() -> None:
    world, uid, _ = waiting()
    while all(job.view.finished for job in world.jobs.values()):
        world.now += timedelta(seconds=5)
        world.reconcile()
    world.reconcile()
    assert decided(world, uid) == ("False", "ItemSupply", SHORT)
    assert world.condition("RoundWaiting") == ("True", "ItemSupply")


def test_the_pauses_grow_to_five_minutes_and_of_the_attempts_only_the_newest_stay() -> None:
    world, _, _ = waiting()
    pass_by(world, seconds=2 * 3600)
    assert len(draws(world)) <= 2
    assert 20 <= max(draws(world)) <= 32


def test_attempts_are_not_limited_but_the_deadline_is_and_its_end_says_what_was_missing() -> None:
    world, uid, _ = waiting()
    pass_by(world, seconds=6 * 3600 + 60, step=60)
    status, reason, message = decided(world, uid)
    assert (world.state(uid), status, reason, world.story()) == ("Errored", "True", "DeadlineExceeded", OPENED)
    assert SHORT in message
    assert world.condition("RoundWaiting") == ("False", "AsExpected")


def test_the_next_candidate_waits_behind_it_and_both_get_their_test() -> None:
    world, first, supply = waiting()
    second = world.apply("tuesday")
    pass_by(world, seconds=60)
    assert decided(world, second)[1] == "BehindAnother"
    supply.short = False
    pass_by(world, seconds=900)
    assert [world.state(first), world.state(second)] == ["Promoted", "Promoted"]


@pytest.mark.parametrize("disturbance", ["job deleted", "all jobs deleted", "operator killed", "status wiped", "draw killed"])
def test_it_waits_and_goes_on_the_same_way_after(disturbance: str) -> None:
    world, uid, supply = waiting()
    if "deleted" in disturbance:
        for name in list(world.jobs)[:1] if disturbance == "job deleted" else list(world.jobs):
            del world.jobs[name]
    elif disturbance == "operator killed":
        world.kill_after = world.actions + 1
    elif disturbance == "status wiped":
        world.forge(uid, conditions=[], jobs=[], state="Queued")
    else:
        supply.code = 143
    with suppress(Killed):  # another operator takes over
        pass_by(world, seconds=60)
    supply.code = 16
    pass_by(world, seconds=600)
    assert (steps(world), world.story(), decided(world, uid)[1]) == (["draw"], OPENED, "ItemSupply")
    supply.short = False
    pass_by(world, seconds=900)
    assert (world.state(uid), world.story()) == ("Promoted", [*OPENED, "Test:TestOpened", "Accept:GatePassed", "Promote:GatePassed"])


@pytest.mark.parametrize("step", ["snapshot", "train", "evaluate"])
def test_a_result_of_the_draw_that_is_deleted_later_changes_nothing_but_another_draw(step: str) -> None:
    world = World()
    world.run()
    uid = world.apply("monday")
    while not any(job.view.step == step for job in world.jobs.values()):
        world.reconcile()
        world._tick()
    world.jobs = {name: job for name, job in world.jobs.items() if job.view.step != "draw"}
    world.run()
    assert (world.state(uid), world.story()[-1]) == ("Promoted", "Promote:GatePassed")


def test_another_policy_comes_into_force_while_it_trains_and_its_items_are_drawn_before_the_test_is_paid() -> None:
    world = World()
    world.run()
    uid = world.apply("monday")
    while not any(job.view.step == "train" for job in world.jobs.values()):
        world.reconcile()
        world._tick()
    world.policy = policy(min_effect=60)
    world.run()
    drawn = [(told(world, name).round, told(world, name).policy_digest) for name in world.jobs if "-draw-" in name]
    tested = next(entry.spec.gate for entry in world.log if entry.spec.action == "Test")
    assert tested is not None
    assert drawn[-1] == (tested.round, tested.policy_digest) == (2, world.policy.digest_of())
    assert world.state(uid) == "Promoted"


def test_a_policy_that_names_what_is_not_there_ends_the_candidate_before_anything_is_trained_or_paid() -> None:
    supply = Supply()
    world = World(script=supply)
    world.run()
    supply.code, world.says = 10, "task word-problms: is not installed in the trainer image"
    uid = world.apply("monday")
    world.run()
    assert (world.state(uid), steps(world), world.story()) == ("Errored", ["draw"], OPENED)
    assert decided(world, uid)[1:] == ("ContractBroken", world.says)


@pytest.mark.parametrize("field", ["incumbentDigest", "anchorDigest"])
def test_an_arm_that_is_gone_ends_the_candidate_before_anything_is_trained_or_paid_and_is_told_as_tampering(field: str) -> None:
    supply = Supply()
    world = World(script=supply)
    world.run()
    supply.code, world.says = 10, f"{field}: the published adapter is not sound (it is gone); restore it"
    uid = world.apply("monday")
    world.run()
    assert (world.state(uid), steps(world), world.story()) == ("Errored", ["draw"], OPENED)
    assert (decided(world, uid)[1:], world.tampering()) == (("ContractBroken", world.says), "AdapterForged")


def test_the_draw_is_told_the_arms_that_the_test_will_be_measured_against() -> None:
    world = World(gain=0.5)
    world.run()
    world.apply("monday")
    world.run()
    first = digest("adapter of uid-monday")
    world.edit(anchor={"entry": entry(3), "reason": "the new normal", "by": "ann"})
    world.run()
    world.apply("tuesday")
    world.run()
    jobs = [told(world, name) for name in sorted(world.jobs) if "-draw-" in name]
    assert [(job.incumbent_digest, job.anchor_digest) for job in jobs] == [(None, None), (first, first)]
    tests = [view.spec.gate for view in world.log if view.spec.action == "Test"]
    assert [(gate.incumbent_digest, gate.anchor_digest) for gate in tests if gate] == [(None, None), (first, first)]


def test_a_planted_round_is_told_as_tampering_before_a_test_is_paid() -> None:
    supply = Supply()
    world = World(script=supply)
    world.run()
    supply.code, world.says = 10, f"channel-1/rounds/000001/MANIFEST.json: {UNMARKED}; find out who wrote to the sealed area"
    world.apply("monday")
    world.run()
    assert (world.tampering(), world.story()) == ("EvidenceForged", OPENED)


# ---- a fixed Primary file


def exam(max_tests: int = 2, min_effect: int = 50, file: str = "exam") -> GatePolicySpec:
    """A policy whose Primary is a fixed file."""
    rules = policy(max_tests=max_tests, min_effect=min_effect)
    items = Items(uri=f"suites/{file}.jsonl", digest=sha256(file.encode()))
    return rules.model_copy(update={"suites": (rules.primary.model_copy(update={"items": items}), *rules.suites[1:])})


def examined(candidates: int, gain: float) -> World:
    """A channel with a fixed Primary file that so many candidates were tested on."""
    world = World(policy=exam(), gain=gain)
    world.run()
    for number in range(candidates):
        world.apply(f"number-{number}")
        world.run()
    return world


@pytest.mark.parametrize(("candidates", "gain"), [(2, 0.0), (1, 0.5)], ids=["after maxTests", "after an Accept"])
def test_when_a_fixed_files_budget_is_used_up_candidates_stay_in_the_queue_and_no_job_starts(candidates: int, gain: float) -> None:
    world = examined(candidates, gain)
    jobs = set(world.jobs)
    uid = world.apply("late")
    world.run()
    assert (world.state(uid), decided(world, uid)) == ("Queued", ("False", "ItemSupply", USED_UP))
    assert (set(world.jobs), world.condition("RoundWaiting")) == (jobs, ("True", "ItemSupply"))
    left = world.channel_status.round
    assert left is not None
    assert left.max_tests - left.tests == 0


def test_a_policy_with_the_same_file_gives_nothing_back_and_one_with_another_file_goes_on() -> None:
    world = examined(2, gain=0.0)
    uid = world.apply("late")
    world.policy = exam(min_effect=60)
    world.run()
    assert (world.state(uid), world.condition("RoundWaiting")) == ("Queued", ("True", "ItemSupply"))
    world.policy, world.gain = exam(min_effect=60, file="another"), 0.5
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "a new exam"})
    world.run()
    assert (world.state(uid), world.condition("RoundWaiting")) == ("Promoted", ("True", "ItemSupply"))


def test_the_budget_ends_while_a_candidate_trains_and_it_waits_without_a_test() -> None:
    world = World(gain=0.0)
    world.run()
    world.policy = exam()
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "an exam"})
    for number in range(2):
        world.apply(f"number-{number}")
        world.run()
    world.policy = policy()
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "fresh items"})
    world.run()
    uid = world.apply("late")
    while not any(job.view.step == "train" and job.view.candidate_uid == uid for job in world.jobs.values()):
        world.reconcile()
        world._tick()
    world.policy, looks = exam(), len([entry for entry in world.log if entry.spec.action == "Test"])
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "the exam again"})
    pass_by(world, seconds=120)
    assert decided(world, uid) == ("False", "ItemSupply", USED_UP)
    assert len([entry for entry in world.log if entry.spec.action == "Test"]) == looks


def test_the_audit_finds_a_test_that_a_used_up_file_was_opened_for() -> None:
    world = examined(2, gain=0.0)
    forged = world.log[-2].spec
    assert forged.action == "Test"
    again = forged.model_copy(
        update={
            "sequence": len(world.log),
            "candidate": forged.candidate and forged.candidate.model_copy(update={"uid": digest("x")[-36:]}),
        }
    )
    entries = (*world.log, type(world.log[0])(again, world.log[0].status, exported=True))
    assert any("its fixed Primary suite had used up its budget" in problem for problem in log_problems(LogState(entries)))
    assert not any("used up" in problem for problem in log_problems(LogState(tuple(world.log))))
