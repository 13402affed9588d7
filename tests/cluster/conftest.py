"""The stage that the story and the attacks on it share: one install, one vLLM pool, one honest and one poisoned session."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from rich.console import Console

from demo.stage import NAMESPACE, Stage
from demo.story import HONEST, POISONED, Outcome, Story
from demo.verify import verify_log
from minicluster import Cluster
from support.chart import CHART
from support.prometheus import in_cluster

WATCHFUL = {
    "podMonitor": {"enabled": True, "interval": "5s"},
    "prometheusRule": {"enabled": True},
    "alerts": {"rejectionRateHigh": {"for": "5s", "window": "1h", "above": 0.4, "minimum": 2}},
}


@pytest.fixture(scope="session")
def stage(cluster: Cluster) -> Iterator[Stage]:
    """The product installed, with vLLM serving the base through the alias."""
    stage = Stage(cluster, Console(stderr=True))
    stage.install()
    stage.open_channel()
    stage.wait_for_pool()
    yield stage
    stage.uninstall()


@pytest.fixture(scope="session")
def prometheus(stage: Stage) -> Iterator[None]:
    """A Prometheus that watches from before the first verdict on, with an alert that two verdicts are enough for."""
    shown = stage.cluster.helm(
        *("template", "gatevalve", str(CHART), "--namespace", NAMESPACE, "--show-only", "templates/monitoring.yaml", "--values", "-"),
        input=json.dumps({"monitoring": WATCHFUL}),
    )
    rendered = [manifest for manifest in yaml.safe_load_all(shown) if manifest]
    monitors = [manifest for manifest in rendered if manifest["kind"] == "PodMonitor"]
    (rule,) = (manifest for manifest in rendered if manifest["kind"] == "PrometheusRule")
    objects = yaml.safe_dump_all(in_cluster(NAMESPACE, monitors, rule, interval="5s"))
    stage.cluster.apply(objects)
    yield
    stage.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename", "-", stdin=objects)


@pytest.fixture(scope="session")
def story(stage: Stage, prometheus: None) -> Story:
    """One honest session, one poisoned, attempts to go round the gate, a pin under load."""
    story = Story(stage)
    story.honest_days(HONEST[:1])
    story.poisoned_days(POISONED[:1])
    story.bypass_attempts()
    story.way_back()
    story.outcome.chain_ok = verify_log(stage, stage.console)
    return story


@pytest.fixture(scope="session")
def outcome(story: Story) -> Outcome:
    """What the story saw."""
    return story.outcome
