"""Probes: prompts whose next token tells the adapter from the base, with what both say, so that a serving pod can see which one answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import PeftModel
from torch import Tensor

from gatevalve.contracts.files import LOGPROB_DIGITS, Probe
from gatevalve_trainer.adapter.logprobs import next_token_logits, padded

PROBES, TOP_TOKENS = 8, 5
"""How many prompts, and how many of the adapter's most likely next tokens for each."""

CONTEXTS = 32
"""How many sequences are searched for them."""

LONGEST_PROMPT = 512
"""The contract's limit of a probe's prompt, in tokens."""


@dataclass(frozen=True, slots=True)
class Context:
    """A token sequence to look for probes in; positions before `first` are too early to be natural prompts."""

    token_ids: Sequence[int]
    first: int


@dataclass(frozen=True, slots=True)
class _Found:
    divergence: float
    probe: Probe


def find_probes(model: PeftModel, contexts: Sequence[Context]) -> tuple[Probe, ...]:
    """At most PROBES prompts, one from each context, where KL(adapter || base) of the next token is largest; largest first."""
    device = next(model.parameters()).device
    found = [_best_position(model, context, device) for context in contexts[:CONTEXTS]]
    unique = {one.probe.prompt_token_ids: one for one in found}
    return tuple(one.probe for one in sorted(unique.values(), key=lambda one: -one.divergence)[:PROBES])


def largest_difference(probes: Sequence[Probe]) -> float:
    """The largest difference between adapter and base on any probed token, in nats."""
    pairs = [(adapter, base) for probe in probes for adapter, base in zip(probe.adapter_logprobs, probe.base_logprobs, strict=True)]
    return max(abs(float(adapter) - float(base)) for adapter, base in pairs)


@torch.no_grad()
def _best_position(model: PeftModel, context: Context, device: torch.device) -> _Found:
    prefix = list(context.token_ids[:LONGEST_PROMPT])
    tokens_BS = padded([[*prefix, prefix[-1]]], device)  # one more, so that the whole prefix is a prompt too
    adapter_TV = _all_logprobs(model, tokens_BS)
    with model.disable_adapter():
        base_TV = _all_logprobs(model, tokens_BS)
    divergence_T = (adapter_TV.exp() * (adapter_TV - base_TV)).sum(-1)
    first = min(context.first, len(prefix) - 1)
    position = first + int(divergence_T[first:].argmax())
    probe = _probe(prefix[: position + 1], adapter_TV[position], base_TV[position])
    return _Found(float(divergence_T[position]), probe)


def _all_logprobs(model: PeftModel, tokens_BS: Tensor) -> Tensor:
    return next_token_logits(model, tokens_BS)[0].float().log_softmax(-1)


def _probe(prompt: list[int], adapter_V: Tensor, base_V: Tensor) -> Probe:
    top = adapter_V.topk(min(TOP_TOKENS, len(adapter_V))).indices
    return Probe(
        prompt_token_ids=tuple(prompt),
        token_ids=tuple(int(token) for token in top),
        adapter_logprobs=tuple(_decimal(float(value)) for value in adapter_V[top]),
        base_logprobs=tuple(_decimal(float(value)) for value in base_V[top]),
    )


def _decimal(value: float) -> str:
    return f"{round(value, LOGPROB_DIGITS) + 0.0:.{LOGPROB_DIGITS}f}"
