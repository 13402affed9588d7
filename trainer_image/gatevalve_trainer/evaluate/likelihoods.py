"""How likely each reply of the candidate is under every arm's weights, all three asked of the engine in the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gatevalve.contracts.canonical import SAFE_INTEGER
from gatevalve.contracts.files import Arm, Likelihood
from gatevalve_trainer.evaluate.engine import Engine, Replies, Reply
from gatevalve_trainer.evaluate.schedule import answering_arms

MICRONATS = 1_000_000

Logprobs = Sequence[float]
"""Of a reply's tokens, in nats."""


async def likelihoods_of(replies: Replies, models: Mapping[Arm, str], engine: Engine) -> tuple[Likelihood | None, ...]:
    """One entry a decode; None for a missing reply, and where the engine gives no log-probabilities."""
    return tuple([await _likelihood_of(reply, models, engine) if reply is not None else None for reply in replies])


async def _likelihood_of(reply: Reply, models: Mapping[Arm, str], engine: Engine) -> Likelihood | None:
    sources = answering_arms(models)
    given = {arm: await engine.logprobs(models[arm], reply) for arm in dict.fromkeys(sources.values())}
    candidate, incumbent, anchor = (given[sources[arm]] for arm in ("candidate", "incumbent", "anchor"))
    if candidate is None or incumbent is None or anchor is None:
        return None
    return likelihood(candidate, incumbent, anchor)


def likelihood(candidate: Logprobs, incumbent: Logprobs, anchor: Logprobs) -> Likelihood | None:
    """Sums over a reply's tokens; None when one is beyond what JSON keeps exactly.

    k3 = r - 1 - ln r with r = p_baseline / p_candidate (Schulman 2020) is 0 for equal weights and never negative.
    """
    try:
        sums = [math.fsum(candidate), math.fsum(incumbent), math.fsum(anchor), k3(candidate, incumbent), k3(candidate, anchor)]
    except OverflowError:
        return None
    micronats = [round(value * MICRONATS) for value in sums]
    if any(abs(value) > SAFE_INTEGER for value in micronats):
        return None
    return Likelihood(**dict(zip(("candidate", "incumbent", "anchor", "k3_incumbent", "k3_anchor"), micronats, strict=True)))


def k3(candidate: Logprobs, baseline: Logprobs) -> float:
    """The sum of r - 1 - ln r over the tokens, in nats; raises OverflowError where the candidate hardly ever says what it said."""
    return math.fsum(math.expm1(b - c) - (b - c) for c, b in zip(candidate, baseline, strict=True))
