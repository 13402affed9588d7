"""What the engine sees of sentinels: their Jobs, their evidence, and what it counts of them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from gatevalve.contracts.policy import Sentinels
from gatevalve.decide.plan import Plan
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.gather import _open_test
from gatevalve.engine.jobs import job_view
from gatevalve.engine.metrics import Metrics
from support.world import World, policy

PROBED = policy().model_copy(update={"sentinels": Sentinels(every_candidates=1)})


@pytest.fixture
def world() -> World:
    """One candidate was rejected, and the first sentinel's Job is made."""
    world = World(policy=PROBED, gain=0.0, gain_of_sentinels=0.5)
    world.run()
    world.apply("a")
    while not any(job.view.step == "sentinel" for job in world.jobs.values()):
        world.reconcile()
        world._tick()
    return world


def test_a_sentinels_job_is_read_as_an_attempt_of_that_sentinel(world: World) -> None:
    manifest = next(job.manifest for job in world.jobs.values() if job.view.step == "sentinel")
    metadata = manifest["metadata"] | {"uid": "j", "creationTimestamp": "2026-01-01T00:00:00Z"}
    view = job_view(manifest | {"metadata": metadata}, ())
    assert view is not None
    assert (view.candidate_uid, view.step, view.attempt) == ("sentinel-1", "sentinel", 1)


def test_its_evidence_is_looked_for_under_the_entry_that_began_it_until_it_has_ended(world: World) -> None:
    begun = f"support-{world.log[-1].spec.sequence:06d}"
    assert _open_test(world.view().log) == (begun, "channel-1", "sentinel-1")
    world.run()
    assert _open_test(world.view().log) is None


def test_ends_are_counted_by_kind_and_outcome_and_every_series_is_there_from_the_start(world: World) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, ObjectCache())
    metrics.observed(world.view(), Plan())
    assert len(counted(registry)) == 6
    assert set(counted(registry).values()) == {0.0}
    world.run()
    for entry in world.log:
        metrics.appended(entry.spec)
    metrics.observed(world.view(), Plan())
    assert {key: value for key, value in counted(registry).items() if value} == {("Same", "Failed"): 1.0}
    assert registry.get_sample_value("gatevalve_sentinel_failed", {"channel": "support"}) == 1
    assert (
        registry.get_sample_value("gatevalve_candidates_total", {"channel": "support", "verdict": "Accepted", "reason": "GatePassed"}) == 0
    )


def counted(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    samples = (sample for metric in registry.collect() for sample in metric.samples if sample.name == "gatevalve_sentinels_total")
    return {(sample.labels["kind"], sample.labels["outcome"]): sample.value for sample in samples}
