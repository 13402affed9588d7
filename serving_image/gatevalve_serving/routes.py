"""The alias table and the requests in flight. A flip replaces one immutable object; a request keeps the route it was given."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

from gatevalve.contracts.kinds import Capture
from gatevalve.contracts.serving import Route


@dataclass(frozen=True, slots=True)
class Target:
    """What answers a request: the log entry, the engine's model name, and the adapter's digest (None = the base)."""

    entry: str
    model: str
    adapter_digest: str | None
    weight: int


@dataclass(frozen=True, slots=True)
class ChannelRoutes:
    """A channel's routes in force, with what its requests need to be captured."""

    channel: str
    uid: str
    alias: str
    base_digest: str
    capture: Capture
    routes: tuple[Route, ...]
    targets: tuple[Target, ...]

    def pick(self, request_id: str) -> Target:
        """The target of a request: weighted, the same for the same id."""
        point = share_of(request_id, "route") * sum(target.weight for target in self.targets)
        bounds = accumulate(target.weight for target in self.targets)
        return next(target for target, bound in zip(self.targets, bounds, strict=True) if point < bound)


def share_of(request_id: str, purpose: str) -> float:
    """A number in [0, 1) that a request's id fixes, independent for every purpose."""
    return int.from_bytes(hashlib.sha256(f"{purpose}:{request_id}".encode()).digest()[:6]) / 2**48


class RouteTable:
    """Routes in force by channel and alias."""

    def __init__(self) -> None:
        self._channels: Mapping[str, ChannelRoutes] = {}
        self._aliases: Mapping[str, ChannelRoutes] = {}

    def flip(self, routes: ChannelRoutes) -> None:
        """Put a channel's routes in force: requests that come from now on take them."""
        self._channels = {**self._channels, routes.channel: routes}
        self._aliases = {routes.alias: routes for routes in self._channels.values()}

    def of_channel(self, channel: str) -> ChannelRoutes | None:
        """The channel's routes in force."""
        return self._channels.get(channel)

    def of_alias(self, alias: object) -> ChannelRoutes | None:
        """The routes behind an alias."""
        return self._aliases.get(alias) if isinstance(alias, str) else None

    def aliases(self) -> list[str]:
        """Aliases that are served, sorted."""
        return sorted(self._aliases)


class InFlight:
    """Requests inside the engine by model name, counted from routing until the engine has returned."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._idle: dict[str, asyncio.Event] = {}

    @contextmanager
    def hold(self, model: str) -> Iterator[None]:
        """Count one request for as long as the block runs."""
        self._counts[model] += 1
        try:
            yield
        finally:
            self._release(model)

    def count(self, model: str) -> int:
        """Requests now in the engine on this model."""
        return self._counts[model]

    async def idle(self, model: str) -> None:
        """Wait until no request is in the engine on this model."""
        while self._counts[model]:
            await self._idle.setdefault(model, asyncio.Event()).wait()

    def _release(self, model: str) -> None:
        self._counts[model] -= 1
        if not self._counts[model]:
            del self._counts[model]
            if event := self._idle.pop(model, None):
                event.set()
