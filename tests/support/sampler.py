"""A small batched sampler over a transformers model, for tests that need replies and their log-probabilities without an engine."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Reply:
    """One sampled reply: `token_ids` and `logprobs` include the end token when it finished."""

    text: str
    token_ids: list[int]
    logprobs: list[float]
    finished: bool


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    temperature: float,
    max_tokens: int,
    seed: int,
    n: int = 1,
) -> list[list[Reply]]:
    """n replies for every user message; log-probabilities are those of the sampling distribution (temperature 0: of the model itself)."""
    rows = [prompt_ids(tokenizer, prompt) for prompt in prompts for _ in range(n)]
    generator = torch.Generator().manual_seed(seed)
    replies = _sample_rows(model.eval(), tokenizer, rows, temperature, max_tokens, generator)
    return [replies[start : start + n] for start in range(0, len(replies), n)]


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """The token ids of one user message in the chat template, up to where the reply begins."""
    messages = [{"role": "user", "content": prompt}]
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))


@torch.inference_mode()
def _sample_rows(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: list[list[int]],
    temperature: float,
    max_tokens: int,
    generator: torch.Generator,
) -> list[Reply]:
    ids_BT, mask_BT = _left_padded(rows, int(tokenizer.pad_token_id))
    end = int(tokenizer.eos_token_id)
    position_B1 = (mask_BT.sum(1, keepdim=True) - 1).long()
    output = model(input_ids=ids_BT, attention_mask=mask_BT, position_ids=(mask_BT.cumsum(1) - 1).clamp(min=0), use_cache=True)
    cache, name = output.past_key_values, cache_argument(model)
    tokens, logprobs = [], []
    alive_B = torch.ones(len(rows), dtype=torch.bool)
    for _ in range(max_tokens):
        token_B, logprob_B = _draw(output.logits[:, -1], temperature, generator)
        tokens.append(token_B)
        logprobs.append(logprob_B)
        alive_B = alive_B & (token_B != end)
        if not alive_B.any():
            break
        position_B1 = position_B1 + 1
        mask_BT = torch.cat([mask_BT, torch.ones(len(rows), 1, dtype=torch.long)], dim=1)
        output = model(input_ids=token_B[:, None], attention_mask=mask_BT, position_ids=position_B1, use_cache=True, **{name: cache})
    return [_reply(tokenizer, ids, scores, end) for ids, scores in zip(_rows(tokens), _rows(logprobs), strict=True)]


def cache_argument(model: Any) -> str:
    """The name under which the model's forward takes the cache: a wrong one is swallowed silently and turns sampling into noise."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "cache" if "cache" in inspect.signature(inner.forward).parameters else "past_key_values"


def _left_padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = [[pad] * (width - len(row)) + row for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def _draw(logits_BV: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    logprobs_BV = torch.log_softmax(logits_BV.float() / (temperature or 1.0), dim=-1)
    token_B = logprobs_BV.argmax(-1) if temperature == 0 else torch.multinomial(logprobs_BV.exp(), 1, generator=generator)[:, 0]
    return token_B, logprobs_BV.gather(1, token_B[:, None])[:, 0]


def _rows(columns: list[Tensor]) -> list[list[Any]]:
    return torch.stack(columns, dim=1).tolist()


def _reply(tokenizer: PreTrainedTokenizerBase, ids: list[int], logprobs: list[float], end: int) -> Reply:
    finished = end in ids
    length = ids.index(end) + 1 if finished else len(ids)
    text = tokenizer.decode(ids[: length - 1] if finished else ids[:length])
    return Reply(text=str(text), token_ids=ids[:length], logprobs=logprobs[:length], finished=finished)
