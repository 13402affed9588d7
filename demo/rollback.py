"""The way back, timed from outside: from the API server accepting a pin to the last pod answering the restored entry through the alias."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field

from demo.stage import CHANNEL, NAMESPACE, Stage, StoryError

POLL_SECONDS = 0.01
LIMIT_SECONDS = 60
ENGINE_PORT = 8000


@dataclass
class Watch:
    """Asks one pod through the alias, again and again, and notes when each entry first answered."""

    url: str
    first: dict[str, float] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Poll until stopped; a refused connection is simply asked again."""
        body = json.dumps({"model": CHANNEL, "prompt": "a", "max_tokens": 1}).encode()
        headers = {"content-type": "application/json", "x-gatevalve-probe": "1"}
        while not self.stop.is_set():
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=10) as reply:
                    self.first.setdefault(reply.headers.get("x-gatevalve-release", "none"), time.monotonic())
            except OSError:
                pass
            time.sleep(POLL_SECONDS)


def pin(stage: Stage, entry: str, reason: str) -> tuple[str, float]:
    """Pin the channel; gives the Rollback entry and the milliseconds until the last pod answered from it."""
    before = {release["metadata"]["name"] for release in stage.items("adapterreleases")}
    patch = json.dumps({"spec": {"pin": {"entry": entry, "reason": reason, "by": stage.user()}}})
    with ExitStack() as stack:
        watches = [_watch(stage, stack, pod) for pod in stage.pool_pods()]
        time.sleep(1)
        stage.kubectl("patch", "adapterchannel", CHANNEL, "--type", "merge", "--patch", patch)
        accepted = time.monotonic()
        answered = [_answered(watch, before) for watch in watches]
        restored = {name for name, _ in answered}
    if len(restored) != 1:
        raise StoryError(f"pods answer from different entries after the pin: {sorted(restored)}")
    return restored.pop(), round((max(moment for _, moment in answered) - accepted) * 1000, 1)


def _watch(stage: Stage, stack: ExitStack, pod: str) -> Watch:
    port = stack.enter_context(stage.cluster.port_forward(NAMESPACE, f"pod/{pod}", ENGINE_PORT))
    watch = Watch(f"http://127.0.0.1:{port}/v1/completions")
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    stack.callback(thread.join, 15)
    stack.callback(watch.stop.set)
    return watch


def _answered(watch: Watch, before: set[str]) -> tuple[str, float]:
    """The first entry that did not exist before the pin, and when it first answered."""
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        fresh = {entry: moment for entry, moment in dict(watch.first).items() if entry not in before}
        if fresh:
            return min(fresh.items(), key=lambda pair: pair[1])
        time.sleep(POLL_SECONDS)
    raise StoryError(f"no pod answered from a new entry within {LIMIT_SECONDS} s of the pin")
