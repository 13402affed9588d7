"""Foreign adapters are those that nobody here loaded, whatever happens while the engine is asked for its list."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gatevalve.contracts.errors import ServingError
from gatevalve_serving.inner import Engine
from gatevalve_serving.registry import Registry


class Listing:
    """An engine that only lists adapters; `meanwhile` happens between its look at them and its answer."""

    def __init__(self, adapters: dict[str, str], status: int = 200) -> None:
        self.adapters, self.status = adapters, status
        self.meanwhile: Callable[[], object] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cards = [{"id": name, "root": path, "parent": "base"} for name, path in self.adapters.items()]
        self.meanwhile()
        await JSONResponse({"data": [{"id": "base", "root": "/base", "parent": None}, *cards]}, self.status)(scope, receive, send)


def registry_of(listing: Listing) -> Registry:
    return Registry(Engine(listing, listing, "base", None))


async def test_what_is_ours_by_name_and_path_is_not_foreign() -> None:
    registry = registry_of(Listing({"ours": "/a", "theirs": "/b", "stolen": "/c"}))
    registry.claim("ours", "/a")
    registry.claim("stolen", "/a")
    assert await registry.look()
    assert registry.shown == ("stolen", "theirs")
    assert not await registry.look()


@pytest.mark.parametrize("happens", ["an unload", "a load"])
async def test_what_happens_while_the_engine_answers_raises_no_alarm(happens: str) -> None:
    listing = Listing({"ours": "/a"})
    registry = registry_of(listing)
    if happens == "an unload":
        registry.claim("ours", "/a")
        listing.meanwhile = lambda: registry.release("ours", "/a")
    else:
        listing.meanwhile = lambda: registry.claim("ours", "/a")
    assert not await registry.look()
    assert registry.shown == ()


async def test_an_engine_that_does_not_answer_changes_nothing() -> None:
    listing = Listing({"theirs": "/b"})
    registry = registry_of(listing)
    await registry.look()
    listing.status = 500
    with pytest.raises(ServingError, match="answered 500"):
        await registry.look()
    assert registry.shown == ("theirs",)


async def test_only_ours_take_places() -> None:
    registry = registry_of(Listing({}))
    registry.claim("ours", "/a")
    registry.claim("on its way", "/b")
    assert registry.places_taken({"ours": "/a", "theirs": "/c", "on its way": "/elsewhere"}) == 1
