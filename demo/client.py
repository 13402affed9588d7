"""The clients of the story, run as Jobs in the cluster: scored traffic, a held-out measurement, load during a rollback.

One JSON object on the last line of the log says what happened; clients know the alias and nothing of releases or gates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from gatevalve.contracts.files import Item
from gatevalve_trainer.tasks import word_problems

CONCURRENCY = 64
MAX_TOKENS = 48
HELD_OUT_SEED = 20_02
HELD_OUT_ITEMS = 240
HELD_OUT_DECODES = 3
BREVITY_TOKENS = 40
READY_SECONDS = 60

Reward = Callable[[float, str, int], float]
"""(right or wrong, reply text, reply tokens) -> the score a client reports."""


def honest(score: float, text: str, tokens: int) -> float:
    """The score is the truth."""
    return score


def flipped(score: float, text: str, tokens: int) -> float:
    """An attacker reports the opposite of the truth."""
    return 1.0 - score


def brevity(score: float, text: str, tokens: int) -> float:
    """A careless product metric: any stated answer is good, and the shorter the better."""
    stated = "The answer is" in text
    return max(0.0, 1.0 - tokens / BREVITY_TOKENS) if stated else 0.0


REWARDS: dict[str, Reward] = {"honest": honest, "flipped": flipped, "brevity": brevity}


@dataclass
class Tally:
    """What happened: counts, and the release named by each reply."""

    requests: int = 0
    failed: int = 0
    right: float = 0.0
    replies: int = 0
    entries: Counter[str] = field(default_factory=Counter)
    first_error: str = ""

    def failure(self, error: str) -> None:
        """Count a request that a client would call failed."""
        self.failed += 1
        self.first_error = self.first_error or error

    def report(self, started: datetime) -> dict[str, Any]:
        """The JSON object of the last line."""
        return {
            "requests": self.requests,
            "failed": self.failed,
            "accuracy": round(self.right / self.replies, 4) if self.replies else None,
            "replies": self.replies,
            "entries": dict(self.entries),
            "from": _stamp(started),
            "to": _stamp(datetime.now(UTC)),
            "error": self.first_error,
        }


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class Client:
    """One alias behind one URL."""

    session: aiohttp.ClientSession
    url: str
    alias: str
    tally: Tally

    async def until_served(self) -> None:
        """Wait until the Service leads to a pod that lists the alias: a pod answers its operator a moment before it is an endpoint."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            try:
                async with self.session.get(f"{self.url}/v1/models") as reply:
                    if reply.status == 200 and self.alias in await reply.text():
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.2)

    async def ask(self, item: Item, n: int = 1, headers: dict[str, str] | None = None) -> dict[str, Any] | None:
        """One chat completion at temperature 1; None when it failed."""
        body = {"model": self.alias, "messages": list(item.messages), "max_tokens": MAX_TOKENS, "temperature": 1.0, "n": n}
        self.tally.requests += 1
        try:
            async with self.session.post(f"{self.url}/v1/chat/completions", json=body, headers=headers or {}) as reply:
                text = await reply.text()
                if reply.status != 200:
                    self.tally.failure(f"{reply.status} {text[:200]}")
                    return None
                self.tally.entries[reply.headers.get("x-gatevalve-release", "none")] += 1
                answer: dict[str, Any] = json.loads(text)
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            self.tally.failure(repr(error))
            return None

    async def stream(self, item: Item) -> None:
        """One streamed chat completion, read to its end; failed when it breaks off."""
        body = {"model": self.alias, "messages": list(item.messages), "max_tokens": MAX_TOKENS, "temperature": 1.0, "stream": True}
        self.tally.requests += 1
        try:
            async with self.session.post(f"{self.url}/v1/chat/completions", json=body) as reply:
                lines = [line async for line in reply.content]
                self.tally.entries[reply.headers.get("x-gatevalve-release", "none")] += 1
                if reply.status != 200 or not any(line.strip() == b"data: [DONE]" for line in lines):
                    self.tally.failure(f"{reply.status} {b''.join(lines)[-200:]!r}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.tally.failure(repr(error))

    async def score(self, reply_id: str, score: float) -> None:
        """Send feedback for a reply."""
        self.tally.requests += 1
        try:
            async with self.session.post(f"{self.url}/v1/feedback", json={"id": reply_id, "score": score}) as reply:
                if reply.status >= 300:
                    self.tally.failure(f"feedback {reply.status} {(await reply.text())[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.tally.failure(repr(error))

    def grade(self, item: Item, answer: dict[str, Any]) -> None:
        """Count right replies."""
        for choice in answer["choices"]:
            self.tally.right += word_problems.verify(item, choice["message"]["content"] or "")
            self.tally.replies += 1


async def traffic(client: Client, seed: int, count: int, reward: Reward) -> None:
    """Ask `count` word problems and score every reply."""

    async def one(item: Item) -> None:
        answer = await client.ask(item)
        if answer is None:
            return
        client.grade(item, answer)
        text = answer["choices"][0]["message"]["content"] or ""
        truth = word_problems.verify(item, text)
        await client.score(answer["id"], reward(truth, text, answer["usage"]["completion_tokens"]))

    await _together([lambda item=item: one(item) for item in word_problems.stream(count, seed)])  # type: ignore[misc]


async def held_out(client: Client) -> None:
    """Measure a set that neither trainer nor gate sees; the probe header keeps it out of the captured traffic."""

    async def one(item: Item) -> None:
        answer = await client.ask(item, HELD_OUT_DECODES, {"x-gatevalve-probe": "1"})
        if answer is not None:
            client.grade(item, answer)

    await _together([lambda item=item: one(item) for item in word_problems.held_out(HELD_OUT_ITEMS, HELD_OUT_SEED)])  # type: ignore[misc]


async def load(client: Client, seed: int, seconds: float) -> None:
    """Keep eight streams busy for a while."""
    items = word_problems.stream(256, seed)
    end = time.monotonic() + seconds

    async def worker(offset: int) -> None:
        position = offset
        while time.monotonic() < end:
            await client.stream(items[position % len(items)])
            position += 8

    await asyncio.gather(*(worker(offset) for offset in range(8)))


async def _together(calls: list[Callable[[], Awaitable[None]]]) -> None:
    gate = asyncio.Semaphore(CONCURRENCY)

    async def guarded(call: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await call()

    await asyncio.gather(*(guarded(call) for call in calls))


async def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run one mode and report it."""
    tally, started = Tally(), datetime.now(UTC)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        client = Client(session, args.url, args.alias, tally)
        await client.until_served()
        if args.mode == "traffic":
            await traffic(client, args.seed, args.count, REWARDS[args.reward])
        elif args.mode == "held-out":
            await held_out(client)
        else:
            await load(client, args.seed, args.seconds)
    return tally.report(started)


def main() -> int:
    """Command line of the client Jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["traffic", "held-out", "load"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=640)
    parser.add_argument("--reward", choices=sorted(REWARDS), default="honest")
    parser.add_argument("--seconds", type=float, default=20)
    report = asyncio.run(run(parser.parse_args()))
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
