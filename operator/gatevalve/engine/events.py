"""Kubernetes Events: one object per object, reason and message, counted; a few a minute for each object at most."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from datetime import datetime
from typing import Any

from gatevalve.contracts.errors import AlreadyExistsError, ClusterError
from gatevalve.contracts.names import API_VERSION
from gatevalve.decide.plan import Event
from gatevalve.io.clock import Clock
from gatevalve.io.ports import EVENTS, Cluster

log = logging.getLogger(__name__)

BURST, WINDOW_SECONDS = 25, 300.0
COMPONENT = "gatevalve"
MESSAGE_CHARACTERS = 1024


class EventRecorder:
    """Emits Events. One that is lost is logged: Events are for people, the log is the record."""

    def __init__(self, cluster: Cluster, clock: Clock, namespace: str) -> None:
        """Take the API, the clock and the namespace that the Events are in."""
        self._cluster, self._clock, self._namespace = cluster, clock, namespace
        self._recent: dict[str, deque[float]] = {}

    async def emit(self, event: Event) -> None:
        """Create the Event, or count it once more."""
        if not self._admit(event.uid):
            log.info("event on %s %s held back, too many lately: %s %s", event.kind, event.name, event.reason, event.message)
            return
        body = event_body(event, self._namespace, self._clock.now())
        try:
            await self._create_or_count(body)
        except ClusterError as error:
            log.warning("event on %s %s lost: %s", event.kind, event.name, error)

    async def _create_or_count(self, body: dict[str, Any]) -> None:
        try:
            await self._cluster.create(EVENTS, body)
        except AlreadyExistsError:
            known = await self._cluster.get(EVENTS, body["metadata"]["name"])
            count = int((known or {}).get("count") or 0) + 1
            await self._cluster.merge(EVENTS, body["metadata"]["name"], {"count": count, "lastTimestamp": body["lastTimestamp"]})

    def _admit(self, uid: str) -> bool:
        now = self._clock.monotonic()
        for stale in [key for key, times in self._recent.items() if now - times[-1] > WINDOW_SECONDS]:
            del self._recent[stale]
        times = self._recent.setdefault(uid, deque(maxlen=BURST))
        if len(times) == BURST and now - times[0] <= WINDOW_SECONDS:
            return False
        times.append(now)
        return True


def event_body(event: Event, namespace: str, now: datetime) -> dict[str, Any]:
    """The core/v1 Event; its name is fixed by object, reason and message, so that a repeat counts instead of piling up."""
    message = event.message[:MESSAGE_CHARACTERS]
    key = hashlib.sha256(f"{event.uid}\n{event.reason}\n{message}".encode()).hexdigest()[:16]
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    involved = {"apiVersion": API_VERSION, "kind": event.kind, "name": event.name, "namespace": namespace, "uid": event.uid}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{event.name}.{key}", "namespace": namespace},
        "involvedObject": involved,
        "reason": str(event.reason),
        "message": message,
        "type": "Warning" if event.warning else "Normal",
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
    }
