"""SIGTERM: raised at once as Terminated, or kept back until a step's state is whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gatevalve_trainer.errors import Terminated


class StopSignal:
    """Whether the process was told to stop."""

    def __init__(self) -> None:
        self.requested = False
        self._deferred = False

    def install(self) -> None:
        """Take over SIGTERM of this process."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def request(self) -> None:
        """Note that the process shall stop; raises Terminated unless deferred."""
        self.requested = True
        if not self._deferred:
            raise Terminated("told to stop (SIGTERM)")

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within, a stop is only noted: the caller looks at `requested` where its state is whole."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()


STOP = StopSignal()
"""The process's one stop signal."""
