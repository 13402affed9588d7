"""A world for the engine's tests: an API server in memory, pods that obey signed documents, a clock that jumps, and a fresh key.

The API server keeps the rules the engine relies on: create is a compare-and-swap, resourceVersion is a precondition, status is apart,
selectors select. The real one decides in tests/cluster.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gatevalve.build.jobs import Place
from gatevalve.contracts.errors import AlreadyExistsError, ConflictError, NotFoundError, ServingError
from gatevalve.contracts.kinds import AdapterReleaseSpec, ChannelRef, Opening, Serves
from gatevalve.contracts.names import API_VERSION, CERTIFICATE_FILE, KEYS_CONFIGMAP, LABEL_POOL, SIGNING_KEY_FILE, entry_name
from gatevalve.contracts.reasons import Action, EntryReason
from gatevalve.contracts.serving import AdapterReport, AdapterState, EngineLimits, PodReport, SignedDocument
from gatevalve.decide.view import Settings
from gatevalve.engine.cache import WATCHED
from gatevalve.io.ports import ADAPTER_RELEASES, KubeObject, Listing, PodAddress, Resource
from gatevalve.io.signing import Signer

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMESPACE = "team"
CHANNEL_UID = "11111111-1111-1111-1111-111111111111"
DIGEST = "sha256:" + "a" * 64


class VirtualClock:
    """Time that stands still until `advance` moves it."""

    def __init__(self) -> None:
        self.at = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.at + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time, waking every sleeper at its moment and letting it run before time goes on."""
        await settle()
        end = self.at + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.at, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self.at = end
        await settle()


async def settle() -> None:
    """Let every task run until none has anything to do."""
    for _ in range(50):
        await asyncio.sleep(0)


@lru_cache(maxsize=4)
def key_files(name: str) -> tuple[bytes, bytes]:
    """(tls.key, tls.crt) of a fresh ed25519 key with a self-signed certificate."""
    private = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START - timedelta(days=1))
        .not_valid_after(START + timedelta(days=3650))
        .sign(private, None)
    )
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate.public_bytes(Encoding.PEM)


def write_key(directory: Path, name: str = "operator") -> Path:
    """A directory as the signing Secret is mounted."""
    directory.mkdir(parents=True, exist_ok=True)
    key, certificate = key_files(name)
    (directory / SIGNING_KEY_FILE).write_bytes(key)
    (directory / CERTIFICATE_FILE).write_bytes(certificate)
    return directory


def signer(directory: Path, name: str = "operator") -> Signer:
    """A signer with a key of its own."""
    return Signer.from_directory(write_key(directory / f"signing-{name}", name))


def keys_configmap(key: Signer) -> KubeObject:
    """ConfigMap gatevalve-keys as the chart makes it."""
    return {"metadata": {"name": KEYS_CONFIGMAP}, "data": {CERTIFICATE_FILE: key.verify_key.certificate.decode()}}


def settings(key_id: str) -> Settings:
    """Settings of an operator in NAMESPACE."""
    place = Place(
        namespace=NAMESPACE,
        trainer_image="trainer:1",
        serving_image="serving:1",
        data_claim="data",
        sealed_claim="sealed",
        models_claim=None,
        models_host_path="/models",
        run_as_user=1000,
    )
    return Settings(place=place, operator_version="0.1.0", key_id=key_id, started_at=datetime(2026, 1, 1, tzinfo=UTC))


def draft(sequence: int, action: Action = Action.TEST, channel: str = "support", uid: str = CHANNEL_UID, **more: Any) -> AdapterReleaseSpec:
    """An entry as a plan holds it; number 0 is an Open."""
    if sequence == 0 and "opening" not in more:
        base = {"name": "tiny", "uri": "file:///models/tiny", "digest": DIGEST}
        more = {"opening": Opening.parse({"base": base}), "serves": Serves(base=True), **more}
        action = Action.OPEN
    fields: dict[str, Any] = {
        "channel": ChannelRef(name=channel, uid=uid),
        "sequence": sequence,
        "action": action,
        "reason": EntryReason.CHANNEL_OPENED if action is Action.OPEN else EntryReason.TEST_OPENED,
        "actor": "gatevalve",
        "decided_at": "2026-01-02T03:04:05Z",
        "operator_version": "0.1.0",
        "key_id": DIGEST,
    }
    return AdapterReleaseSpec(**(fields | more))


def release_object(spec: AdapterReleaseSpec, version: int = 1) -> KubeObject:
    """An entry as the API server holds it."""
    name = entry_name(spec.channel.name, spec.sequence)
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"apiVersion": API_VERSION, "kind": ADAPTER_RELEASES.kind, "metadata": metadata, "spec": spec.wire()}


def sealed_log(key: Signer, *drafts: AdapterReleaseSpec) -> list[AdapterReleaseSpec]:
    """Entries signed and chained in order."""
    entries: list[AdapterReleaseSpec] = []
    for entry in drafts:
        entries.append(key.seal(entry, entries[-1].digest if entries else None))
    return entries


@dataclass
class FakeCluster:
    """An API server in memory. `watchers` hear of every change; `faults` raise before the n-th next call of a verb on a plural."""

    watchers: list[Callable[[Resource, str, KubeObject], None]] = field(default_factory=list)
    objects: dict[tuple[str, str], KubeObject] = field(default_factory=dict)
    faults: dict[tuple[str, str], list[Exception | None]] = field(default_factory=dict)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    somebody_elses: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of statuses, by object, that another field manager owns: server-side apply leaves them."""
    _version: int = 100

    def fail(self, verb: str, plural: str, *errors: Exception | None) -> None:
        """The next calls raise these errors in turn; None lets one pass."""
        self.faults.setdefault((verb, plural), []).extend(errors)

    async def get(self, resource: Resource, name: str) -> KubeObject | None:
        await self._called("get", resource, name)
        return copy.deepcopy(self.objects.get((resource.plural, name)))

    async def list(self, resource: Resource, labels: str = "") -> Listing:
        await self._called("list", resource, labels)
        found = [thing for (plural, _), thing in sorted(self.objects.items()) if plural == resource.plural and selects(labels, thing)]
        return Listing(tuple(copy.deepcopy(found)), str(self._version))

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> KubeObject:
        name = body["metadata"]["name"]
        await self._called("create", resource, name)
        if (resource.plural, name) in self.objects:
            raise AlreadyExistsError(f"{resource.plural} {name} exists")
        thing = copy.deepcopy(dict(body))
        thing["metadata"] |= {"uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z"}
        thing.setdefault("apiVersion", resource.api_version)
        thing.setdefault("kind", resource.kind)
        return self._stored(resource, thing, "ADDED")

    async def delete(self, resource: Resource, name: str, uid: str | None = None) -> None:
        await self._called("delete", resource, name)
        known = self.objects.get((resource.plural, name))
        if known is None:
            return
        if uid is not None and known["metadata"]["uid"] != uid:
            raise ConflictError(f"{name} has another uid")
        self.remove(resource, name)

    async def apply(self, resource: Resource, body: Mapping[str, Any], manager: str, subresource: str = "") -> KubeObject:
        name = body["metadata"]["name"]
        await self._called("apply", resource, name)
        known = self.objects.get((resource.plural, name))
        if known is None:
            if subresource:
                raise NotFoundError(f"{name} does not exist")
            return await self.create(resource, body)
        if body["metadata"].get("resourceVersion") not in (None, known["metadata"]["resourceVersion"]):
            raise ConflictError(f"{name} has another resourceVersion")
        thing = copy.deepcopy(known)
        if subresource == "status":
            thing["status"] = {**self.somebody_elses.get(name, {}), **copy.deepcopy(body["status"])}
        else:
            thing["data"] = {**thing.get("data", {}), **body.get("data", {})}
            if "labels" in body["metadata"]:
                thing["metadata"]["labels"] = {**thing["metadata"].get("labels", {}), **body["metadata"]["labels"]}
        return self._stored(resource, thing, "MODIFIED") if thing != known else copy.deepcopy(known)

    async def merge(self, resource: Resource, name: str, patch: Mapping[str, Any], subresource: str = "") -> KubeObject:
        await self._called("merge", resource, name)
        known = self.objects.get((resource.plural, name))
        if known is None:
            raise NotFoundError(f"{name} does not exist")
        if subresource == "status":
            self.somebody_elses.pop(name, None)
        return self._stored(resource, _merged(known, patch), "MODIFIED")

    def put(self, resource: Resource, thing: Mapping[str, Any]) -> KubeObject:
        """What somebody else writes, past all rules: a new object or another version of one."""
        new = copy.deepcopy(dict(thing))
        known = self.objects.get((resource.plural, new["metadata"]["name"]))
        defaults = {"uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z"}
        new["metadata"] = {**defaults, **(known["metadata"] if known else {}), **new["metadata"]}
        return self._stored(resource, new, "MODIFIED" if known else "ADDED")

    def remove(self, resource: Resource, name: str) -> None:
        """What somebody else deletes."""
        gone = self.objects.pop((resource.plural, name))
        self._tell(resource, "DELETED", gone)

    def _stored(self, resource: Resource, thing: KubeObject, kind: str) -> KubeObject:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self.objects[resource.plural, thing["metadata"]["name"]] = thing
        self._tell(resource, kind, thing)
        return copy.deepcopy(thing)

    def _tell(self, resource: Resource, kind: str, thing: KubeObject) -> None:
        if resource not in WATCHED or not selects(WATCHED[resource], thing):
            return
        for watcher in self.watchers:
            watcher(resource, kind, copy.deepcopy(thing))

    async def _called(self, verb: str, resource: Resource, what: str) -> None:
        await asyncio.sleep(0)
        self.calls.append((verb, resource.plural, what))
        pending = self.faults.get((verb, resource.plural))
        error = pending.pop(0) if pending else None
        if error is not None:
            raise error


def selects(selector: str, thing: KubeObject) -> bool:
    """A label selector of the forms `key`, `key=value` and `key in (a,b)`."""
    labels: dict[str, str] = thing["metadata"].get("labels") or {}
    if not selector:
        return True
    if " in " in selector:
        key, _, values = selector.partition(" in ")
        return labels.get(key) in values.strip("()").split(",")
    key, equal, value = selector.partition("=")
    return labels.get(key) == value if equal else key in labels


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


@dataclass
class FakePod:
    """A pod whose middleware takes every newer document and whose engine loads at once."""

    name: str
    ip: str
    uid: str
    boot: str = "boot-1"
    held: SignedDocument | None = None
    progress: int = 0
    down: bool = False
    hangs: bool = False
    answers: bool = True
    base: tuple[str, str] = ("tiny", DIGEST)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def bump(self) -> None:
        """Something changed."""
        self.progress += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def restart(self) -> None:
        """Its container starts anew: memory is empty and connections break."""
        self.held, self.boot, self.progress = None, f"{self.boot}+", 0
        self.changed.set()
        self.changed = asyncio.Event()

    def object(self, pool: str) -> KubeObject:
        """The Pod as the API server holds it."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "uid": self.uid, "labels": {LABEL_POOL: pool}, "creationTimestamp": "2026-01-02T03:04:05Z"},
            "status": {
                "phase": "Running",
                "podIP": self.ip,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            },
        }

    def report(self, channel: str) -> PodReport:
        """What the middleware says."""
        document = self.held.document if self.held else None
        return PodReport(
            pod=self.name,
            pod_uid=self.uid,
            boot=self.boot,
            channel=channel,
            base_name=self.base[0],
            base_digest=self.base[1],
            limits=EngineLimits(max_loras=4, max_lora_rank=64, max_cpu_loras=8, runtime_lora=True),
            revision=document.revision if document else (),
            document_digest=document.digest_of() if document else None,
            committed=document is not None,
            routes=document.routes if document else (),
            adapters=tuple(AdapterReport(name=a.name, digest=a.digest, state=AdapterState.VERIFIED) for a in document.adapters)
            if document
            else (),
            progress=self.progress,
        )


@dataclass
class FakePods:
    """Pods by address. Implements `ports.ServingPods`; only newer documents with a good signature are taken."""

    key: Signer
    clock: Any
    pods: dict[str, FakePod] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def put_document(self, pod: PodAddress, signed: SignedDocument) -> PodReport:
        target = await self._reached(pod, 5.0)
        self.key.verify_key.verify_document(signed)
        if target.held is None or signed.document.revision > target.held.document.revision:
            target.held = signed
            target.bump()
        return target.report(signed.document.channel)

    async def report(self, pod: PodAddress, channel: str, seconds: float) -> PodReport:
        return (await self._reached(pod, seconds)).report(channel)

    async def next_report(self, pod: PodAddress, channel: str, after: int) -> PodReport:
        target = await self._reached(pod, 25.0)
        boot = target.boot
        while target.progress <= after:
            await target.changed.wait()
            if target.boot != boot:
                raise ServingError("connection reset")
        return (await self._reached(pod, 25.0)).report(channel)

    async def ask_alias(self, pod: PodAddress, alias: str) -> str | None:
        target = await self._reached(pod, 10.0)
        self.asked.append(target.name)
        if not target.answers:
            raise ServingError("the engine is busy")
        return target.held.document.routes[0].entry if target.held else None

    async def _reached(self, address: PodAddress, seconds: float) -> FakePod:
        await asyncio.sleep(0)
        pod = self.pods.get(address.ip)
        if pod is not None and pod.hangs:
            await self.clock.sleep(seconds)
            raise ServingError("no answer in time")
        if pod is None or pod.down:
            raise ServingError("connection refused")
        return pod
