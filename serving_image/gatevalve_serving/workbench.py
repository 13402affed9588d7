"""What the adapters of a pod share while they are brought up and retired: engine, facts, the base's files, one load at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from gatevalve_serving.base import BaseModel
from gatevalve_serving.config import Settings
from gatevalve_serving.engine import EngineFacts
from gatevalve_serving.inner import Engine
from gatevalve_serving.registry import Registry
from gatevalve_serving.routes import InFlight


@dataclass(slots=True)
class Workbench:
    """`base` is absent until its files are hashed; `loading` keeps the count of free places and the load that takes one together."""

    settings: Settings
    engine: Engine
    facts: EngineFacts
    in_flight: InFlight = field(default_factory=InFlight)
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    base: BaseModel | None = None
    base_known: asyncio.Event = field(default_factory=asyncio.Event)
    registry: Registry = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(self.engine)

    @property
    def adapters_path(self) -> Path:
        """The pod-local directory of adapters."""
        return self.settings.cache_path / "adapters"

    def learn_base(self, base: BaseModel) -> None:
        """The base's files are read."""
        self.base = base
        self.base_known.set()

    async def the_base(self) -> BaseModel:
        """The base, once its files are read."""
        await self.base_known.wait()
        if self.base is None:
            raise RuntimeError("base_known is set by learn_base alone")
        return self.base
