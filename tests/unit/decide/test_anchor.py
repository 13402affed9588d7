"""Anchor: what candidates may not fall behind stands still until a person moves it, and every move is in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.jobs import EvaluateInput, PublishInput
from gatevalve.contracts.kinds import AdapterReleaseSpec, AnchorInForce
from gatevalve.contracts.names import ENV_JOB
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.decide.audit import log_problems
from gatevalve.decide.log import LogState, fold, name_of
from gatevalve.decide.view import EntryView
from support.world import World, digest, entry, policy
from unit.decide.test_policies import opened, until

REASON = "the new normal"
FIRST = digest("adapter of uid-monday")


def released() -> World:
    """A world whose second serving entry, number 3, serves an adapter."""
    world = opened()
    world.apply("monday")
    world.run()
    return world


def name(world: World, at: str, reason: str = REASON, by: str | None = "ann") -> None:
    """A person names an anchor."""
    world.edit(anchor={"entry": at, "reason": reason} | ({"by": by} if by else {}))
    world.run()


def in_force(world: World) -> AnchorInForce:
    return fold(world.view().log).anchor


def anchors_of_tests(world: World) -> list[str | None]:
    return [view.spec.gate.anchor_digest for view in world.log if view.spec.action == "Test" and view.spec.gate]


def ready(world: World) -> tuple[str, str, str]:
    found = next(c for c in world.channel_status.conditions if c.type == "Ready")
    return found.status, found.reason, found.message


# ---- moving it


def test_the_base_is_the_anchor_until_a_person_moves_it() -> None:
    world = released()
    assert (in_force(world), world.channel_status.anchor, anchors_of_tests(world)) == (AnchorInForce(), None, [None])


def test_a_move_is_an_entry_with_the_person_the_reason_and_what_the_anchor_is() -> None:
    world = released()
    name(world, entry(3))
    last = world.log[-1].spec
    assert (world.story()[-1], last.message, last.actor) == ("Anchor:AnchorMoved", REASON, "ann")
    assert last.anchor == in_force(world) == world.channel_status.anchor == AnchorInForce(entry=entry(3), digest=FIRST)
    assert world.told("AnchorMoved") == [f"AnchorMoved: {entry(3)} ({FIRST}) is the anchor: {REASON}"]
    assert (world.answering(), ready(world)[0]) == ({entry(3)}, "True")


def test_without_a_name_the_operator_is_the_actor() -> None:
    world = released()
    name(world, entry(3), by=None)
    assert world.log[-1].spec.actor == "gatevalve"


def test_a_test_keeps_the_anchor_that_was_in_force_when_it_was_opened() -> None:
    world = released()
    world.apply("tuesday")
    until(world, "Test:TestOpened")
    name(world, entry(3))
    accept = next(view.spec for view in reversed(world.log) if view.spec.action == "Accept")
    assert accept.gate is not None
    assert accept.gate.anchor_digest is None
    world.apply("wednesday")
    world.run()
    assert anchors_of_tests(world) == [None, None, FIRST]
    assert world.story()[-1] == "Promote:GatePassed"
    assert log_problems(fold(world.view().log)) == ()


def test_the_evaluation_publishes_and_asks_the_anchor_of_its_test() -> None:
    world = released()
    world.apply("tuesday")
    world.run()
    name(world, entry(3))
    uid = world.apply("wednesday")
    world.run()
    job = next(job for job in world.jobs.values() if job.view.candidate_uid == uid and job.view.step == "evaluate")
    pod = job.manifest["spec"]["template"]["spec"]
    (publish,) = [c for c in pod["initContainers"] if c["name"] == "publish"]
    published = PublishInput.parse_json(next(item["value"] for item in publish["env"] if item["name"] == ENV_JOB))
    asked = EvaluateInput.parse_json(next(item["value"] for item in pod["containers"][0]["env"] if item["name"] == ENV_JOB))
    assert (published.anchor_digest, asked.anchor_digest) == (FIRST, FIRST)
    assert asked.arms["anchor"] == f"anchor-{FIRST[7:15]}"


def test_an_anchor_that_is_removed_is_the_base_again_and_that_is_an_entry() -> None:
    world = released()
    name(world, entry(3))
    world.edit(anchor=None)
    world.run()
    assert (world.story()[-1], world.log[-1].spec.anchor, world.channel_status.anchor) == ("Anchor:AnchorReset", AnchorInForce(), None)
    world.apply("tuesday")
    world.run()
    assert anchors_of_tests(world)[-1] is None
    assert log_problems(fold(world.view().log)) == ()


def test_the_base_can_be_named_by_the_entry_that_serves_it() -> None:
    world = released()
    name(world, entry(0))
    assert in_force(world) == AnchorInForce(entry=entry(0))
    assert log_problems(fold(world.view().log)) == ()


def test_another_reason_for_the_same_anchor_writes_nothing() -> None:
    world = released()
    name(world, entry(3))
    before = world.story()
    name(world, entry(3), "said better", "jo")
    assert world.story() == before


def test_a_moved_anchor_costs_no_test_and_ends_no_round() -> None:
    world = released()
    world.gain = 0.0
    world.apply("tuesday")
    world.run()
    before = world.channel_status.round
    name(world, entry(3))
    world.apply("wednesday")
    world.run()
    last = next(view.spec.gate for view in reversed(world.log) if view.spec.action == "Test")
    assert before is not None
    assert last is not None
    assert (last.round, last.test) == (before.number, before.tests + 1)


# ---- what is no anchor


def taken_back() -> World:
    """A world in which the adapter of entry 3 was taken out of service."""
    world = released()
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    world.edit(pin=None)
    world.run()
    return world


NO_ANCHOR: dict[str, tuple[str, str]] = {
    "an entry that does not exist": (entry(9), "is no serving entry of this channel (Open, Promote or Rollback)"),
    "an entry of another channel": ("billing-000000", "is no serving entry"),
    "an entry that serves nothing": (entry(1), "is no serving entry"),
    "an adapter that was taken back": (entry(3), f"serves adapter {FIRST}, which was rejected or taken back; name another entry"),
}


@pytest.mark.parametrize("sentence", NO_ANCHOR)
def test_nothing_is_moved_to(sentence: str) -> None:
    at, complaint = NO_ANCHOR[sentence]
    world = taken_back()
    name(world, entry(0))
    before = world.story()
    name(world, at)
    status, reason, message = ready(world)
    assert (world.story(), in_force(world)) == (before, AnchorInForce(entry=entry(0)))
    assert (status, reason) == ("False", "SpecInvalid")
    assert f"spec.anchor.entry {at}" in message
    assert complaint in message
    world.edit(anchor=None)
    world.run()
    assert ready(world)[0] == "True"


def test_an_anchor_whose_adapter_is_taken_back_stays_in_force_and_a_person_is_told() -> None:
    world = released()
    name(world, entry(3))
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    assert in_force(world).digest == FIRST
    assert ready(world)[1] == "SpecInvalid"
    assert "was rejected or taken back" in ready(world)[2]


@pytest.mark.parametrize("kill_after", range(1, 24))
def test_killed_after_any_action_a_move_is_written_once(kill_after: int) -> None:
    world = released()
    world.actions, world.kill_after = 0, kill_after
    world.apply("tuesday")
    name(world, entry(3))
    assert world.story().count("Anchor:AnchorMoved") == 1
    assert in_force(world).digest == FIRST
    assert world.answering() == {entry(len(world.log) - 1)}


def test_nothing_is_moved_before_a_log_that_does_not_stand_its_audit_is_mended() -> None:
    world = released()
    world.log_finding = "support-000001 says something else"
    name(world, entry(3))
    assert world.story()[-1] == "Promote:GatePassed"


# ---- the audit


FORGED: dict[str, tuple[int, dict[str, Any], str]] = {
    "an Anchor that does not say what it is": (4, {"anchor": None}, "does not say what the anchor is"),
    "an Anchor that is the base by no entry": (4, {"anchor": {}}, "does not say what the anchor is"),
    "an AnchorReset that names an entry": (4, {"reason": "AnchorReset"}, "does not say what the anchor is"),
    "an AnchorReset that names an adapter": (8, {"anchor": {"digest": FIRST}}, "it anchors something else than the base serves"),
    "an Anchor at what serves nothing": (4, {"anchor": {"entry": entry(1)}}, f"it anchors {entry(1)}, which is no serving entry before it"),
    "an Anchor at what is not written yet": (4, {"anchor": {"entry": entry(7)}}, "which is no serving entry before it"),
    "an Anchor with another adapter": (
        4,
        {"anchor": {"entry": entry(3), "digest": digest("x")}},
        f"it anchors something else than {entry(3)}",
    ),
    "an Anchor without its adapter": (4, {"anchor": {"entry": entry(3)}}, f"it anchors something else than {entry(3)}"),
}


@cache
def lived() -> list[AdapterReleaseSpec]:
    """Open, Test, Accept, Promote, Anchor, Test, Accept, Promote, Anchor (back to the base), Test, Accept, Promote."""
    world = released()
    name(world, entry(3))
    world.apply("tuesday")
    world.run()
    world.edit(anchor=None)
    world.apply("wednesday")
    world.run()
    return [view.spec for view in world.log]


def problems(specs: list[AdapterReleaseSpec], of: int) -> list[str]:
    found = log_problems(LogState(tuple(EntryView(spec, status=None, exported=True) for spec in specs)))  # type: ignore[arg-type]
    return [problem for problem in found if problem.startswith(name_of(specs[of]))]


def changed(specs: list[AdapterReleaseSpec], at: int, changes: dict[str, Any]) -> list[AdapterReleaseSpec]:
    parsed = AdapterReleaseSpec.parse({key: value for key, value in (specs[at].wire() | changes).items() if value is not None})
    return [*specs[:at], parsed, *specs[at + 1 :]]


def test_the_audit_has_nothing_to_say_of_anchors_that_persons_moved() -> None:
    specs = lived()
    assert [str(spec.action) for spec in specs].count("Anchor") == 2
    assert [problems(specs, at) for at in range(len(specs))] == [[]] * len(specs)


@pytest.mark.parametrize("sentence", FORGED)
def test_the_audit_tells_of(sentence: str) -> None:
    at, changes, complaint = FORGED[sentence]
    found = problems(changed(lived(), at, changes), at)
    assert any(complaint in problem for problem in found), found


@pytest.mark.parametrize(("at", "anchor"), [(1, FIRST), (5, None), (9, FIRST)])
def test_the_audit_tells_of_a_test_against_another_anchor_than_the_one_in_force(at: int, anchor: str | None) -> None:
    specs = lived()
    gate = specs[at].gate
    assert gate is not None
    found = problems(changed(specs, at, {"gate": gate.model_copy(update={"anchor_digest": anchor}).wire()}), at)
    assert any("it is measured against anchor" in problem for problem in found), found


def test_the_audit_tells_of_an_anchor_that_was_taken_back_before() -> None:
    specs = [view.spec for view in taken_back().log]
    moved = {"sequence": len(specs), "action": "Anchor", "reason": "AnchorMoved", "anchor": {"entry": entry(3), "digest": FIRST}}
    bare = {key: value for key, value in specs[-1].wire().items() if key not in ("serves", "restores", "lineage")}
    (found,) = problems([*specs, AdapterReleaseSpec.parse(bare | moved)], len(specs))
    assert "which was rejected or taken back before" in found


# ---- the ratchet


@dataclass
class DriftingWorld(World):
    """Every adapter is right on eight more items of the Primary than its parent, and wrong on two more items of the Guard."""

    policy: GatePolicySpec = field(default_factory=policy)
    abilities: dict[str | None, tuple[int, int]] = field(default_factory=lambda: {None: (4, 0)})

    def lost(self, adapter: str | None) -> int:
        """Items of the Guard that an adapter has wrong and the base has right."""
        return self.abilities[adapter][1]

    def _rows_for(self, task: EvaluateInput) -> tuple[PairRow, ...]:
        right, wrong = self.abilities[task.incumbent_digest]
        self.abilities.setdefault(task.candidate_digest, (right + 8, wrong + 2))
        arms = {"candidate": task.candidate_digest, "incumbent": task.incumbent_digest, "anchor": task.anchor_digest}
        return tuple(scored(row, {arm: self.abilities[digest] for arm, digest in arms.items()}) for row in super()._rows_for(task))


def scored(row: PairRow, abilities: dict[str, tuple[int, int]]) -> PairRow:
    """The row with the scores that arms of these abilities have on it."""
    index = int(row.item.rsplit("-", 1)[1])
    found = {arm: index < right if row.suite == "target" else index >= wrong for arm, (right, wrong) in abilities.items()}
    return row.model_copy(update={"scores": {arm: (SCORE_ONE * found[arm],) * len(given) for arm, given in row.scores.items()}})


def chain(world: DriftingWorld, prefix: str, count: int) -> list[str]:
    """So many candidates one after the other; gives how each ended."""
    ends = []
    for number in range(count):
        uid = world.apply(f"{prefix}-{number}")
        world.run()
        status = world.candidates[uid].status
        assert status.decision is not None
        ends.append(f"{status.state}:{status.decision.reason}")
    return ends


GOOD, STOPPED = "Promoted:GatePassed", "Rejected:AnchorRegressed"


def test_a_chain_of_small_losses_is_stopped_whatever_the_number_of_candidates_and_starts_anew_when_the_anchor_moves() -> None:
    world = DriftingWorld()
    world.run()
    assert chain(world, "first", 7) == [GOOD, GOOD, *[STOPPED] * 5]
    live = fold(world.view().log).live
    assert live is not None
    assert world.lost(fold(world.view().log).incumbent_digest) == 4
    name(world, name_of(live.spec))
    assert chain(world, "second", 5) == [GOOD, GOOD, *[STOPPED] * 3]
    assert world.lost(fold(world.view().log).incumbent_digest) == 8
    assert world.story().count("Anchor:AnchorMoved") == 1
    assert log_problems(fold(world.view().log)) == ()


def test_without_a_fixed_anchor_the_same_chain_goes_on() -> None:
    """The contrast: with an anchor that follows every release nothing ever stops it."""
    world = DriftingWorld()
    world.run()
    for number in range(4):
        assert chain(world, f"release-{number}", 1) == [GOOD]
        live = fold(world.view().log).live
        assert live is not None
        name(world, name_of(live.spec))
    assert world.lost(fold(world.view().log).incumbent_digest) == 8
