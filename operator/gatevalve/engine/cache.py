"""What the watches told: the newest known version of every object, and which channels an object concerns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from gatevalve.contracts.names import KEYS_CONFIGMAP, LABEL_CHANNEL, LABEL_POOL, pool_configmap
from gatevalve.io.ports import (
    ADAPTER_CANDIDATES,
    ADAPTER_CHANNELS,
    ADAPTER_RELEASES,
    CONFIGMAPS,
    GATE_POLICIES,
    JOBS,
    PODS,
    KubeObject,
    Listing,
    Resource,
)

WATCHED: Mapping[Resource, str] = {
    ADAPTER_CHANNELS: "",
    ADAPTER_CANDIDATES: "",
    ADAPTER_RELEASES: "",
    GATE_POLICIES: "",
    JOBS: LABEL_CHANNEL,
    PODS: LABEL_POOL,
    CONFIGMAPS: "",
}
"""Watched resources and the label that selects them; Pods of Jobs are read when their Job is.

ConfigMaps are told apart by name: whoever edits a document can remove its labels as well. What they hold is read when a channel is.
"""

GRAVES = 10_000
"""Deleted uids that are remembered with their last version, so that a list or an event older than the deletion does not bring an object
back; a newer one does, because etcd was given it again."""


class ObjectCache:
    """Objects by resource and name. Older versions never replace newer ones."""

    def __init__(self) -> None:
        """Start empty."""
        self._objects: dict[Resource, dict[str, KubeObject]] = {resource: {} for resource in WATCHED}
        self._graves: OrderedDict[str, int] = OrderedDict()

    def get(self, resource: Resource, name: str) -> KubeObject | None:
        """An object by name."""
        return self._objects[resource].get(name)

    def all(self, resource: Resource) -> tuple[KubeObject, ...]:
        """Every object of a resource, by name."""
        return tuple(value for _, value in sorted(self._objects[resource].items()))

    def put(self, resource: Resource, new: KubeObject) -> bool:
        """Take a version in; False when it is not newer than what is known, or a ConfigMap of somebody else."""
        name, uid = new["metadata"]["name"], new["metadata"]["uid"]
        if resource is CONFIGMAPS and not _is_ours(name):
            return False
        old = self._objects[resource].get(name)
        if self._graves.get(uid, -1) >= _version(new) or (
            old is not None and old["metadata"]["uid"] == uid and _version(new) <= _version(old)
        ):
            return False
        self._objects[resource][name] = _trimmed(resource, new)
        return True

    def drop(self, resource: Resource, gone: KubeObject) -> None:
        """Forget a deleted object; an object of the same name with another uid stays."""
        name, uid = gone["metadata"]["name"], gone["metadata"]["uid"]
        if resource is CONFIGMAPS and not _is_ours(name):
            return
        self._graves[uid] = _version(gone)
        while len(self._graves) > GRAVES:
            self._graves.popitem(last=False)
        old = self._objects[resource].get(name)
        if old is not None and old["metadata"]["uid"] == uid:
            del self._objects[resource][name]

    def replace(self, resource: Resource, listing: Listing) -> None:
        """Take a live list in: what it lacks is gone, unless it is younger than the list."""
        listed = {item["metadata"]["uid"] for item in listing.items}
        for old in self.all(resource):
            if old["metadata"]["uid"] not in listed and _version(old) <= int(listing.resource_version):
                self.drop(resource, old)
        for item in listing.items:
            self.put(resource, item)

    def channels_of(self, resource: Resource, thing: KubeObject) -> frozenset[str]:
        """Names of the channels that must be looked at again when this object changes."""
        labels = thing["metadata"].get("labels") or {}
        if resource is ADAPTER_CHANNELS:
            neighbours = self._channels(lambda channel: _pool(channel) == _pool(thing))
            return neighbours | {thing["metadata"]["name"]}
        if resource is ADAPTER_CANDIDATES:
            return _strings([in_spec(thing, "channel")])
        if resource is ADAPTER_RELEASES:
            return _strings([thing["metadata"]["name"].rpartition("-")[0]])
        if resource is GATE_POLICIES:
            return self._channels(lambda channel: in_spec(channel, "gatePolicy") == thing["metadata"]["name"])
        if resource is PODS:
            return self._channels(lambda channel: _pool(channel) == labels.get(LABEL_POOL))
        if resource is CONFIGMAPS:
            name = thing["metadata"]["name"]
            return self._channels(lambda channel: name in (KEYS_CONFIGMAP, pool_configmap(str(_pool(channel)))))
        return _strings([labels.get(LABEL_CHANNEL)])

    def channel_names(self) -> frozenset[str]:
        """Every channel that exists, or that a candidate or an entry names."""
        found = [
            self.channels_of(resource, thing)
            for resource in (ADAPTER_CHANNELS, ADAPTER_CANDIDATES, ADAPTER_RELEASES)
            for thing in self.all(resource)
        ]
        return frozenset().union(*found)

    def _channels(self, chosen: Callable[[KubeObject], bool]) -> frozenset[str]:
        return frozenset(channel["metadata"]["name"] for channel in self.all(ADAPTER_CHANNELS) if chosen(channel))


def in_spec(thing: KubeObject, *path: str) -> object:
    """A value deep in an object's spec, or None: a spec that breaks its contract may hold anything anywhere."""
    value: object = thing.get("spec")
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _pool(channel: KubeObject) -> object:
    return in_spec(channel, "serving", "pool")


def _strings(values: Iterable[object]) -> frozenset[str]:
    return frozenset(value for value in values if isinstance(value, str) and value)


def _version(thing: KubeObject) -> int:
    """resourceVersions of one resource are ordered numbers (KEP-5504)."""
    return int(thing["metadata"]["resourceVersion"])


def _is_ours(configmap: str) -> bool:
    return configmap == KEYS_CONFIGMAP or configmap.startswith(pool_configmap(""))


def _trimmed(resource: Resource, thing: KubeObject) -> KubeObject:
    """Without managedFields, which nothing reads and which are half of an object; of a ConfigMap the head is enough."""
    metadata = {key: value for key, value in thing["metadata"].items() if key != "managedFields"}
    return {**thing, "metadata": metadata} if resource is not CONFIGMAPS else {"metadata": metadata}
