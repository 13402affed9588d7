"""A judge as scorer: each arm's reply is compared with the incumbent's to the same item and decode, in both orders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import aiohttp

from gatevalve.contracts.files import SCORE_ONE, Arm, Canary, Item, JudgeFact
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.policy import SCREEN, Judge, Suite
from gatevalve_trainer.evaluate.canaries import load_canaries
from gatevalve_trainer.evaluate.engine import Replies, Reply
from gatevalve_trainer.evaluate.judge_endpoint import JudgeEndpoint
from gatevalve_trainer.evaluate.judge_identity import check_judges_of, check_served, judges_in
from gatevalve_trainer.evaluate.judge_prompt import PROMPT_VERSION, Choice, Messages, choice_in, prompt_of
from gatevalve_trainer.evaluate.patience import Patience, heed_stop
from gatevalve_trainer.phases import log
from gatevalve_trainer.store import Area

WIN, EVEN, LOSS = SCORE_ONE, SCORE_ONE // 2, 0
READINGS = 2
"""How often one order is asked before its answer counts as unreadable."""

WATCH_SECONDS = 0.5

Scores = tuple[int | None, ...]
T = TypeVar("T")


class Judging(Protocol):
    """Scores the replies of all arms to one item."""

    async def score(self, suite: Suite, item: Item, replies: Mapping[Arm, Replies]) -> Mapping[Arm, Scores]:
        """Millionths of each arm's decodes, None where there is no score; raises BackendUnavailable when the judge is gone."""
        ...


class PairJudge:
    """Compares pairs of replies through one endpoint."""

    def __init__(self, endpoint: JudgeEndpoint) -> None:
        self._endpoint = endpoint

    async def score(self, suite: Suite, item: Item, replies: Mapping[Arm, Replies]) -> Mapping[Arm, Scores]:
        """1 for a win against the incumbent's reply, 0.5 for a tie, 0 for a loss, in millionths; the incumbent has 0.5."""
        yardstick = replies["incumbent"]
        pairs = {arm: self._against(item, given, yardstick) for arm, given in replies.items() if arm != "incumbent"}
        scores: dict[Arm, Scores] = {"incumbent": tuple(None if reply is None else EVEN for reply in yardstick)}
        return scores | dict(zip(pairs, await _together(pairs.values()), strict=True))

    async def compare(self, messages: Messages, reply: str, other: str) -> int | None:
        """The score of a reply against another; None when one of the two orders has no readable answer."""
        if reply == other:
            return EVEN
        first, second = await _together([self._choice(messages, reply, other), self._choice(messages, other, reply)])
        return settled(first, second)

    async def right(self, canaries: Sequence[Canary]) -> int:
        """How many canaries come out right in both orders; raises Terminated when told to stop."""
        asked = _together(self.compare(canary.messages, canary.better, canary.worse) for canary in canaries)
        return sum(score == WIN for score in await _heeding_stop(asked))

    async def _against(self, item: Item, replies: Replies, yardstick: Replies) -> Scores:
        return tuple(await _together(self._pair(item, *pair) for pair in zip(replies, yardstick, strict=True)))

    async def _pair(self, item: Item, reply: Reply | None, yardstick: Reply | None) -> int | None:
        if reply is None or yardstick is None:
            return None
        return await self.compare(item.messages, reply.text, yardstick.text)

    async def _choice(self, messages: Messages, reply_a: str, reply_b: str) -> Choice | None:
        for _ in range(READINGS):
            answer = await self._endpoint.ask(prompt_of(messages, reply_a, reply_b))
            if answer is None:
                return None
            if (choice := choice_in(answer)) is not None:
                return choice
        return None


def settled(first: Choice | None, second: Choice | None) -> int | None:
    """The score of a reply that stood first and then second: a win or a loss only when both answers say so."""
    if first is None or second is None:
        return None
    return {("A", "B"): WIN, ("B", "A"): LOSS}.get((first, second), EVEN)


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of a test by suite name, the screen included."""

    by_suite: Mapping[str, Judging]
    canaries: Mapping[str, JudgeFact]

    def facts(self, measured: Iterable[str]) -> tuple[JudgeFact, ...]:
        """How the judges of the measured suites did on their canaries."""
        return tuple(self.canaries[suite] for suite in measured if suite in self.canaries)


async def open_judges(job: EvaluateInput, session: aiohttp.ClientSession, patience: Patience, data: Area) -> Judges:
    """Check every judge of a policy and ask it its canaries; suites with one judge share it.

    Raises ContractError that names the field when a judge is what it judges or its canaries are not as named, BackendUnavailable when
    an endpoint does not answer.
    """
    check_judges_of(job)
    judged, canaries = dict(judges_in(job.policy)), load_canaries(job.policy, data)
    opened: dict[Judge, tuple[PairJudge, JudgeFact]] = {}
    for suite, judge in judged.items():
        if judge not in opened:
            opened[judge] = await _open(suite, judge, canaries[suite], job, session, patience)
    if job.policy.screen is not None and job.policy.primary.judge is not None:
        judged[SCREEN] = job.policy.primary.judge
    facts = {suite: opened[judge][1].model_copy(update={"suite": suite}) for suite, judge in judged.items()}
    return Judges({suite: opened[judge][0] for suite, judge in judged.items()}, facts)


async def _open(
    suite: str, judge: Judge, canaries: Sequence[Canary], job: EvaluateInput, session: aiohttp.ClientSession, patience: Patience
) -> tuple[PairJudge, JudgeFact]:
    first = canaries[0]
    probe = prompt_of(first.messages, first.better, first.worse)
    endpoint = JudgeEndpoint(session, f"suite {suite}.judge", judge, patience, probe)
    check_served(suite, judge, await _heeding_stop(endpoint.models()), job)
    pair_judge = PairJudge(endpoint)
    right = await pair_judge.right(canaries)
    log("canaries asked", suite=suite, pairs=len(canaries), right=right)
    return pair_judge, JudgeFact(suite=suite, model=judge.model, prompt=PROMPT_VERSION, canaries=len(canaries), right=right)


async def _together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """All results in order; when one call fails, the others are not paid for any longer."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _heeding_stop(call: Awaitable[T]) -> T:
    """A call's result; raises Terminated soon after the process was told to stop."""
    task = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait([task], timeout=WATCH_SECONDS))[0]:
            heed_stop()
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
