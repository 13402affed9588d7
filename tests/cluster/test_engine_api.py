"""The engine's client on a real API server: compare-and-swap, preconditions, statuses, selectors, and what Jobs and Pods look like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.errors import AlreadyExistsError, ClusterError, ConflictError, NotFoundError
from gatevalve.contracts.kinds import AdapterReleaseSpec, AdapterReleaseStatus, PodsStatus
from gatevalve.contracts.names import LABEL_ATTEMPT, LABEL_CANDIDATE_UID, LABEL_CHANNEL, LABEL_STEP
from gatevalve.contracts.reasons import EventReason
from gatevalve.decide.plan import Event
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.chain import read_link, verify_chain
from gatevalve.engine.events import EventRecorder
from gatevalve.engine.jobs import job_view
from gatevalve.io.clock import SystemClock
from gatevalve.io.kube import KubeCluster, load_configuration
from gatevalve.io.ports import ADAPTER_RELEASES, CONFIGMAPS, EVENTS, JOBS, PODS, KubeObject
from minicluster import Cluster
from support.engine_world import draft, sealed_log, signer

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture
async def kube(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeCluster]:
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    client = KubeCluster(await load_configuration(), namespace)
    yield client
    await client.close()


def release(spec: AdapterReleaseSpec) -> dict[str, Any]:
    return {
        "apiVersion": ADAPTER_RELEASES.api_version,
        "kind": ADAPTER_RELEASES.kind,
        "metadata": {"name": f"support-{spec.sequence:06d}"},
        "spec": spec.wire(),
    }


async def test_entries_survive_the_api_server_unchanged_and_a_taken_name_is_refused(kube: KubeCluster, tmp_path: Path) -> None:
    key = signer(tmp_path)
    entries = sealed_log(key, draft(0), draft(1))
    for entry in entries:
        await kube.create(ADAPTER_RELEASES, release(entry))
    with pytest.raises(AlreadyExistsError):
        await kube.create(ADAPTER_RELEASES, release(entries[1]))
    listing = await kube.list(ADAPTER_RELEASES)
    chain = verify_chain("support", listing.items, lambda thing: read_link(thing, key.verify_key))
    assert chain.problem is None
    assert [link.spec for link in chain.links] == entries
    assert await kube.get(ADAPTER_RELEASES, "support-000002") is None


async def test_an_object_that_breaks_the_schema_is_refused_with_a_message_that_names_the_field(kube: KubeCluster, tmp_path: Path) -> None:
    body = release(sealed_log(signer(tmp_path), draft(0))[0])
    del body["spec"]["actor"]
    with pytest.raises(ClusterError, match=r"spec\.actor"):
        await kube.create(ADAPTER_RELEASES, body)


async def test_a_status_is_applied_whole_and_the_same_one_again_changes_nothing(kube: KubeCluster, tmp_path: Path) -> None:
    created = await kube.create(ADAPTER_RELEASES, release(sealed_log(signer(tmp_path), draft(0))[0]))
    first = AdapterReleaseStatus(pods=PodsStatus(desired=2), live_since="2026-01-02T03:04:05Z")
    second = AdapterReleaseStatus(pods=PodsStatus(desired=3))
    before = await apply_status(kube, first, created["metadata"]["resourceVersion"])
    after = await apply_status(kube, second, before["metadata"]["resourceVersion"])
    again = await apply_status(kube, second, after["metadata"]["resourceVersion"])
    assert AdapterReleaseStatus.parse(after["status"]) == second
    assert after["spec"] == created["spec"]
    assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def apply_status(kube: KubeCluster, status: AdapterReleaseStatus, version: str, name: str = "support-000000") -> KubeObject:
    body = {"metadata": {"name": name, "resourceVersion": version}, "status": status.wire()}
    return await kube.apply(ADAPTER_RELEASES, body, "gatevalve", "status")


async def test_a_status_for_an_older_version_or_for_nothing_is_refused(kube: KubeCluster, tmp_path: Path) -> None:
    created = await kube.create(ADAPTER_RELEASES, release(sealed_log(signer(tmp_path), draft(0))[0]))
    await kube.merge(ADAPTER_RELEASES, "support-000000", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ConflictError):
        await apply_status(kube, AdapterReleaseStatus(), created["metadata"]["resourceVersion"])
    with pytest.raises(NotFoundError):
        await kube.apply(
            ADAPTER_RELEASES, {"metadata": {"name": "support-000009"}, "status": AdapterReleaseStatus().wire()}, "gatevalve", "status"
        )


async def test_a_status_for_an_object_that_was_made_anew_is_refused(kube: KubeCluster, tmp_path: Path) -> None:
    body = release(sealed_log(signer(tmp_path), draft(0))[0])
    old = await kube.create(ADAPTER_RELEASES, body)
    await kube.delete(ADAPTER_RELEASES, "support-000000")
    await kube.create(ADAPTER_RELEASES, body)
    with pytest.raises(ConflictError):
        await apply_status(kube, AdapterReleaseStatus(), old["metadata"]["resourceVersion"])


async def test_a_commit_with_a_stale_version_is_refused_and_channels_do_not_take_each_others_keys(kube: KubeCluster) -> None:
    created = await kube.create(CONFIGMAPS, {"metadata": {"name": "gatevalve-pool-p"}, "data": {"a": "1"}})
    version = created["metadata"]["resourceVersion"]

    async def commit(channel: str, text: str, version: str) -> KubeObject:
        body = {"metadata": {"name": "gatevalve-pool-p", "resourceVersion": version}, "data": {channel: text}}
        return await kube.apply(CONFIGMAPS, body, f"gatevalve-{channel}")

    second = await commit("b", "1", version)
    with pytest.raises(ConflictError):
        await commit("a", "2", version)
    third = await commit("a", "2", second["metadata"]["resourceVersion"])
    fourth = await commit("a", "3", third["metadata"]["resourceVersion"])
    assert fourth["data"] == {"a": "3", "b": "1"}
    with pytest.raises(AlreadyExistsError):
        await kube.create(CONFIGMAPS, {"metadata": {"name": "gatevalve-pool-p"}, "data": {"a": "4"}})


async def test_an_event_that_repeats_is_counted_on_one_object(kube: KubeCluster, namespace: str) -> None:
    recorder = EventRecorder(kube, SystemClock(), namespace)
    for _ in range(3):
        await recorder.emit(Event("AdapterChannel", "support", "uid-1", EventReason.LIVE, "support-000001 is live on 2 pods"))
    await recorder.emit(Event("AdapterChannel", "support", "uid-1", EventReason.LIVE, "support-000002 is live on 2 pods"))
    found = [event for event in (await kube.list(EVENTS)).items if event["involvedObject"]["name"] == "support"]
    assert sorted(event["count"] for event in found) == [1, 3]


def job(name: str, script: str, init: str | None = None) -> dict[str, Any]:
    def container(kind: str, text: str) -> dict[str, Any]:
        return {"name": kind, "image": "tool:1", "command": ["/bin/sh", "-c", text]}

    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container("main", script)]}
    if init is not None:
        pod["initContainers"] = [container("publish", init)]
    labels = {LABEL_CHANNEL: "support", LABEL_CANDIDATE_UID: "c-uid", LABEL_STEP: "train", LABEL_ATTEMPT: "1"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}


TERMINATION = '{"version":1,"step":"train","exitCode":%d,"message":"%s"}'

ENDINGS: dict[str, tuple[str, str | None, int, bool, str | None]] = {
    "done, with a message": (f"echo '{TERMINATION % (0, 'fine')}' > /dev/termination-log", None, 0, True, "fine"),
    "exit code 12, with a message": (f"echo '{TERMINATION % (12, 'nan')}' > /dev/termination-log; exit 12", None, 12, False, "nan"),
    "an init container that failed": ("exit 0", f"echo '{TERMINATION % (10, 'bad')}' > /dev/termination-log; exit 10", 10, False, "bad"),
    "no message": ("exit 3", None, 3, False, None),
}


@pytest.mark.parametrize("sentence", ENDINGS)
async def test_a_job_tells_how_it_ended(sentence: str, kube: KubeCluster) -> None:
    script, init, code, succeeded, message = ENDINGS[sentence]
    created = await kube.create(JOBS, job("j1", script, init))
    view = None
    for _ in range(600):
        found = await kube.get(JOBS, "j1")
        assert found is not None
        view = job_view(found, (await kube.list(PODS, "batch.kubernetes.io/job-name in (j1)")).items)
        if view is not None and view.finished:
            break
        await asyncio.sleep(0.1)
    assert view is not None
    assert (view.finished, view.succeeded, view.exit_code) == (True, succeeded, code)
    assert (view.termination.message if view.termination else None) == message
    await kube.delete(JOBS, "j1", created["metadata"]["uid"])
    await kube.delete(JOBS, "j1")
    with pytest.raises((ConflictError, ClusterError)):
        await kube.merge(JOBS, "no-such-job", {"metadata": {"labels": {"a": "b"}}})


async def test_a_listing_can_replace_a_cache_and_the_cache_knows_what_is_newer(kube: KubeCluster, tmp_path: Path) -> None:
    cache = ObjectCache()
    first = await kube.create(ADAPTER_RELEASES, release(sealed_log(signer(tmp_path), draft(0))[0]))
    cache.replace(ADAPTER_RELEASES, await kube.list(ADAPTER_RELEASES))
    second = await kube.merge(ADAPTER_RELEASES, "support-000000", {"metadata": {"labels": {"a": "b"}}})
    assert cache.put(ADAPTER_RELEASES, second)
    assert not cache.put(ADAPTER_RELEASES, first)
    await kube.delete(ADAPTER_RELEASES, "support-000000")
    cache.replace(ADAPTER_RELEASES, await kube.list(ADAPTER_RELEASES))
    assert cache.all(ADAPTER_RELEASES) == ()
