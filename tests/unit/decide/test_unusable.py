"""Candidates that no Job can make anything of end before the first one, and one whose time runs out says what it waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gatevalve.decide.channel import decide
from gatevalve.decide.steps import POD_POLL_SECONDS
from support.world import World, channel_spec


def opened(**training: Any) -> World:
    world = World(spec=channel_spec(training=training))
    world.run()
    return world


def decided(world: World, uid: str) -> tuple[str, str, str]:
    """State, reason and message."""
    condition = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    return world.state(uid), condition.reason, condition.message


def window(world: World, start: timedelta, end: timedelta) -> dict[str, Any]:
    """A window by its edges from now."""
    edges = [(world.now + edge).strftime("%Y-%m-%dT%H:%M:%SZ") for edge in (start, end)]
    return {"snapshot": {"from": edges[0], "to": edges[1]}}


def test_a_window_in_the_future_ends_the_candidate_before_any_job() -> None:
    world = opened()
    uid = world.apply("too-early", train=window(world, timedelta(hours=-1), timedelta(hours=1)))
    behind = world.apply("behind")
    world.run()
    state, reason, message = decided(world, uid)
    assert (state, reason) == ("Errored", "ContractBroken")
    assert message.startswith("spec.train.snapshot.to 2026-01-01T01:01:07Z lies in the future of")
    assert message.endswith("apply a candidate whose window is over, or use last: 24h")
    assert not [job for job in world.jobs.values() if job.view.candidate_uid == uid]
    assert world.state(behind) == "Promoted"


def test_a_window_that_ends_a_little_late_by_the_api_servers_clock_is_taken() -> None:
    world = opened()
    uid = world.apply("fast-clock", train=window(world, timedelta(hours=-1), timedelta(minutes=4)))
    world.run()
    assert world.state(uid) == "Promoted"


def test_parameters_that_the_channels_recipe_lacks_end_the_candidate_before_any_job() -> None:
    world = opened(recipe="SFT")
    uid = world.apply("mistaken", train={"snapshot": {"last": "1h"}, "parameters": {"clipLow": "0.1"}})
    world.run()
    assert decided(world, uid) == (
        "Errored",
        "ContractBroken",
        "spec.train.parameters.clipLow: is no parameter of SFT; use epochs, learningRate, maxGradNorm, minibatch, tokenBudget, warmupSteps,"
        " or name another recipe in spec.train.recipe",
    )
    assert world.jobs == {}


PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "the candidate's own win over the channel's": (
        {"recipe": "SFT", "parameters": {"epochs": "3", "minibatch": "7"}},
        {"recipe": "SFT", "parameters": {"epochs": "5"}},
        '"parameters":{"epochs":"5","minibatch":"7"}',
    ),
    "the channel's of another recipe are left out": (
        {"recipe": "LoggedRL", "parameters": {"epochs": "3", "clipLow": "0.1"}},
        {"recipe": "SFT"},
        '"parameters":{"epochs":"3"}',
    ),
}


@pytest.mark.parametrize(("training", "train", "told"), PARAMETERS.values(), ids=PARAMETERS)
def test_of_the_parameters_that_a_training_job_gets(training: dict[str, Any], train: dict[str, Any], told: str) -> None:
    world = opened(**training)
    world.apply("monday", train={"snapshot": {"last": "1h"}, **train})
    world.run()
    job = next(job for job in world.jobs.values() if job.view.step == "train")
    environment = job.manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    assert told in next(variable["value"] for variable in environment if variable["name"] == "GATEVALVE_JOB")


@pytest.mark.parametrize("its_pod", ["still there", "gone with the Job's deadline"])
def test_a_candidate_whose_pod_never_started_says_at_its_deadline_why(its_pod: str) -> None:
    world = opened()
    uid = world.apply("stuck", deadline="10m")
    world.reconcile()
    world.reconcile()
    for job in world.jobs.values():
        job.view = replace(job.view, waiting="Unschedulable: 0/1 nodes are available")
    world.reconcile()
    if its_pod != "still there":
        for job in world.jobs.values():
            job.view = replace(job.view, waiting=None, has_started=False)
        world.reconcile()
    world.now += timedelta(minutes=11)
    world.run()
    (name,) = {job.name for job in world.candidates[uid].status.jobs}
    assert decided(world, uid) == (
        "Errored",
        "DeadlineExceeded",
        f"no verdict within 10m; last seen: Job {name}: Unschedulable: 0/1 nodes are available",
    )


def test_when_a_candidate_ends_without_an_entry_the_next_has_its_turn_at_once() -> None:
    world = opened(recipe="SFT")
    world.apply("mistaken", train={"snapshot": {"last": "1h"}, "parameters": {"clipLow": "0.1"}})
    assert decide(world.view()).requeue_seconds == 0


def test_a_job_is_looked_at_again_soon_because_no_watch_tells_why_its_pod_does_not_start() -> None:
    world = opened()
    world.apply("stuck", deadline="10h")
    world.reconcile()
    assert decide(world.view()).requeue_seconds == POD_POLL_SECONDS
    world.reconcile()
    assert decide(world.view()).requeue_seconds == POD_POLL_SECONDS
