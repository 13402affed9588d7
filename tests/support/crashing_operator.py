"""The operator of a test, as a program: every process of it is killed after its first write, and the next one starts at once.

    python -m support.crashing_operator

The environment is the operator's own. Each death is told on a line of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from gatevalve.engine import main as operator
from gatevalve.engine.engine import Ports
from gatevalve.engine.settings import Environment
from gatevalve.io.signing import Signer
from support.crashing import Fuse, behind, crashing_disk

DEATH = "killed after:"
T = TypeVar("T")
_connected = operator.connected


@dataclass
class StepFuse(Fuse):
    """Blows at the first write; but a step of a publish, which every process begins anew, is no reason to die once one has died of it."""

    survived: frozenset[str] = frozenset()

    def write(self, what: str, work: Callable[[], T], error: Exception) -> T:
        """A step of a publish."""
        return work() if what in self.survived else super().write(what, work, error)


def main() -> NoReturn:
    """One process after the other, forked so that a start costs no imports; ends when told to."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    deaths: frozenset[str] = frozenset()
    while True:
        told, tells = os.pipe()
        child = os.fork()
        if child == 0:
            _live_and_die(tells, deaths)
        os.close(tells)
        with os.fdopen(told) as stream:
            death = stream.read()
        os.waitpid(child, 0)
        print(DEATH, death or "an error", flush=True)
        deaths |= {death}


def _live_and_die(tells: int, deaths: frozenset[str]) -> NoReturn:
    fuse = StepFuse(at=1, survived=deaths)

    def leave() -> NoReturn:
        """What SIGKILL does: nothing is flushed, closed or undone."""
        os.write(tells, fuse.writes[-1].encode())
        os._exit(137)

    @asynccontextmanager
    async def connected(environment: Environment, signer: Signer) -> AsyncIterator[Ports]:
        async with _connected(environment, signer) as ports:
            yield behind(fuse, ports)

    fuse.kill = leave
    operator.connected = connected
    with crashing_disk():
        try:
            operator.main()
        except BaseException as error:  # noqa: BLE001 - this process may not go on where its parent does
            print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
