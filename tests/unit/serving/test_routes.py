"""The alias table and the requests in flight."""

from __future__ import annotations

import asyncio
from collections import Counter

from gatevalve.contracts.kinds import Capture
from gatevalve.contracts.serving import Route
from gatevalve_serving.routes import ChannelRoutes, InFlight, RouteTable, Target


def channel(name: str, alias: str, *weights: int) -> ChannelRoutes:
    targets = tuple(Target(f"{name}-{number:06d}", f"model-{number}", None, weight) for number, weight in enumerate(weights))
    routes = tuple(Route(entry=target.entry, weight=target.weight) for target in targets)
    return ChannelRoutes(name, "u", alias, "sha256:" + "0" * 64, Capture(), routes, targets)


def test_requests_follow_the_weights_and_an_id_always_goes_the_same_way() -> None:
    routes = channel("support", "support", 90, 10)
    picked = Counter(routes.pick(f"id-{number}").model for number in range(3000))
    assert 200 < picked["model-1"] < 400
    assert len({routes.pick("one id") for _ in range(20)}) == 1


def test_a_route_without_weight_gets_nothing() -> None:
    assert {channel("support", "support", 0, 100).pick(f"id-{number}").model for number in range(200)} == {"model-1"}


def test_a_flip_replaces_one_channel_and_its_alias() -> None:
    table = RouteTable()
    table.flip(channel("support", "old-alias", 100))
    table.flip(channel("sales", "sales", 100))
    table.flip(channel("support", "support", 100))
    assert table.aliases() == ["sales", "support"]
    assert table.of_alias("old-alias") is None


def test_only_text_is_an_alias() -> None:
    table = RouteTable()
    table.flip(channel("support", "support", 100))
    assert [table.of_alias(model) for model in (None, 3, ["support"], {"support": 1}, "support ")] == [None] * 5


async def test_idle_waits_for_the_last_request_of_its_model() -> None:
    in_flight = InFlight()
    with in_flight.hold("other"):
        with in_flight.hold("a"):
            with in_flight.hold("a"):
                waiting = asyncio.create_task(in_flight.idle("a"))
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert (in_flight.count("a"), waiting.done()) == (1, False)
        await asyncio.wait_for(waiting, 1)
    assert in_flight.count("a") == 0


async def test_a_request_that_fails_is_no_longer_in_flight() -> None:
    in_flight = InFlight()
    try:
        with in_flight.hold("a"):
            raise RuntimeError
    except RuntimeError:
        await asyncio.wait_for(in_flight.idle("a"), 1)
