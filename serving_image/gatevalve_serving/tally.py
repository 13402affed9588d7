"""A tally of one reply: token ids, log-probabilities and text of every choice, gathered from a whole reply or from its stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gatevalve.contracts.files import TrafficRecord
from gatevalve_serving.generation import Job
from gatevalve_serving.sampling import effective


@dataclass(slots=True)
class Choice:
    """One choice so far."""

    prompt_token_ids: list[int] | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None


@dataclass(slots=True)
class Tally:
    """What the engine answered so far; `id` is the response id."""

    id: str | None = None
    prompt_token_ids: list[int] | None = None
    choices: dict[int, Choice] = field(default_factory=dict)

    def add(self, payload: dict[str, Any]) -> None:
        """Add a whole reply or one chunk of a stream, as the engine sent it."""
        self.id = payload.get("id", self.id)
        self.prompt_token_ids = payload.get("prompt_token_ids") or self.prompt_token_ids
        for part in payload.get("choices") or []:
            self._add_choice(self.choices.setdefault(part.get("index", 0), Choice()), part)

    def _add_choice(self, choice: Choice, part: dict[str, Any]) -> None:
        choice.prompt_token_ids = part.get("prompt_token_ids") or choice.prompt_token_ids
        choice.token_ids += part.get("token_ids") or []
        choice.logprobs += _logprobs(part.get("logprobs") or {})
        choice.text.append(_text(part))
        choice.finish_reason = part.get("finish_reason") or choice.finish_reason


class Incomplete(Exception):
    """A reply lacks what a record needs: it was cut off, or the engine hid token ids."""


def records(job: Job, tally: Tally, at: str, defaults: Mapping[str, Any], samples_plainly: bool) -> Iterator[TrafficRecord]:
    """One record for each choice, in order. Raises Incomplete."""
    if tally.id is None or not tally.choices:
        raise Incomplete("no choice was answered")
    sampling = effective(job.sent, defaults)
    for index, choice in sorted(tally.choices.items()):
        prompt_token_ids = choice.prompt_token_ids or tally.prompt_token_ids
        if prompt_token_ids is None or not choice.token_ids or len(choice.token_ids) != len(choice.logprobs) or not choice.finish_reason:
            raise Incomplete(f"choice {index} lacks token ids, log-probabilities or its end")
        yield TrafficRecord(
            id=tally.id,
            choice=index,
            at=at,
            channel=job.routes.channel,
            entry=job.target.entry,
            adapter_digest=job.target.adapter_digest,
            base_digest=job.routes.base_digest,
            route=job.route,
            messages=job.asked.get("messages") if job.route == "chat" else None,
            prompt=_prompt(job, index),
            prompt_token_ids=prompt_token_ids,
            token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            text="".join(choice.text),
            finish_reason=choice.finish_reason,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            exact=sampling.exact and samples_plainly,
            max_tokens=job.asked.get("max_completion_tokens") or job.asked.get("max_tokens"),
            seed=job.asked.get("seed"),
        )


def _logprobs(found: dict[str, Any]) -> list[float]:
    if "content" in found:
        return [token["logprob"] for token in found["content"] or []]
    return list(found.get("token_logprobs") or [])


def _text(part: dict[str, Any]) -> str:
    message = part.get("message") or part.get("delta") or {}
    return part.get("text") or message.get("content") or ""


def _prompt(job: Job, index: int) -> str | None:
    """A completion's prompt, where the client sent text; several prompts have n choices each."""
    prompt = job.asked.get("prompt") if job.route == "completions" else None
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        return str(prompt[index // (job.asked.get("n") or 1)])
    return prompt if isinstance(prompt, str) else None
