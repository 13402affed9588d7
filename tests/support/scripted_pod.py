"""`python -m support.scripted_pod BASE PORT`: a serving Pod's process, the real middleware around the scripted engine.

For the rig, where what matters is how operator and middleware speak; answers of a real model are for tests with vLLM.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send

from gatevalve_serving.middleware import Gatevalve
from support.scripted_vllm import ScriptedVllm

MAX_LORAS = 4
"""Room for a live adapter, a warm one and one that is preloaded: what operators ask of a pool."""


class Served:
    """Middleware and engine as uvicorn runs them; Starlette would put the application into the scope."""

    def __init__(self, base: Path) -> None:
        self.engine = ScriptedVllm(base)
        self.engine.state.vllm_config.lora_config.max_loras = MAX_LORAS
        self.middleware = Gatevalve(self.engine)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        await self.middleware({**scope, "app": self.engine}, receive, send)


def main() -> None:
    """Serve until the Pod is told to stop."""
    base, port = Path(sys.argv[1]), int(sys.argv[2])
    uvicorn.run(Served(base), host=os.environ["POD_IP"], port=port, log_level="warning")


if __name__ == "__main__":
    main()
