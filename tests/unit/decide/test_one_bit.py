"""One bit: whatever sealed items showed when they did not pass, log, statuses, events and metrics are the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gatevalve.contracts.files import SCORE_ONE, EvidenceReport, FileFact, PairRow
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.reasons import CandidateState
from gatevalve.decide.channel import decide
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.metrics import Metrics
from support.world import World, digest, policy, report_of, rows_of

Rows = tuple[PairRow, ...]
SIZE = 9_000


def with_primary(change: Callable[[PairRow], PairRow | None]) -> Rows:
    """Rows without a gain, the Primary's changed or dropped."""
    changed = (change(row) if row.suite == "target" else row for row in rows_of(policy(), 0.0))
    return tuple(row for row in changed if row is not None)


def first(change: Callable[[PairRow], PairRow | None]) -> Callable[[PairRow], PairRow | None]:
    return lambda row: change(row) if row.item == "item-000" else row


def score(value: int) -> Callable[[PairRow], PairRow]:
    return lambda row: row.model_copy(update={"scores": {**row.scores, "candidate": (value, *row.scores["candidate"][1:])}})


NOT_PASSED: dict[str, Rows] = {
    "no gain": rows_of(policy(), 0.0),
    "a gain that could be chance": rows_of(policy(), 0.1),
    "every answer wrong": with_primary(score(0)),
    "a score that cannot be": with_primary(first(score(SCORE_ONE + 1))),
    "an item missing": with_primary(first(lambda row: None)),
    "nothing measured": with_primary(lambda row: None),
}


@dataclass
class SealedWorld(World):
    """A channel whose candidates show these rows; all evidence has one digest, which is of sealed files as well."""

    shown: Rows = ()

    def _rows(self) -> Rows:
        return self.shown

    def _report(self, task: EvaluateInput) -> EvidenceReport:
        return report_of(task, self.policy, FileFact(path="pairs.jsonl.gz", size=SIZE, sha256=digest("pairs")))


def seen(rows: Rows) -> dict[str, Any]:
    """Everything that people see of a candidate's life."""
    world = SealedWorld(shown=rows)
    world.run()
    uid = world.apply("monday")
    world.run()
    return {
        "log": [view.spec.wire() for view in world.log],
        "releases": [view.status.wire() for view in world.log],
        "candidate": world.candidates[uid].status.wire(),
        "channel": world.channel_status.wire(),
        "events": world.events,
        "metrics": metrics_of(world),
    }


def metrics_of(world: World) -> list[str]:
    """Samples, but for the moments at which this test made them."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, ObjectCache())
    for entry in world.log:
        metrics.appended(entry.spec)
    view = world.view()
    metrics.observed(view, decide(view))
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@pytest.mark.parametrize("case", [case for case in NOT_PASSED if case != "no gain"])
def test_nothing_that_people_see_tells_in_which_way_the_primary_did_not_pass(case: str) -> None:
    told, expected = seen(NOT_PASSED[case]), seen(NOT_PASSED["no gain"])
    assert told["candidate"]["state"] == CandidateState.REJECTED
    assert told == expected


def test_a_primary_that_passes_is_the_one_bit() -> None:
    assert seen(rows_of(policy(), 0.5))["candidate"]["state"] == CandidateState.PROMOTED
