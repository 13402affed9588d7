"""The small parts: rollout times, the environment, metrics, events, kopf's settings and the operator's own HTTP."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from kubernetes.aio.client.configuration import Configuration
from prometheus_client import CollectorRegistry, generate_latest

from gatevalve.contracts.errors import ClusterError, ContractError
from gatevalve.contracts.kinds import AdapterReleaseStatus, Timings
from gatevalve.contracts.metrics import METRICS
from gatevalve.contracts.reasons import Action, EventReason
from gatevalve.decide.plan import Event, Plan, ReleaseStatusUpdate
from gatevalve.decide.view import EntryView, LogView
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.engine import RESYNC_SECONDS, Engine, Ports
from gatevalve.engine.events import BURST, WINDOW_SECONDS, EventRecorder, event_body
from gatevalve.engine.handlers import connection_info, operator_settings
from gatevalve.engine.metrics import Metrics, rejection_ratio
from gatevalve.engine.settings import Environment
from gatevalve.engine.timings import RolloutTimes
from gatevalve.engine.web import application
from gatevalve.io.ports import ADAPTER_CHANNELS, ADAPTER_RELEASES, EVENTS, PODS
from gatevalve.io.store import Area, FileLog, SealedEvidence
from support.engine_world import START, FakeCluster, FakePods, VirtualClock, draft, release_object, settings, signer

# ---- rollout times


def test_a_flip_lasts_from_the_commit_to_the_last_pods_first_answer() -> None:
    times = RolloutTimes()
    times.preloading("c", "c-000001", 0.0)
    times.preloading("c", "c-000001", 1.0)
    times.committed("c", "c-000001", 2.0)
    times.committed("c", "c-000001", 9.0)
    times.answered("c", "c-000001", "a", 2.25)
    assert times.timings("c", "c-000001", ["a", "b"]) is None
    times.answered("c", "c-000001", "b", 2.5)
    times.answered("c", "c-000001", "b", 7.0)
    assert times.timings("c", "c-000001", ["a", "b"]) == Timings(preload_ms=2000, flip_ms=500)


def test_an_entry_that_was_committed_before_the_start_has_no_times() -> None:
    times = RolloutTimes()
    times.answered("c", "c-000001", "a", 1.0)
    assert times.timings("c", "c-000001", ["a"]) is None


def test_a_newer_rollout_takes_the_place_of_an_older_one() -> None:
    times = RolloutTimes()
    times.committed("c", "c-000001", 1.0)
    times.answered("c", "c-000001", "a", 2.0)
    times.committed("c", "c-000002", 3.0)
    assert times.timings("c", "c-000001", ["a"]) is None
    assert times.timings("c", "c-000002", ["a"]) is None
    times.answered("c", "c-000002", "a", 3.1)
    assert times.timings("c", "c-000002", ["a"]) == Timings(flip_ms=100)


# ---- environment

ENV = {
    "GATEVALVE_NAMESPACE": "team",
    "GATEVALVE_TRAINER_IMAGE": "trainer:1",
    "GATEVALVE_SERVING_IMAGE": "serving:1",
    "GATEVALVE_DATA_CLAIM": "data",
    "GATEVALVE_SEALED_CLAIM": "sealed",
}


def test_what_the_chart_need_not_set_has_defaults() -> None:
    read = Environment.read(ENV)
    assert (read.sealed_url, read.log_url, read.metrics_port) == ("file:///gatevalve/sealed", "file:///gatevalve/log", 8080)
    assert read.settings("sha256:k", datetime.now(UTC)).namespace == "team"


@pytest.mark.parametrize("name", ENV)
def test_the_operator_does_not_start_without(name: str) -> None:
    with pytest.raises(ContractError, match=name):
        Environment.read({key: value for key, value in ENV.items() if key != name})


BAD: dict[str, dict[str, str]] = {
    "a port that is no number": {"GATEVALVE_METRICS_PORT": "http"},
    "a user that is no number": {"GATEVALVE_RUN_AS_USER": "root"},
    "two places for models": {"GATEVALVE_MODELS_CLAIM": "models", "GATEVALVE_MODELS_HOST_PATH": "/models"},
}


@pytest.mark.parametrize("sentence", BAD)
def test_the_operator_does_not_start_with(sentence: str) -> None:
    with pytest.raises(ContractError, match=next(reversed(BAD[sentence]))):
        Environment.read(ENV | BAD[sentence])


# ---- metrics


def test_every_metric_is_named_once_and_explained_in_one_sentence() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
        assert metric.sentence.endswith(".")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert bool(metric.buckets) == (metric.kind == "histogram")


def test_every_metric_is_exposed_under_its_full_name() -> None:
    registry = CollectorRegistry()
    Metrics(registry, ObjectCache())
    text = generate_latest(registry).decode()
    for metric in METRICS:
        assert f"# HELP {metric.full_name} {metric.sentence}" in text


def test_a_rollouts_times_are_observed_once_when_they_are_first_written() -> None:
    cache, registry = ObjectCache(), CollectorRegistry()
    metrics = Metrics(registry, cache)
    cache.put(ADAPTER_RELEASES, release_object(draft(1, Action.ROLLBACK)))
    timed = AdapterReleaseStatus(timings=Timings(flip_ms=300))
    metrics.written(ReleaseStatusUpdate("support-000001", timed), AdapterReleaseStatus())
    metrics.written(ReleaseStatusUpdate("support-000001", timed), timed)
    assert registry.get_sample_value("gatevalve_rollback_seconds_count", {"channel": "support"}) == 1
    assert registry.get_sample_value("gatevalve_rollback_seconds_sum", {"channel": "support"}) == 0.3
    assert registry.get_sample_value("gatevalve_flip_seconds_count", {"channel": "support"}) is None


def _log(*actions: Action) -> LogView:
    return LogView(tuple(EntryView(draft(n, action, opening=None), AdapterReleaseStatus(), True) for n, action in enumerate(actions)))


RATIOS: dict[str, tuple[LogView, float | None]] = {
    "nothing was judged": (_log(Action.OPEN, Action.TEST), None),
    "one of four was accepted": (_log(Action.REJECT, Action.ACCEPT, Action.PROMOTE, Action.REJECT, Action.REJECT), 0.75),
    "only the last twenty count": (_log(*[Action.ACCEPT] * 30, *[Action.REJECT] * 20), 1.0),
}


@pytest.mark.parametrize("sentence", RATIOS)
def test_the_rejection_ratio_when(sentence: str) -> None:
    log, expected = RATIOS[sentence]
    assert rejection_ratio(log) == expected


# ---- events

LIVE = Event("AdapterChannel", "support", "uid-1", EventReason.LIVE, "support-000001 is live on 2 pods")


async def test_an_event_that_repeats_is_counted() -> None:
    cluster, clock = FakeCluster(), VirtualClock()
    recorder = EventRecorder(cluster, clock, "team")
    await recorder.emit(LIVE)
    await recorder.emit(LIVE)
    (event,) = [thing for (plural, _), thing in cluster.objects.items() if plural == EVENTS.plural]
    assert (event["count"], event["reason"], event["type"]) == (2, "Live", "Normal")


async def test_an_object_gets_only_so_many_events_at_a_time() -> None:
    cluster, clock = FakeCluster(), VirtualClock()
    recorder = EventRecorder(cluster, clock, "team")
    for number in range(BURST + 10):
        await recorder.emit(Event("AdapterChannel", "support", "uid-1", EventReason.LIVE, f"number {number}"))
    assert len(cluster.objects) == BURST
    await recorder.emit(Event("AdapterChannel", "other", "uid-2", EventReason.LIVE, "another object"))
    assert len(cluster.objects) == BURST + 1
    await clock.advance(WINDOW_SECONDS + 1)
    await recorder.emit(Event("AdapterChannel", "support", "uid-1", EventReason.LIVE, "later"))
    assert len(cluster.objects) == BURST + 2


async def test_a_lost_event_stops_nothing() -> None:
    cluster = FakeCluster()
    cluster.fail("create", EVENTS.plural, ClusterError("forbidden"))
    await EventRecorder(cluster, VirtualClock(), "team").emit(LIVE)
    assert cluster.objects == {}


def test_a_long_message_is_cut_to_what_the_api_server_takes() -> None:
    body = event_body(Event("AdapterChannel", "s", "u", EventReason.LIVE, "x" * 5000, warning=True), "team", START)
    assert len(body["message"]) == 1024
    assert body["type"] == "Warning"


# ---- kopf


def test_kopf_neither_posts_nor_scans_and_sees_only_our_jobs_and_pods() -> None:
    told = operator_settings()
    assert not told.posting.enabled
    assert told.scanning.disabled
    selectors = {str(key): value for key, value in told.watching.label_selectors.items()}
    assert sorted(selectors.values()) == ["gatevalve.dev/channel", "gatevalve.dev/pool"]


def test_kopf_logs_in_with_the_credentials_of_our_own_client() -> None:
    configuration = Configuration()
    configuration.host, configuration.ssl_ca_cert = "https://10.0.0.1:443", "/ca.crt"
    configuration.api_key["BearerToken"] = "bearer abc"
    info = connection_info(configuration)
    assert (info.server, info.ca_path, info.token, info.insecure) == ("https://10.0.0.1:443", "/ca.crt", "abc", False)


# ---- HTTP


@pytest.fixture
def engine(tmp_path: Path) -> tuple[Engine, FakeCluster, VirtualClock, CollectorRegistry]:
    key, clock, cluster, registry = signer(tmp_path), VirtualClock(), FakeCluster(), CollectorRegistry()
    area = Area(f"file://{tmp_path}")
    ports = Ports(cluster, FakePods(key, clock), FileLog(area), SealedEvidence(area), key, clock)
    return Engine(ports, settings(key.key_id), lambda view: Plan(), registry), cluster, clock, registry


Parts = tuple[Engine, FakeCluster, VirtualClock, CollectorRegistry]


async def _get(parts: Parts, path: str) -> tuple[int, str]:
    async with TestClient(TestServer(application(parts[0], parts[3]))) as client:
        answer = await client.get(path)
        return answer.status, await answer.text()


async def test_the_operator_is_ready_once_everything_was_read(engine: Parts) -> None:
    assert (await _get(engine, "/readyz"))[0] == 503
    await engine[0].resync()
    assert (await _get(engine, "/readyz"))[0] == 200


async def test_the_operator_is_unhealthy_while_a_channel_waits_for_minutes(engine: Parts) -> None:
    await engine[0].resync()
    assert await _get(engine, "/healthz") == (200, "ok")
    engine[0].queue.add("support")
    await engine[2].advance(121)
    status, text = await _get(engine, "/healthz")
    assert status == 503
    assert "121 s" in text


async def test_the_operator_is_unhealthy_when_the_api_server_could_not_be_read_for_long(engine: Parts) -> None:
    await engine[0].resync()
    await engine[2].advance(3 * RESYNC_SECONDS + 1)
    assert (await _get(engine, "/healthz"))[0] == 503


async def test_the_queues_depth_is_told(engine: Parts) -> None:
    engine[0].queue.add("support")
    assert "gatevalve_queue_depth 1.0" in (await _get(engine, "/metrics"))[1]


async def test_the_start_waits_for_an_api_server_that_is_not_ready_yet(engine: Parts) -> None:
    engine[1].fail("list", ADAPTER_CHANNELS.plural, ClusterError("storage is (re)initializing"))
    starting = asyncio.create_task(engine[0].start())
    await engine[2].advance(3)
    await starting
    assert engine[0].is_ready()


def test_an_object_that_moves_concerns_the_channel_it_left_too(engine: Parts) -> None:
    def pod(version: int, pool: str) -> dict[str, Any]:
        labels = {"gatevalve.dev/pool": pool}
        return {"metadata": {"name": "pod", "uid": "u", "resourceVersion": str(version), "labels": labels}}

    for name in ("a", "b"):
        metadata = {"name": name, "uid": name, "resourceVersion": "1"}
        engine[0].cache.put(ADAPTER_CHANNELS, {"metadata": metadata, "spec": {"serving": {"pool": name}}})
    engine[0].cache.put(PODS, pod(1, "a"))
    engine[0].saw(PODS, "MODIFIED", pod(2, "b"))
    assert engine[0].queue.depth == 2
