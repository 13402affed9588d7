"""The cache: the newest version of every object, however late or twice the watches tell it."""

from __future__ import annotations

from typing import Any

import pytest

from gatevalve.contracts.names import LABEL_CHANNEL, LABEL_POOL
from gatevalve.engine.cache import ObjectCache
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


def thing(name: str, version: int, uid: str = "", labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None) -> KubeObject:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": labels or {}}
    return {"metadata": metadata, "spec": spec or {}}


def names(cache: ObjectCache) -> list[tuple[str, str]]:
    return [(item["metadata"]["name"], item["metadata"]["resourceVersion"]) for item in cache.all(PODS)]


def test_an_older_version_never_replaces_a_newer_one() -> None:
    cache = ObjectCache()
    assert cache.put(PODS, thing("a", 9))
    assert not cache.put(PODS, thing("a", 8))
    assert not cache.put(PODS, thing("a", 9))
    assert cache.put(PODS, thing("a", 10))
    assert names(cache) == [("a", "10")]


def test_an_object_made_anew_under_the_same_name_replaces_the_old_one_and_its_late_deletion_does_not_remove_it() -> None:
    cache = ObjectCache()
    cache.put(PODS, thing("a", 9, "old"))
    cache.put(PODS, thing("a", 12, "new"))
    cache.drop(PODS, thing("a", 11, "old"))
    assert names(cache) == [("a", "12")]


def test_an_event_that_comes_after_the_deletion_does_not_bring_an_object_back() -> None:
    cache = ObjectCache()
    cache.put(PODS, thing("a", 9))
    cache.drop(PODS, thing("a", 10))
    assert not cache.put(PODS, thing("a", 9))
    assert names(cache) == []


def test_an_object_that_etcd_was_given_again_after_its_deletion_is_known_again() -> None:
    cache = ObjectCache()
    cache.put(PODS, thing("a", 9))
    cache.drop(PODS, thing("a", 10))
    assert cache.put(PODS, thing("a", 11))
    assert names(cache) == [("a", "11")]


def test_a_list_removes_what_it_lacks_unless_that_is_younger_than_the_list() -> None:
    cache = ObjectCache()
    cache.put(PODS, thing("gone", 5))
    cache.put(PODS, thing("kept", 6))
    cache.put(PODS, thing("young", 21))
    cache.replace(PODS, Listing((thing("kept", 6), thing("added", 7)), "20"))
    assert names(cache) == [("added", "7"), ("kept", "6"), ("young", "21")]


def test_managed_fields_are_not_kept() -> None:
    cache = ObjectCache()
    item = thing("a", 1)
    item["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    cache.put(PODS, item)
    assert "managedFields" not in (cache.get(PODS, "a") or {})["metadata"]


def test_of_configmaps_only_ours_are_kept_and_of_those_the_head() -> None:
    cache = ObjectCache()
    for name in ("gatevalve-pool-p", "gatevalve-keys", "kube-root-ca.crt", "gatevalve"):
        cache.put(CONFIGMAPS, {**thing(name, 1), "data": {"key": "a long document"}})
    assert [(item["metadata"]["name"], "data" in item) for item in cache.all(CONFIGMAPS)] == [
        ("gatevalve-keys", False),
        ("gatevalve-pool-p", False),
    ]


def world() -> ObjectCache:
    """Channels a and b on pool p, c on pool q; a and c name policy strict."""
    cache = ObjectCache()
    for name, pool, policy in [("a", "p", "strict"), ("b", "p", "lax"), ("c", "q", "strict")]:
        cache.put(ADAPTER_CHANNELS, thing(name, 1, spec={"serving": {"pool": pool}, "gatePolicy": policy}))
    return cache


CONCERNS: dict[str, tuple[Resource, KubeObject, set[str]]] = {
    "a channel concerns itself and its neighbours on the pool": (
        ADAPTER_CHANNELS,
        thing("a", 2, spec={"serving": {"pool": "p"}}),
        {"a", "b"},
    ),
    "a new channel concerns its neighbours too": (ADAPTER_CHANNELS, thing("d", 2, spec={"serving": {"pool": "q"}}), {"c", "d"}),
    "a channel with a broken spec concerns itself": (ADAPTER_CHANNELS, thing("a", 2, spec={"serving": 7}), {"a"}),
    "a candidate concerns the channel it names": (ADAPTER_CANDIDATES, thing("x", 2, spec={"channel": "b"}), {"b"}),
    "a candidate without a channel concerns none": (ADAPTER_CANDIDATES, thing("x", 2), set()),
    "an entry concerns the channel in its name": (ADAPTER_RELEASES, thing("my-channel-000007", 2), {"my-channel"}),
    "a policy concerns the channels that name it": (GATE_POLICIES, thing("strict", 2), {"a", "c"}),
    "a job concerns the channel on its label": (JOBS, thing("j", 2, labels={LABEL_CHANNEL: "b"}), {"b"}),
    "a pod concerns every channel of its pool": (PODS, thing("pod", 2, labels={LABEL_POOL: "p"}), {"a", "b"}),
    "a pool's ConfigMap concerns every channel of the pool, also without labels": (CONFIGMAPS, thing("gatevalve-pool-p", 2), {"a", "b"}),
    "the ConfigMap of keys concerns every channel": (CONFIGMAPS, thing("gatevalve-keys", 2), {"a", "b", "c"}),
    "a pod of no pool concerns none": (PODS, thing("pod", 2), set()),
}


@pytest.mark.parametrize("sentence", CONCERNS)
def test_of_what_changed_it_is_known_whom_it_concerns(sentence: str) -> None:
    resource, item, expected = CONCERNS[sentence]
    assert world().channels_of(resource, item) == expected


def test_every_channel_that_anything_names_is_known() -> None:
    cache = world()
    cache.put(ADAPTER_CANDIDATES, thing("x", 2, spec={"channel": "candidates-only"}))
    cache.put(ADAPTER_RELEASES, thing("entries-only-000000", 2))
    assert cache.channel_names() == {"a", "b", "c", "candidates-only", "entries-only"}
