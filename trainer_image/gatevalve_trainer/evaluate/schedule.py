"""Who is asked what, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import ARMS, Arm, Item
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.policy import SCREEN, Suite
from gatevalve_trainer.evaluate.rounds import LoadedSuite
from gatevalve_trainer.evaluate.seeds import request_seed


@dataclass(frozen=True, slots=True)
class Question:
    """One request to the engine: all decodes of one item by one arm."""

    suite: Suite
    item: Item
    arm: Arm
    model: str
    seed: int

    @property
    def key(self) -> tuple[str, str, Arm]:
        """Suite, item and arm: a question is asked once in a test."""
        return (self.suite.name, self.item.id, self.arm)


def arm_models(arms: Mapping[str, str]) -> dict[Arm, str]:
    """The engine's model of each arm; raises ContractError unless exactly candidate, incumbent and anchor are named."""
    if set(arms) != set(ARMS):
        raise ContractError("arms", f"names {', '.join(sorted(arms)) or 'nothing'}", f"name exactly {', '.join(ARMS)}")
    return {arm: arms[arm] for arm in ARMS}


def answering_arms(models: Mapping[Arm, str]) -> dict[Arm, Arm]:
    """Whose answers stand for each arm: an anchor that is the incumbent's model is not asked again, the candidate always is."""
    return {arm: "incumbent" if arm == "anchor" and models["anchor"] == models["incumbent"] else arm for arm in ARMS}


Unit = tuple[Question, ...]
"""What is answered together: one question, or all arms of an item whose replies a judge compares."""


def units(job: EvaluateInput, suites: Sequence[LoadedSuite]) -> Iterator[Unit]:
    """Every question on some suites, item by item over the arms, so that a drifting engine drifts for all arms alike."""
    for loaded in suites:
        for item in loaded.items:
            asked = tuple(_questions(job, loaded.suite, item))
            yield from (asked,) if loaded.suite.judge is not None else ((question,) for question in asked)


def arms_of(suite: str) -> tuple[Arm, ...]:
    """The arms that a suite has rows of: the screen is about candidate and incumbent only."""
    return ("candidate", "incumbent") if suite == SCREEN else ARMS


def _questions(job: EvaluateInput, suite: Suite, item: Item) -> Iterator[Question]:
    models = arm_models(job.arms)
    sources = answering_arms(models)
    for arm in dict.fromkeys(sources[arm] for arm in arms_of(suite.name)):
        yield Question(suite, item, arm, models[arm], request_seed(job.round, job.test, suite.name, item.id, arm))
