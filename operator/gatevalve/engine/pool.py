"""A pool as one channel sees it: the committed document, the Pods, and what each of them reports."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, ServingError
from gatevalve.contracts.kinds import AdapterChannelSpec, Timings
from gatevalve.contracts.names import CERTIFICATE_FILE, KEYS_CONFIGMAP, LABEL_POOL, pool_configmap
from gatevalve.contracts.serving import SignedDocument
from gatevalve.decide.view import PodView, PoolView
from gatevalve.engine.answers import AliasAnswers
from gatevalve.engine.cache import ObjectCache, in_spec
from gatevalve.engine.jobs import instant
from gatevalve.engine.timings import RolloutTimes
from gatevalve.io.clock import Clock
from gatevalve.io.ports import ADAPTER_CHANNELS, CONFIGMAPS, PODS, Cluster, KubeObject, PodAddress, ServingPods
from gatevalve.io.signing import VerifyKey

PATIENCE_SECONDS = 3.0
SUSPECT_PATIENCE_SECONDS = 0.3
"""Wait for a Pod that let us wait before: one that hangs must not hold up a rollback on the others."""


@dataclass(frozen=True, slots=True)
class PoolReaderPorts:
    """What reading a pool needs."""

    cluster: Cluster
    serving: ServingPods
    cache: ObjectCache
    answers: AliasAnswers
    times: RolloutTimes
    key: VerifyKey
    clock: Clock


class PoolReader:
    """Reads pools, all Pods at once."""

    def __init__(self, ports: PoolReaderPorts) -> None:
        """Take what it reads from."""
        self._ports = ports
        self._suspects: set[str] = set()

    async def read(self, channel: str, spec: AdapterChannelSpec) -> PoolView:
        """The pool now. Raises ClusterError; Pods that do not answer are told in their view."""
        pods = self._pods(spec.serving.pool)
        configmap, keys, views = await asyncio.gather(
            self._ports.cluster.get(CONFIGMAPS, pool_configmap(spec.serving.pool)),
            self._ports.cluster.get(CONFIGMAPS, KEYS_CONFIGMAP),
            asyncio.gather(*(self._pod(channel, spec, pod) for pod in pods)),
        )
        self._ports.answers.keep_only(channel, frozenset(pod.uid for pod in pods))
        document, problem = _document(configmap, channel, self._ports.key)
        version = configmap["metadata"]["resourceVersion"] if configmap else None
        whole = PoolView(
            document,
            problem,
            version,
            tuple(views),
            keys_problem=keys_problem(keys, self._ports.key),
            held_text=held_text(configmap, channel),
        )
        owner = self._alias_owner(channel, spec, configmap, whole)
        return replace(whole, alias_owner=owner, timings=self._timings(channel, whole))

    def _alias_owner(self, channel: str, spec: AdapterChannelSpec, configmap: KubeObject | None, pool: PoolView) -> str | None:
        """Another channel that holds the alias.

        Whoever is committed or serves comes before the oldest: neither age nor an edit of the ConfigMap takes an alias from who serves it.
        """
        committed = pool.document is not None and pool.document.document.alias == spec.alias
        if committed or any(pod.report is not None and pod.report.committed for pod in pool.pods):
            return None
        return left_over(configmap, channel, spec.alias, self._ports.key) or alias_owner(self._ports.cache, channel, spec)

    def _pods(self, pool: str) -> list[PodView]:
        labelled = (pod for pod in self._ports.cache.all(PODS) if (pod["metadata"].get("labels") or {}).get(LABEL_POOL) == pool)
        return [pod_view(pod) for pod in labelled if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]

    async def _pod(self, channel: str, spec: AdapterChannelSpec, pod: PodView) -> PodView:
        if not pod.running or pod.ip is None:
            return replace(pod, error="the Pod does not run yet" if not pod.terminating else "the Pod is being deleted")
        address = PodAddress(pod.ip, spec.serving.port)
        patience = SUSPECT_PATIENCE_SECONDS if pod.uid in self._suspects else PATIENCE_SECONDS
        started = self._ports.clock.monotonic()
        try:
            report = await self._ports.serving.report(address, channel, patience)
        except ServingError as error:
            if self._ports.clock.monotonic() - started >= SUSPECT_PATIENCE_SECONDS:
                self._suspects.add(pod.uid)
            return replace(pod, error=str(error))
        self._suspects.discard(pod.uid)
        if report.pod_uid != pod.uid:
            return replace(pod, error=f"{pod.ip} answers as Pod {report.pod} with uid {report.pod_uid}")
        return replace(pod, report=report, answering_entry=await self._ports.answers.heard(channel, spec.alias, address, report))

    def _timings(self, channel: str, pool: PoolView) -> Timings | None:
        if pool.document is None:
            return None
        entry = pool.document.document.routes[0].entry
        return self._ports.times.timings(channel, entry, [pod.uid for pod in pool.pods if pod.reachable])


def pod_view(pod: KubeObject) -> PodView:
    """A serving Pod without its report."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    ready = next((item for item in status.get("conditions") or () if item.get("type") == "Ready" and item.get("status") == "True"), None)
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        ip=status.get("podIP"),
        running=status.get("phase") == "Running" and "deletionTimestamp" not in metadata,
        ready=ready is not None,
        ready_since=instant(ready["lastTransitionTime"]) if ready and ready.get("lastTransitionTime") else None,
        terminating="deletionTimestamp" in metadata,
        annotations=metadata.get("annotations") or {},
    )


def alias_owner(cache: ObjectCache, channel: str, spec: AdapterChannelSpec) -> str | None:
    """An older channel that serves the same alias on the same pool; of two made in the same second the first by name."""
    rivals = [
        (str(other["metadata"]["creationTimestamp"]), str(other["metadata"]["name"]))
        for other in cache.all(ADAPTER_CHANNELS)
        if (in_spec(other, "serving", "pool"), in_spec(other, "alias")) == (spec.serving.pool, spec.alias)
        or other["metadata"]["name"] == channel
    ]
    first = min(rivals, default=("", channel))[1]
    return first if first != channel else None


def left_over(configmap: KubeObject | None, channel: str, alias: str, key: VerifyKey) -> str | None:
    """Another channel whose document in the pool's ConfigMap holds the alias: deleting a channel changes nothing in serving."""
    documents: dict[str, str] = (configmap or {}).get("data") or {}
    for other in sorted(documents):
        signed, _ = _document(configmap, other, key)
        if other != channel and signed is not None and signed.document.alias == alias:
            return other
    return None


def keys_problem(configmap: KubeObject | None, key: VerifyKey) -> str | None:
    """What is wrong with the certificate that pods verify with. Others beside it are no harm: a pod takes the one its own spec names."""
    if configmap is None:
        return "it is gone"
    raw = (configmap.get("data") or {}).get(CERTIFICATE_FILE)
    if raw is None:
        return f"key {CERTIFICATE_FILE} is gone"
    found = sha256(raw.encode())
    return f"key {CERTIFICATE_FILE} holds {found}, the certificate in use is {key.key_id}" if found != key.key_id else None


def held_text(configmap: KubeObject | None, channel: str) -> str | None:
    """What the channel's key in a pool's ConfigMap holds."""
    text: str | None = ((configmap or {}).get("data") or {}).get(channel)
    return text


def _document(configmap: KubeObject | None, channel: str, key: VerifyKey) -> tuple[SignedDocument | None, str | None]:
    raw = held_text(configmap, channel)
    if raw is None:
        return None, f"the key {channel} stands under binaryData" if channel in ((configmap or {}).get("binaryData") or {}) else None
    try:
        signed = SignedDocument.parse_json(raw)
        key.verify_document(signed)
    except (ContractError, IntegrityError) as error:
        return None, str(error)
    if signed.document.channel != channel:
        return None, f"the key {channel} holds a document of channel {signed.document.channel}"
    return signed, None
