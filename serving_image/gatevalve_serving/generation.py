"""A generation request: what is asked of the engine in the client's place, and what the client gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gatevalve_serving.routes import ChannelRoutes, Target, share_of
from gatevalve_serving.sampling import NEUTRAL, states_sampling

Route = Literal["chat", "completions"]
LARGEST_CAPTURED = 1 << 20
"""Bytes of a request body; longer ones (pictures inline) are served and not captured."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request on its way: whose it is, what answers it, and the body sent to the engine."""

    route: Route
    routes: ChannelRoutes
    target: Target
    request_id: str
    asked: Mapping[str, Any]
    sent: Mapping[str, Any]
    captured: bool

    @property
    def wants_logprobs(self) -> bool:
        """The client asked for log-probabilities itself (0 is a wish in completions)."""
        value = self.asked.get("logprobs")
        return bool(value) if self.route == "chat" else value is not None

    @property
    def wants_token_ids(self) -> bool:
        """The client asked for token ids itself."""
        return bool(self.asked.get("return_token_ids"))


def job(route: Route, routes: ChannelRoutes, request_id: str, asked: Mapping[str, Any], capturable: bool) -> Job:
    """Route a request, put it into the learning slice or not, and ask for what capture needs."""
    target = routes.pick(request_id)
    captured = capturable and not asked.get("echo") and not asked.get("use_beam_search")
    sent = {name: value for name, value in asked.items() if name != "request_id"} | {"model": target.model}
    if captured:
        sent = {**sent, **_learning(asked, routes, request_id), **_evidence(route, asked)}
    return Job(route, routes, target, request_id, asked, sent, captured)


def _learning(asked: Mapping[str, Any], routes: ChannelRoutes, request_id: str) -> Mapping[str, Any]:
    in_slice = share_of(request_id, "learning") * 1000 < routes.capture.learning_permille
    return NEUTRAL if in_slice and not states_sampling(asked) else {}


def _evidence(route: Route, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Token ids and the log-probability of each sampled token."""
    if route == "chat":
        return {"return_token_ids": True, "logprobs": True}
    return {"return_token_ids": True, "logprobs": asked["logprobs"] if asked.get("logprobs") is not None else 0}


def to_client(job: Job, payload: dict[str, Any]) -> bool:
    """Make an engine's reply or stream chunk, in place, what the client would have had without us, but for the alias.

    False: the engine would not have sent this chunk, it carries nothing else than what we asked for.
    """
    if "model" in payload:
        payload["model"] = job.routes.alias
    if not job.captured:
        return True
    choices = payload.get("choices") or []
    if not job.wants_token_ids:
        _blank(payload, "prompt_token_ids")
        for choice in choices:
            _blank(choice, "token_ids")
            _blank(choice, "prompt_token_ids")
    if not job.wants_logprobs:
        for choice in choices:
            _blank(choice, "logprobs")
    return job.wants_token_ids or job.wants_logprobs or not _is_empty_delta(payload, choices)


def _blank(value: dict[str, Any], name: str) -> None:
    """vLLM writes null for what was not asked for; a field that is absent stays absent."""
    if name in value:
        value[name] = None


def _is_empty_delta(payload: dict[str, Any], choices: list[dict[str, Any]]) -> bool:
    """A tool parser that holds text back sends no chunk, unless token ids or log-probabilities are asked for."""
    if len(choices) != 1 or payload.get("usage"):
        return False
    choice = choices[0]
    return choice.get("delta") == {} and choice.get("finish_reason") is None
