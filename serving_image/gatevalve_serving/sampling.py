"""Sampling of a request: what it states, what the engine will use, and whether logged log-probabilities are the policy's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Body = Mapping[str, Any]

NEUTRAL: Mapping[str, float | int] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""The model's own distribution, stated in full: vLLM fills what is absent from the base's generation_config.json."""

WITHOUT_EFFECT = frozenset(
    {
        *("model", "messages", "prompt", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "seed", "stop", "user"),
        *("stop_token_ids", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens"),
        *("logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids", "metadata", "store"),
        *("request_id", "session_id", "priority", "cache_salt", "stream_interval", "suffix", "length_penalty", "service_tier"),
        *("add_generation_prompt", "continue_final_message", "add_special_tokens", "truncate_prompt_tokens", "truncation_side"),
        *("chat_template_kwargs", "documents", "reasoning_effort", "include_reasoning", "parallel_tool_calls", "return_prompt_text"),
    }
)
"""Fields that leave the next token's distribution alone, given the prompt's token ids. Every other field that is set may shape it."""

PLAIN_VALUES: Mapping[str, tuple[Any, ...]] = {
    "tool_choice": ("none",),
    "response_format": ({"type": "text"},),
    "min_tokens": (0,),
    "use_beam_search": (False,),
    "echo": (False,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "tools": ([],),
}
"""Values of shaping fields that shape nothing."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the engine samples with; `exact`: temperature 1 and nothing else that filters, penalises, biases or constrains."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    exact: bool


def states_sampling(body: Body) -> bool:
    """The client asks for sampling of its own, or for something that shapes it."""
    return any(body.get(name) is not None for name in NEUTRAL) or bool(_shaping(body))


def effective(body: Body, defaults: Mapping[str, Any]) -> Sampling:
    """What the engine samples with: the request's values, then its generation_config's, then neutral ones. Raises ValueError, TypeError."""
    values = {name: float(_first(body.get(name), defaults.get(name), neutral)) for name, neutral in NEUTRAL.items()}
    values["top_k"] = max(values["top_k"], 0)
    neutral = all(values[name] == NEUTRAL[name] for name in NEUTRAL)
    return Sampling(
        temperature=values["temperature"],
        top_p=values["top_p"],
        top_k=int(values["top_k"]),
        min_p=values["min_p"],
        exact=neutral and not _shaping(body),
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _shaping(body: Body) -> list[str]:
    given = (name for name, value in body.items() if value is not None and name not in NEUTRAL and name not in WITHOUT_EFFECT)
    return [name for name in given if body[name] not in PLAIN_VALUES.get(name, ())]
