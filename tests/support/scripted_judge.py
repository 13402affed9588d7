"""A scriptable judge on loopback: an OpenAI-compatible endpoint for faults of the protocol; it understands nothing that it compares."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import Canary
from support.chat_engine import Body, ChatEngine

JUDGE = "judge-70b"


@dataclass(frozen=True, slots=True)
class Pair:
    """What a judge is asked: two replies, and how many requests came before."""

    a: str
    b: str
    before: int


Answer = Callable[[Pair], str | web.StreamResponse]
"""The text of a judge's answer, or a whole response in its place."""


class ScriptedJudge(ChatEngine):
    """`asked` holds the bodies of all comparisons, `pairs` what they compare, `keys` the Authorization header of every request."""

    def __init__(self, answer: Answer, models: tuple[dict[str, Any], ...] = ({"id": JUDGE},)) -> None:
        super().__init__((), self._script)
        self.pairs: list[Pair] = []
        self.keys: list[str | None] = []
        self.answer, self._cards = answer, models

    def stop(self) -> None:
        """Take the judge away, once it has seen that its callers left: a connection that nobody closes would outlive the loop."""
        self._wait(_settle())
        super().stop()
        self._wait(_settle())

    @property
    def root(self) -> str:
        """What a policy names as the judge's url."""
        return f"{self.url}/v1"

    async def _list(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization"))
        return web.json_response({"object": "list", "data": list(self._cards)})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Authorization"))
        body = await request.json()
        self.asked.append(body)
        return await self._script(body, 0)

    async def _script(self, body: Body, before: int) -> web.StreamResponse:
        pair = Pair(section(body, "reply A"), section(body, "reply B"), len(self.pairs))
        self.pairs.append(pair)
        answer = self.answer(pair)
        return said(answer) if isinstance(answer, str) else answer


async def _settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def said(text: str) -> web.Response:
    """A completion with this text."""
    return web.json_response({"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]})


def mark(body: Body) -> str:
    """The mark of a request's sections, as its instructions name it."""
    found = re.search(r"the mark ([0-9a-f]{32}),", body["messages"][0]["content"])
    assert found
    return found[1]


def section(body: Body, title: str) -> str:
    """The text between the lines that open and close a section."""
    opens, closes = (f"=== {mark(body)} {title} {word}" for word in ("begins\n", "ends"))
    _, found, rest = body["messages"][1]["content"].partition(opens)
    assert found
    return str(rest.rpartition(f"\n{closes}")[0])


def prefers(better: Callable[[str], float]) -> Answer:
    """A judge that finds the reply of the greater number better, wherever it stands."""

    def answer(pair: Pair) -> str:
        a, b = better(pair.a), better(pair.b)
        return "They differ.\n" + ("tie" if a == b else "A" if a > b else "B")

    return answer


def always(text: str) -> Answer:
    """A judge that says the same of every pair."""
    return lambda pair: text


CANARIES = tuple(
    Canary(
        id=f"c{number}",
        messages=({"role": "user", "content": f"What is {number} and 1?"},),
        better=f"The sum is {number + 1}, better by 1000.",
        worse=f"A banana, better by {number}.",
    )
    for number in range(20)
)


def merit(text: str) -> float:
    """The greatest number in a text: what `prefers` goes by in tests."""
    return max((float(number) for number in re.findall(r"\d+", text)), default=0)


def canary_file(canaries: tuple[Canary, ...] = CANARIES) -> bytes:
    """Canaries as a file."""
    return b"".join(canary.canonical() + b"\n" for canary in canaries)


def write_canaries(root: Path, data: bytes | None = None) -> None:
    """The canaries in the data area below `root`."""
    folder = root / "data" / "suites"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "canaries.jsonl").write_bytes(canary_file() if data is None else data)


def judge_of(url: str, **changes: Any) -> dict[str, Any]:
    """The judge of a suite, as a policy writes it."""
    canaries = {"uri": "suites/canaries.jsonl", "digest": sha256(canary_file())}
    return {"url": url, "model": JUDGE, "canaries": canaries, **changes}
