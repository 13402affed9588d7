"""Revisions that pods claim to hold: an honest one is gone beyond, a boundless one costs only the pod that claims it."""

from __future__ import annotations

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.serving import LAST_SEQUENCE, LAST_STEP, ChannelDocument, PodReport
from gatevalve.decide.documents import MOST_STEPS_AHEAD
from support.world import SimPod, World, digest, entry


class Claims(SimPod):
    """A pod that claims a revision with a document of its own, and takes none."""

    claimed: tuple[int, int] = (3, 0)

    def take(self, document: ChannelDocument) -> None:
        return

    def tick(self) -> None:
        return

    def _report(self) -> PodReport:
        return super()._report().model_copy(update={"revision": self.claimed, "document_digest": digest("its own")})


def promoted(*claimed: tuple[int, int]) -> World:
    """A channel whose first promotion serves, and a further pod that claims something."""
    world = World(pods=[SimPod("pod-a"), SimPod("pod-b")])
    world.run()
    world.apply("monday")
    world.run()
    for claim in claimed:
        rogue = Claims("pod-z")
        rogue.claimed = claim
        world.pods.append(rogue)
    return world


def steps(world: World, count: int) -> None:
    for _ in range(count):
        world.reconcile()
        world._tick()


CLAIMS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "the next step": ((3, 2), (3, 3)),
    "as many steps ahead as may be": ((3, 1 + MOST_STEPS_AHEAD), (3, 2 + MOST_STEPS_AHEAD)),
    "one step more than may be": ((3, 2 + MOST_STEPS_AHEAD), (3, 2)),
    "the last step there is": ((3, LAST_STEP), (3, 2)),
    "the last step of the last entry": ((LAST_SEQUENCE, LAST_STEP), (3, 2)),
}


@pytest.mark.parametrize("sentence", CLAIMS)
def test_the_next_document_goes_beyond_what_is_credible_when_a_pod_claims(sentence: str) -> None:
    claim, expected = CLAIMS[sentence]
    world = promoted(claim)
    assert world.committed is not None
    assert world.committed.document.revision == (3, 1)
    world.edit(serving={"pool": "support", "rolloutSeconds": 60, "drainSeconds": 7})
    world.reconcile()
    assert world.committed.document.revision == expected


@pytest.mark.parametrize("step", [1, MOST_STEPS_AHEAD, LAST_STEP])
def test_a_rollback_goes_to_the_other_pods_whatever_a_pod_claims_of_its_entry(step: int) -> None:
    world = promoted((4, step))
    world.edit(pin={"entry": entry(0), "reason": "bad answers", "by": "ann"})
    steps(world, 6)
    assert [pod.answering for pod in world.pods[:2]] == [entry(4), entry(4)]


def test_no_document_leaves_the_bounds_when_the_steps_are_used_up() -> None:
    world = promoted((3, LAST_STEP))
    assert world.committed is not None
    last = world.committed.document.model_copy(update={"revision": (3, LAST_STEP)})
    world.committed = world.committed.model_copy(update={"document": last})
    world.edit(serving={"pool": "support", "rolloutSeconds": 60, "drainSeconds": 7})
    steps(world, 3)
    assert world.committed.document.revision == (3, LAST_STEP)
    ChannelDocument.parse(world.committed.document.wire())


@pytest.mark.parametrize("revision", [(), (1,), (-1, 0), (0, -1), (LAST_SEQUENCE + 1, 0), (0, LAST_STEP + 1), (0, 1, 2)], ids=str)
def test_a_document_has_a_revision_within_bounds(revision: tuple[int, ...]) -> None:
    world = promoted()
    assert world.committed is not None
    with pytest.raises(ContractError, match="revision"):
        ChannelDocument.parse(world.committed.document.wire() | {"revision": revision})
