"""Registry: the engine's own list of adapters, compared with what this middleware put there.

An adapter that nobody here loaded came with `--lora-modules`, from a LoRA resolver plug-in, or by another way into the engine's process. No
alias leads to it; that it is there is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatevalve_serving.bypass import printable
from gatevalve_serving.inner import Engine

MOST_SHOWN, LONGEST_NAME = 16, 200
"""Bounds of the report's list."""


@dataclass(slots=True)
class Registry:
    """Names and paths that this process asked the engine to load and has not seen unloaded, and the names that are nobody's here."""

    engine: Engine
    _ours: set[tuple[str, str]] = field(default_factory=set)
    _foreign: frozenset[str] = frozenset()

    def claim(self, name: str, path: str) -> None:
        """The engine is about to be asked to load an adapter."""
        self._ours.add((name, path))

    def release(self, name: str, path: str) -> None:
        """The engine has unloaded it, or never had it."""
        self._ours.discard((name, path))

    def claimed(self, name: str, path: str) -> bool:
        """The engine was asked to load it, and may hold it, also where the load was given up."""
        return (name, path) in self._ours

    def places_taken(self, registered: Mapping[str, str]) -> int:
        """How many of the registered adapters are ours. The engine makes room for them: it drops what was not used for longest."""
        return len(self._ours & set(registered.items()))

    @property
    def names(self) -> frozenset[str]:
        """Every name that the engine may know as an adapter."""
        return self._foreign | {name for name, _ in self._ours}

    @property
    def shown(self) -> tuple[str, ...]:
        """Foreign adapters as the report shows them."""
        return tuple(printable(name, LONGEST_NAME) for name in sorted(self._foreign)[:MOST_SHOWN])

    async def look(self) -> bool:
        """Compare once; returns whether the foreign adapters changed. What is loaded or unloaded meanwhile is ours. Raises ServingError."""
        before = set(self._ours)
        registered = await self.engine.adapters()
        ours = before | self._ours
        foreign = frozenset(name for name, path in registered.items() if (name, path) not in ours)
        changed, self._foreign = foreign != self._foreign, foreign
        return changed
