"""Candidates' statuses are derived: whatever somebody writes there, the log decides, and what follows is the same."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from gatevalve.contracts.names import ENV_JOB
from support.world import START, World, channel_spec, digest, entry

ACCEPTED = ["Test:TestOpened", "Accept:GatePassed", "Promote:GatePassed"]
VERDICTS = ["Accepted", "Promoted", "Rejected", "Inconclusive"]
OTHER = digest("another adapter")

FACTS = {
    "incumbentEntry": entry(3),
    "incumbentDigest": OTHER,
    "policy": "lax",
    "policyDigest": digest("lax"),
    "startedAt": "2026-01-01T00:00:00Z",
    "windowFrom": "2020-01-01T00:00:00Z",
    "windowTo": "2020-01-02T00:00:00Z",
}
FORGERIES: dict[str, dict[str, Any]] = {
    "other facts": {"facts": FACTS},
    "another snapshot": {"snapshot": {"digest": OTHER, "rows": 9999, "rewarded": 9999}},
    "another adapter": {"adapter": {"name": "support-evil", "digest": OTHER, "attempt": "../../../inbox"}},
    "a test": {"test": entry(2)},
    "evidence and a decision": {
        "evidence": {"uri": "elsewhere", "digest": OTHER},
        "decision": {"verdict": "Accepted", "reason": "GatePassed", "entry": entry(2)},
    },
    **{f"the state {state}": {"state": state} for state in VERDICTS},
}
STAGES = ["queued", "draw", "snapshot", "train", "evaluate", "decided"]


@cache
def _promoted() -> World:
    world = World()
    world.run()
    world.apply("monday")
    world.run()
    return world


def at(stage: str) -> tuple[World, str]:
    """A world whose first promotion serves, and a second candidate at a stage of its way."""
    world = deepcopy(_promoted())
    uid = world.apply("tuesday")
    while stage != "queued" and not reached(world, uid, stage):
        world.reconcile()
        world._tick()
    return world, uid


def reached(world: World, uid: str, stage: str) -> bool:
    if stage == "decided":
        return world.story()[-1] == "Accept:GatePassed" and len(world.log) > 5
    return any(job.view.step == stage and job.view.candidate_uid == uid for job in world.jobs.values())


def inputs(world: World, uid: str) -> dict[str, dict[str, Any]]:
    """What each Job of a candidate was told."""
    found = {}
    for job in world.jobs.values():
        if job.view.candidate_uid == uid:
            containers = job.manifest["spec"]["template"]["spec"]["containers"]
            found[job.view.step] = json.loads(next(item["value"] for item in containers[0]["env"] if item["name"] == ENV_JOB))
    return found


@cache
def honest() -> tuple[list[str], dict[str, dict[str, Any]], Any]:
    world, uid = at("queued")
    world.run()
    return world.story(), without_digests(inputs(world, uid)), world.log[-1].spec.lineage


def without_digests(told: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Digests of entries differ with the second in which they were written."""
    return {step: {key: value for key, value in job.items() if key != "testDigest"} for step, job in told.items()}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("sentence", FORGERIES)
def test_the_candidate_goes_the_same_way_although_its_status_names(sentence: str, stage: str) -> None:
    world, uid = at(stage)
    world.forge(uid, **FORGERIES[sentence])
    world.run()
    assert (world.story(), without_digests(inputs(world, uid)), world.log[-1].spec.lineage) == honest()
    status = world.candidates[uid].status
    assert (world.state(uid), status.test, status.decision and status.decision.entry) == ("Promoted", entry(4), entry(6))
    assert status.evidence is not None
    assert status.evidence.uri != "elsewhere"


@pytest.mark.parametrize("stage", ["draw", "snapshot", "train", "evaluate"])
def test_facts_that_name_another_incumbent_end_the_candidate_at_most(stage: str) -> None:
    world, uid = at(stage)
    world.forge(uid, facts={**FACTS, "incumbentEntry": entry(0)})
    world.run()
    assert world.state(uid) in ("Aborted", "Promoted")
    assert {job.get("parentDigest") for job in inputs(world, uid).values() if "parentDigest" in job} <= {digest("adapter of uid-monday")}
    assert len(world.answering()) == 1


@pytest.mark.parametrize("started", ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"], ids=["long ago", "far ahead"])
def test_a_forged_start_neither_ends_a_candidate_nor_puts_its_deadline_off(started: str) -> None:
    world, uid = at("train")
    world.forge(uid, facts={**FACTS, "startedAt": started})
    deadline = next(job for job in world.jobs.values() if job.view.step == "train" and job.view.candidate_uid == uid)
    world.run()
    assert world.state(uid) == "Promoted"
    told = world.candidates[uid].status.facts
    assert told is not None
    assert START.isoformat()[:10] == told.started_at[:10]
    assert deadline.view.succeeded


@pytest.mark.parametrize("state", VERDICTS)
def test_a_verdict_that_the_log_does_not_hold_is_told_and_written_anew(state: str) -> None:
    world, uid = at("queued")
    world.edit(paused=True)
    world.forge(uid, state=state)
    world.reconcile()
    assert (world.state(uid), world.tampering()) == ("Queued", "StatusForged")


@pytest.mark.parametrize("state", VERDICTS)
def test_it_is_written_anew_also_while_no_candidate_is_taken(state: str) -> None:
    world, uid = at("queued")
    world.policy_deleted = True
    world.forge(uid, state=state)
    world.run()
    assert (world.state(uid), len(world.told("Tampered"))) == ("Queued", 1)


@pytest.mark.parametrize("state", ["Skipped", "Errored", "Aborted"])
def test_an_opened_test_gets_its_verdict_although_the_status_says_that_the_candidate_has_ended(state: str) -> None:
    world, uid = at("evaluate")
    world.forge(uid, state=state)
    world.run()
    assert (world.state(uid), world.story()[-3:]) == ("Promoted", ACCEPTED)


def test_an_accepted_candidate_that_waits_for_a_person_is_waited_for_whatever_its_status_says() -> None:
    world = World(spec=channel_spec(approval="Manual"))
    world.run()
    first = world.apply("monday")
    world.run()
    second = world.apply("tuesday")
    world.forge(first, state="Aborted")
    world.run()
    assert (world.state(first), world.state(second)) == ("Accepted", "Queued")


@pytest.mark.parametrize("held", [{"paused": True}, {"pin": {"entry": entry(9), "reason": "stop", "by": "ann"}}], ids=["paused", "pinned"])
def test_facts_by_hand_start_nothing_in_a_channel_that_takes_nothing(held: dict[str, Any]) -> None:
    world, uid = at("queued")
    world.edit(**held)
    world.forge(uid, state="Training", facts=FACTS)
    world.run()
    assert (world.state(uid), world.candidates[uid].status.facts, inputs(world, uid)) == ("Queued", None, {})


def test_facts_by_hand_are_no_way_past_a_candidate_in_flight() -> None:
    world, uid = at("train")
    jumper = world.apply("early")
    world.forge(jumper, state="Training", facts=FACTS)
    world.reconcile()
    assert (world.state(jumper), inputs(world, jumper)) == ("Queued", {})
    world.run()
    assert world.state(uid) == "Promoted"


def test_an_attempt_that_is_none_is_no_directory() -> None:
    world, uid = at("evaluate")
    world.jobs = {name: job for name, job in world.jobs.items() if job.view.candidate_uid != uid}
    world.forge(uid, adapter={"name": "support-evil", "digest": OTHER, "attempt": "../../../inbox/evil"})
    world.run()
    assert (world.state(uid), world.story()[-1]) == ("Inconclusive", "Reject:EvidenceFailed")


def test_an_approval_of_a_rejected_candidate_does_nothing() -> None:
    world = World(spec=channel_spec(approval="Manual"), gain=0.0)
    world.run()
    uid = world.apply("monday")
    world.run()
    evidence = world.candidates[uid].status.evidence
    assert evidence is not None
    world.approve(uid, "Approve", evidence.digest)
    world.run()
    assert (world.state(uid), world.story()[-1], world.answering()) == ("Rejected", "Reject:PrimaryNotPassed", {entry(0)})


def test_a_candidate_that_brings_its_own_approval_needs_the_one_of_its_evidence() -> None:
    world = World(spec=channel_spec(approval="Manual"))
    world.run()
    uid = world.apply("monday", approval={"decision": "Approve", "by": "itself", "evidenceDigest": OTHER})
    world.run()
    assert (world.state(uid), world.answering()) == ("Aborted", {entry(0)})
