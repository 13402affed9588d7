"""Windows of traffic: odd ones must not stop their channel."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gatevalve.decide.case import precise
from support.world import World

MOMENTS = {
    "a whole second": (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
    "a year before 1000": (datetime(1, 1, 1, 0, 0, 0, 7, tzinfo=UTC), "0001-01-01T00:00:00.000007Z"),
}


@pytest.mark.parametrize(("moment", "text"), MOMENTS.values(), ids=MOMENTS)
def test_the_edge_of_a_window_is_written_with_microseconds(moment: datetime, text: str) -> None:
    assert precise(moment) == text


def test_a_candidate_over_all_traffic_since_year_one_takes_its_turn() -> None:
    world = World()
    world.run()
    window = {"from": "0001-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z"}
    uid = world.apply("ever", train={"recipe": "SFT", "snapshot": window})
    behind = world.apply("behind")
    world.run()
    assert world.state(uid) == "Promoted"
    assert world.state(behind) == "Promoted"
