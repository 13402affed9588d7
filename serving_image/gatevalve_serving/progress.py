"""A number that grows with every change, and can be waited for: what long-polls hang on."""

from __future__ import annotations

import asyncio


class Progress:
    """Counts changes; `listeners` of it are told of each one."""

    def __init__(self) -> None:
        self.value = 0
        self._event = asyncio.Event()

    def bump(self) -> None:
        """Something changed."""
        self.value += 1
        self._event.set()
        self._event = asyncio.Event()

    async def past(self, value: int, seconds: float) -> None:
        """Return when the value differs from the given one, or after some seconds."""
        try:
            async with asyncio.timeout(seconds):
                while self.value == value:
                    await self._event.wait()
        except TimeoutError:
            return
