"""How one unit is answered: asked of the engine, then scored by verifier or judge, or measured for its form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from gatevalve.contracts.files import Arm, Likelihood
from gatevalve_trainer.evaluate.answers import Answer, behaviour_answer, scored_answer, verified
from gatevalve_trainer.evaluate.engine import Engine, Replies
from gatevalve_trainer.evaluate.judge import Judging
from gatevalve_trainer.evaluate.likelihoods import likelihoods_of
from gatevalve_trainer.evaluate.schedule import Question, Unit
from gatevalve_trainer.tasks.plugin import Task


@dataclass(frozen=True, slots=True)
class Answering:
    """Answers units; `verifiers` and `judges` are by suite name, `models` are the engine's models of the arms."""

    engine: Engine
    verifiers: Mapping[str, Task | None]
    judges: Mapping[str, Judging]
    models: Mapping[Arm, str]

    async def answers(self, unit: Unit) -> tuple[Answer, ...]:
        """An answer to each question of a unit; raises BackendUnavailable when engine or judge are gone."""
        judge = self.judges.get(unit[0].suite.name)
        if judge is not None:
            return await self._judged(unit, judge)
        return tuple([await self._answer(question) for question in unit])

    async def _answer(self, question: Question) -> Answer:
        replies = await self.engine.ask(question)
        task = self.verifiers[question.suite.name]
        if task is not None:
            return scored_answer(question, replies, verified(task, question.item, replies))
        return behaviour_answer(question, replies, await self._likelihoods(question, replies))

    async def _likelihoods(self, question: Question, replies: Replies) -> tuple[Likelihood | None, ...] | None:
        return await likelihoods_of(replies, self.models, self.engine) if question.arm == "candidate" else None

    async def _judged(self, unit: Unit, judge: Judging) -> tuple[Answer, ...]:
        replies = await asyncio.gather(*(self.engine.ask(question) for question in unit))
        by_arm = {question.arm: given for question, given in zip(unit, replies, strict=True)}
        scores = await judge.score(unit[0].suite, unit[0].item, by_arm)
        return tuple(scored_answer(question, by_arm[question.arm], scores[question.arm]) for question in unit)
