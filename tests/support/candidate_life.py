"""One candidate's life, from an empty namespace to a person's Rollback, on an API server in memory with real files and a real key.

Operators come and go; what they left is compared as a whole. The wall clock stands still, so that two lives that went well are the same to
the byte; waiting goes `SPEED` times faster than real time.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.reasons import Action
from gatevalve.contracts.serving import SignedDocument
from gatevalve.decide.channel import decide
from gatevalve.engine.chain import copy_of, read_link, verify_chain
from gatevalve.engine.engine import Engine, Ports
from gatevalve.io.ports import (
    ADAPTER_CANDIDATES,
    ADAPTER_CHANNELS,
    ADAPTER_RELEASES,
    CONFIGMAPS,
    GATE_POLICIES,
    JOBS,
    PODS,
    KubeObject,
    Resource,
)
from gatevalve.io.signing import Signer
from gatevalve.io.store import Area, FileLog, SealedEvidence
from support import world
from support.engine_world import START, FakeCluster, FakePod, FakePods, keys_configmap, settings, signer
from support.scripted_jobs import ScriptedJobs

UID, CANDIDATE_UID = "channel-uid", "candidate-uid"
CONFIGMAP = "gatevalve-pool-support"
SPEED = 200.0
PATIENCE = 30.0
PIN = {"entry": "support-000000", "reason": "bad answers", "by": "jo"}
TRAIN = {"recipe": "SFT", "snapshot": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}}
STORY = ["Open", "Test", "Accept", "Promote", "Rollback"]


class HastyClock:
    """A wall clock that stands still, and waiting that goes SPEED times faster."""

    def now(self) -> datetime:
        return START

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


@dataclass
class RecordingCluster(FakeCluster):
    """The API server in memory; it remembers every document that was committed and every Job that was made."""

    commits: list[SignedDocument] = field(default_factory=list)
    jobs_made: list[str] = field(default_factory=list)

    def _stored(self, resource: Resource, thing: KubeObject, kind: str) -> KubeObject:
        if resource is CONFIGMAPS and "support" in thing.get("data", {}):
            self.commits.append(SignedDocument.parse_json(thing["data"]["support"]))
        if resource is JOBS and kind == "ADDED":
            self.jobs_made.append(thing["metadata"]["name"])
        return super()._stored(resource, thing, kind)


@dataclass
class Life:
    """The world of one candidate."""

    root: Path
    key: Signer
    clock: HastyClock
    cluster: RecordingCluster
    pods: FakePods

    @classmethod
    def begin(cls, root: Path) -> Life:
        """Two pods and a policy; nobody has asked for anything yet."""
        root.mkdir(exist_ok=True)
        key, clock, cluster = signer(root), HastyClock(), RecordingCluster()
        pods = FakePods(key, clock)
        for number in (1, 2):
            pod = FakePod(f"pod-{number}", f"10.0.0.{number}", f"pod-uid-{number}", base=("tiny-words", world.BASE_DIGEST))
            pods.pods[pod.ip] = pod
            cluster.put(PODS, pod.object("support"))
        cluster.put(CONFIGMAPS, keys_configmap(key))
        cluster.put(GATE_POLICIES, {"metadata": {"name": "support-v1"}, "spec": world.policy().wire()})
        cluster.watchers.append(ScriptedJobs(cluster, root / "sealed").saw)
        return cls(root, key, clock, cluster, pods)

    # ---- operators

    def ports(self) -> Ports:
        """What an operator of this world is connected to."""
        log, sealed = FileLog(Area(f"file://{self.root}/log")), SealedEvidence(Area(f"file://{self.root}/sealed"))
        return Ports(self.cluster, self.pods, log, sealed, self.key, self.clock)

    @asynccontextmanager
    async def operator(self, ports: Ports) -> AsyncIterator[Engine]:
        """A running operator; leaving the context is a kill as far as memory goes."""
        engine = Engine(ports, settings(self.key.key_id), decide, CollectorRegistry())
        self.cluster.watchers.append(engine.saw)
        task: asyncio.Task[None] | None = None
        try:
            await engine.resync()
            task = asyncio.create_task(engine.run())
            yield engine
        finally:
            self.cluster.watchers.remove(engine.saw)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # ---- what people do

    async def people(self) -> None:
        """A channel, a candidate, and when that serves a pin to the base."""
        self.open_channel()
        await until(lambda: self.condition("Ready") == "AsExpected", "the channel is Ready")
        self.apply_candidate()
        await until(lambda: self.is_live(3), "the promotion is live")
        self.pin()
        await until(lambda: self.is_live(4), "the rollback is live")

    def open_channel(self) -> None:
        """kubectl apply of the channel."""
        spec = world.channel_spec(serving={"pool": "support", "rolloutSeconds": 86_400})
        self.cluster.put(ADAPTER_CHANNELS, {"metadata": {"name": "support", "uid": UID}, "spec": spec.wire()})

    def apply_candidate(self) -> None:
        """kubectl apply of the candidate."""
        spec = {"channel": "support", "train": TRAIN}
        self.cluster.put(ADAPTER_CANDIDATES, {"metadata": {"name": "c1", "uid": CANDIDATE_UID}, "spec": spec})

    def pin(self) -> None:
        """kubectl patch of the channel."""
        known = self.cluster.objects[ADAPTER_CHANNELS.plural, "support"]
        metadata = {**known["metadata"], "generation": known["metadata"]["generation"] + 1}
        self.cluster.put(ADAPTER_CHANNELS, {**known, "metadata": metadata, "spec": {**known["spec"], "pin": PIN}})

    # ---- what can be seen

    @property
    def log(self) -> list[AdapterReleaseSpec]:
        """The log, which must be sound at every moment."""
        chain = verify_chain("support", self._all(ADAPTER_RELEASES).values(), lambda thing: read_link(thing, self.key.verify_key))
        assert chain.problem is None, chain.problem
        return [link.spec for link in chain.links]

    @property
    def actions(self) -> list[str]:
        """The log's actions."""
        return [str(entry.action) for entry in self.log]

    @property
    def copies(self) -> dict[str, bytes]:
        """The external log; a file whose name is no entry's is left out, as readers leave it out."""
        return {path.name: path.read_bytes() for path in sorted((self.root / "log" / UID).glob("[0-9]*.json"))}

    def condition(self, kind: str) -> str | None:
        """The reason of a condition of the channel."""
        found = self.channel_condition(kind)
        return str(found["reason"]) if found else None

    def channel_condition(self, kind: str) -> dict[str, Any] | None:
        """A condition of the channel."""
        channel = self.cluster.objects.get((ADAPTER_CHANNELS.plural, "support"), {})
        return next((c for c in channel.get("status", {}).get("conditions", []) if c["type"] == kind), None)

    def is_live(self, sequence: int) -> bool:
        """An entry serves on every pod, and its status tells."""
        name = f"support-{sequence:06d}"
        entry = self.cluster.objects.get((ADAPTER_RELEASES.plural, name), {})
        return "liveSince" in entry.get("status", {}) and self.answering == {name}

    @property
    def answering(self) -> set[str | None]:
        """The entries that pods answer from."""
        return {pod.held.document.routes[0].entry if pod.held else None for pod in self.pods.pods.values()}

    def outcome(self) -> dict[str, Any]:
        """Everything that a life leaves behind, but Events (for people, may be lost) and measured times."""
        return {
            "log": [entry.wire() for entry in self.log],
            "copies": self.copies,
            "statuses": {
                f"{resource.plural}/{name}.{what}": told
                for resource in (ADAPTER_CHANNELS, ADAPTER_CANDIDATES, ADAPTER_RELEASES)
                for name, thing in self._all(resource).items()
                for what, told in thing.get("status", {}).items()
                if what != "timings"
            },
            "jobs": {name: thing["spec"] for name, thing in self._all(JOBS).items()},
            "committed": self._all(CONFIGMAPS)[CONFIGMAP]["data"],
            "pods": {pod.name: pod.held.document.wire() if pod.held else None for pod in self.pods.pods.values()},
            "annotations": {
                name: thing["metadata"].get("annotations") for name, thing in self._all(PODS).items() if name.startswith("pod-")
            },
        }

    def must_be_sound(self) -> None:
        """One gapless chain, copied to the byte, no entry and no Job twice, and no commit that went back."""
        assert {f"{entry.sequence:06d}.json": copy_of(entry.wire()) for entry in self.log} == self.copies
        told = [(entry.candidate.uid, entry.action) for entry in self.log if entry.candidate]
        assert len(told) == len(set(told)), told
        assert len(self.cluster.jobs_made) == len(set(self.cluster.jobs_made)), self.cluster.jobs_made
        revisions = [signed.document.revision for signed in self.cluster.commits]
        assert revisions == sorted(revisions), revisions
        accepted = {entry.lineage.adapter_digest for entry in self.log if entry.action is Action.ACCEPT and entry.lineage}
        assert {adapter.digest for signed in self.cluster.commits for adapter in signed.document.adapters} <= accepted

    def _all(self, resource: Resource) -> dict[str, KubeObject]:
        return {name: copy.copy(thing) for (plural, name), thing in sorted(self.cluster.objects.items()) if plural == resource.plural}


def is_quiet(engine: Engine) -> bool:
    """The operator has nothing to do and nothing to look at again."""
    return engine.queue.depth == 0 and not engine.queue._due


async def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.002)


async def until_quiet(engine: Engine) -> None:
    """Wait until an operator has done what there is to do, and is still idle a moment later."""
    calm = 0
    while calm < 5:
        calm = calm + 1 if is_quiet(engine) else 0
        await asyncio.sleep(0.002)
