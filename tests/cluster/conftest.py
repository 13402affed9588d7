"""The stage that the story and the attacks on it share: one install, one vLLM pool, one honest and one poisoned session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.console import Console

from demo.stage import Stage
from demo.story import HONEST, POISONED, Outcome, Story
from demo.verify import verify_log
from minicluster import Cluster


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
def story(stage: Stage) -> Story:
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
