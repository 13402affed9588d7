"""Probe: a loaded adapter must answer as its trainer recorded.

One-token log-probabilities of adapter and base are compared with those in the MANIFEST.

The whole top of the distribution is asked for and matched by token id. `logprob_token_ids` would name the tokens, but where vLLM
batches such a request with a client's that asks for top_logprobs, the client's are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gatevalve.contracts.errors import ServingError
from gatevalve.contracts.files import Probe
from gatevalve.contracts.reasons import PodReason
from gatevalve_serving.inner import Engine
from gatevalve_serving.problem import Problem

TOP = 20
LEAST_DIFFERENCE = 1e-3
"""Nats, summed over all probed tokens: less than that is the base's own answer with rounding."""

TopLogprobs = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Distances:
    """Sums of absolute differences of log-probabilities, in nats, over all probed tokens."""

    adapter_to_base: float
    adapter_to_record: float
    base_to_record: float


async def ask(engine: Engine, model: str, probes: Sequence[Probe], max_logprobs: int, seconds: float) -> list[TopLogprobs]:
    """The engine's top log-probabilities of the next token after each probe's prompt; raises ServingError when it does not answer."""
    top = TOP if max_logprobs < 0 else min(TOP, max_logprobs)  # -1: the engine sets no limit
    return list(await asyncio.gather(*(_ask_one(engine, model, probe, top, seconds) for probe in probes)))


async def _ask_one(engine: Engine, model: str, probe: Probe, top: int, seconds: float) -> TopLogprobs:
    body = {
        "model": model,
        "prompt": list(probe.prompt_token_ids),
        "max_tokens": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": top,
        "return_tokens_as_token_ids": True,
    }
    reply = await engine.call("POST", "/v1/completions", body, seconds)
    if reply.status != 200:
        raise ServingError(f"the probe of {model} was answered {reply.status}: {reply.text}")
    try:
        found = reply.json()["choices"][0]["logprobs"]["top_logprobs"][0]
        return {int(token.removeprefix("token_id:")): float(logprob) for token, logprob in found.items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ServingError(f"the probe of {model} was answered without log-probabilities: {reply.text}") from error


def distances(probes: Sequence[Probe], adapter: Sequence[TopLogprobs], base: Sequence[TopLogprobs]) -> Distances:
    """Compare answers with each other and with the record. A token outside the asked top counts with the least of the top."""
    between = from_adapter = from_base = 0.0
    for probe, of_adapter, of_base in zip(probes, adapter, base, strict=True):
        for token, recorded in zip(probe.token_ids, map(float, probe.adapter_logprobs), strict=True):
            a, b = _value(of_adapter, token), _value(of_base, token)
            between += abs(a - b)
            from_adapter += abs(a - recorded)
            from_base += abs(b - recorded)
    return Distances(between, from_adapter, from_base)


def judge(found: Distances) -> Problem | None:
    """The adapter's answer differs from the base's, and is nearer to the record than the base's is; anything else fails, NaN too."""
    if not found.adapter_to_base > LEAST_DIFFERENCE:
        return Problem(PodReason.PROBE_FAILED, "the adapter has no effect: it answers as the base does")
    if not found.adapter_to_record < found.base_to_record:
        return Problem(
            PodReason.PROBE_FAILED,
            f"the adapter answers {found.adapter_to_record:.4f} nats from the record, no nearer than the base {found.base_to_record:.4f}",
        )
    return None


def _value(top: TopLogprobs, token: int) -> float:
    return top[token] if token in top else min(top.values())
