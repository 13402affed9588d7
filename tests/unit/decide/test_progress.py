"""How far an evaluation says it is, in a candidate's conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gatevalve.contracts.files import Progress
from gatevalve.decide.channel import decide
from gatevalve.decide.progress import how_far
from support.world import World

FAR = Progress(answered=120, of=960, per_second="14.2", seconds_left=59)


def told(rate: str, left: int) -> str:
    return how_far(FAR.model_copy(update={"per_second": rate, "seconds_left": left}))


WORDS = {
    "an attempt that just began": ("0.0", 0, "120 of 960 answers"),
    "seconds": ("14.2", 59, "120 of 960 answers, 14.2 a second, less than a minute left"),
    "a minute": ("14.2", 60, "120 of 960 answers, 14.2 a second, about a minute left"),
    "minutes": ("0.5", 600, "120 of 960 answers, 0.5 a second, about 10 minutes left"),
    "two hours, nearly": ("0.1", 7199, "120 of 960 answers, 0.1 a second, about 120 minutes left"),
    "hours": ("0.1", 9000, "120 of 960 answers, 0.1 a second, about 2 hours left"),
}


@pytest.mark.parametrize(("rate", "left", "words"), WORDS.values(), ids=WORDS)
def test_progress_is_counts_a_rate_and_a_rough_time(rate: str, left: int, words: str) -> None:
    assert told(rate, left) == words


def evaluating() -> tuple[World, str, str]:
    """A world in which an evaluation runs: world, candidate and Job."""
    world = World()
    world.run()
    uid = world.apply("monday")
    while not (running := [name for name, job in world.jobs.items() if job.view.step == "evaluate"]):
        world.reconcile()
        if not any(job.view.step == "evaluate" for job in world.jobs.values()):
            world._tick()
    return world, uid, running[0]


def conditions(world: World, uid: str, progress: Progress | None) -> dict[str, str]:
    (update,) = decide(replace(world.view(), progress=progress)).statuses or (None,)
    status = update.status if update is not None and hasattr(update, "status") else world.candidates[uid].status
    return {condition.type: condition.message for condition in status.conditions}


def test_the_condition_evaluated_says_how_far_it_is_while_it_runs() -> None:
    world, uid, name = evaluating()
    words = f"Job {name}: 120 of 960 answers, 14.2 a second, less than a minute left"
    assert conditions(world, uid, FAR)["Evaluated"] == words
    assert conditions(world, uid, None)["Evaluated"] == f"Job {name}"


def test_why_a_pod_does_not_start_goes_before_what_an_earlier_attempt_said() -> None:
    world, uid, name = evaluating()
    world.jobs[name].view = replace(world.jobs[name].view, waiting="Unschedulable: no node")
    assert conditions(world, uid, FAR)["Evaluated"] == f"Job {name}: Unschedulable: no node"


def test_what_an_evaluation_says_of_itself_decides_nothing() -> None:
    world, _, _ = evaluating()
    assert decide(replace(world.view(), progress=FAR)).actions == decide(world.view()).actions == ()
