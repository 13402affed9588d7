"""Sentinels: the gate is probed by candidates whose right verdict is known, out of nobody's budget, and none of them can be released."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.jobs import EvaluateInput, EvidenceResult, PublishInput
from gatevalve.contracts.kinds import AdapterReleaseSpec, SentinelRef, Serves
from gatevalve.contracts.names import ENV_JOB
from gatevalve.contracts.policy import GatePolicySpec, Sentinels
from gatevalve.contracts.reasons import Action, EntryReason, Verdict
from gatevalve.decide.audit import given_sentinels, log_problems
from gatevalve.decide.judgement import judge_test
from gatevalve.decide.log import LogState
from gatevalve.decide.sentinel_schedule import failed_sentinel
from gatevalve.decide.sentinel_verdict import as_test, judge_sentinel
from gatevalve.decide.view import EntryView
from gatevalve.engine.metrics import rejection_ratio
from gatevalve.gate.rounds import rounds
from support.world import BASE_DIGEST, KEY_ID, World, channel_spec, policy

PAIR = ["Sentinel:SentinelOpened", "Sentinel:SentinelPassed"] * 2
FAILED = ["Sentinel:SentinelOpened", "Sentinel:SentinelFailed", "Freeze:SentinelFailed"]


def probed(every: int = 2, **terms: Any) -> GatePolicySpec:
    """A policy whose gate is probed."""
    return policy(**terms).model_copy(update={"sentinels": Sentinels(every_candidates=every)})


def opened(rules: GatePolicySpec | None = None, **changes: Any) -> World:
    """A world in which the base serves, and candidates gain nothing."""
    world = World(policy=rules or probed(), **{"gain": 0.0, **changes})
    world.run()
    return world


def judged(world: World, *names: str) -> World:
    """Candidates that were applied one after the other and have their verdicts."""
    for name in names:
        world.apply(name)
        world.run()
    return world


def sentinels(world: World) -> list[str]:
    """Sentinels as `kind number reason`, in the order of their ends."""
    entries = [entry.spec for entry in world.log if entry.spec.sentinel and entry.spec.verdict]
    return [f"{spec.sentinel.kind} {spec.sentinel.number} {spec.reason}" for spec in entries if spec.sentinel]


def until(world: World, last: str) -> None:
    """The operator works until an entry stands at the log's end."""
    for _ in range(200):
        if world.story()[-1] == last:
            return
        world.reconcile()
        if world.story()[-1] != last:
            world._tick()
    raise AssertionError(world.story())


def state(world: World) -> LogState:
    return LogState(tuple(world.log))


def condition(world: World) -> tuple[str, str, str]:
    found = next(c for c in world.channel_status.conditions if c.type == "SentinelsPassed")
    return found.status, found.reason, found.message


def told(world: World, number: int, container: str) -> dict[str, Any]:
    """What a sentinel's Job tells a container."""
    job = next(job for job in world.jobs.values() if job.view.candidate_uid == f"sentinel-{number}")
    pod = job.manifest["spec"]["template"]["spec"]
    found = next(one for one in (*pod["initContainers"], *pod["containers"]) if one["name"] == container)
    text: dict[str, Any] = json.loads(next(item["value"] for item in found["env"] if item["name"] == ENV_JOB))
    return text


# ---- when they come


def test_both_kinds_come_after_every_so_many_tests_and_before_the_next_candidate() -> None:
    world = judged(opened(), "a", "b", "c")
    opened_in = [entry.spec.action for entry in world.log if entry.spec.reason in ("TestOpened", "SentinelOpened")]
    assert opened_in == ["Test", "Test", "Sentinel", "Sentinel", "Test"]
    assert sentinels(world) == ["Same 1 SentinelPassed", "Bad 2 SentinelPassed"]


def test_they_come_again_after_as_many_tests_and_no_number_comes_twice() -> None:
    world = judged(opened(), *"abcd")
    assert [text[: -len(" SentinelPassed")] for text in sentinels(world)] == ["Same 1", "Bad 2", "Same 3", "Bad 4"]


def test_a_policy_put_in_force_is_probed_at_once_and_the_first_one_is_not() -> None:
    world = opened(probed(100))
    assert sentinels(world) == []
    world.policy = probed(100, min_effect=100)
    world.run()
    assert world.story() == ["Open:ChannelOpened", "Policy:PolicyChanged", *PAIR]


def test_a_policy_that_nobody_approved_is_not_probed() -> None:
    world = opened(probed(100))
    world.policy = probed(100, min_effect=1)
    world.run()
    assert world.story() == ["Open:ChannelOpened", "Policy:PolicyUnapproved"]


def test_an_adopted_log_goes_on_where_it_was() -> None:
    world = judged(opened(), "a", "b")
    world.channel_uid, world.annotations = "channel-2", {"gatevalve.dev/adopt": "channel-1"}
    world.run()
    assert world.story()[-1] == "Open:ChannelAdopted"


@pytest.mark.parametrize("change", [{}, {"min_effect": 100}], ids=["after tests", "after a change of policy"])
def test_none_come_when_the_policy_asks_for_none(change: dict[str, int]) -> None:
    world = judged(opened(probed(0)), "a", "b")
    world.policy = probed(0, **change)
    world.run()
    assert (sentinels(world), condition(world)[:2]) == ([], ("Unknown", "SentinelsOff"))


# ---- traffic: they are asked again what a round that has ended was asked


def on_traffic(every: int = 1, items: int = 60, **terms: Any) -> GatePolicySpec:
    """A policy whose Primary takes conversations, in rounds of two tests."""
    rules = probed(every, **terms).wire()
    rules["suites"][0]["items"] = {"traffic": {"min": items}}
    rules["round"]["maxTests"] = 2
    return GatePolicySpec.parse(rules)


def asked_again(world: World) -> list[tuple[int, int | None]]:
    """Number and round of the sentinels that ended."""
    told = [entry.spec.sentinel for entry in world.log if entry.spec.sentinel and entry.spec.verdict]
    return [(ref.number, ref.traffic_round) for ref in told]


def test_none_come_on_traffic_before_a_round_has_ended_and_the_condition_says_so() -> None:
    world = judged(opened(on_traffic()), "a")
    assert sentinels(world) == []
    text = "not every sentinel has ended yet; the next one comes once a round on this policy's traffic has ended"
    assert condition(world) == ("Unknown", "Waiting", text)
    judged(world, "b")
    assert sentinels(world) == ["Same 1 SentinelPassed", "Bad 2 SentinelPassed"]


def test_each_is_asked_the_traffic_of_the_newest_round_that_has_ended_and_no_generated_suite_of_it() -> None:
    world = judged(opened(on_traffic()), *"abcd")
    assert asked_again(world) == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert asked_again(judged(opened(probed(1)), *"abc"))[-1] == (6, None)


def test_a_policy_that_asks_the_same_traffic_is_probed_at_once_and_one_that_asks_other_traffic_after_its_first_round() -> None:
    world = judged(opened(on_traffic(100)), *"ab")
    world.policy = on_traffic(100, min_effect=100)
    world.run()
    assert asked_again(world) == [(1, 1), (2, 1)]
    world.policy = on_traffic(100, items=80, min_effect=100)
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "more traffic"})
    judged(world, "c")
    assert asked_again(world) == [(1, 1), (2, 1)]
    judged(world, "d")
    assert [number for number, _ in asked_again(world)] == [1, 2, 3, 4]


def test_their_job_is_given_no_traffic() -> None:
    world = judged(opened(on_traffic()), *"ab")
    job = next(job for job in world.jobs.values() if job.view.candidate_uid == "sentinel-1")
    paths = [mount.get("subPath") for mount in job.manifest["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]]
    assert "suites" in paths
    assert not [path for path in paths if path and path.endswith("/traffic")]


@pytest.mark.parametrize("number", [None, 2, 3])
def test_the_audit_finds_one_that_is_asked_a_round_that_goes_on(number: int | None) -> None:
    world = judged(opened(on_traffic()), *"abc")
    begun = next(spec for spec in state(world).specs if spec.sentinel is not None)
    assert begun.sentinel is not None
    forged = begun.model_copy(update={"sentinel": begun.sentinel.model_copy(update={"traffic_round": number})})
    entries = tuple(replace(entry, spec=forged) if entry.spec == begun else entry for entry in world.log)
    assert [text for text in log_problems(LogState(entries)) if f"traffic of round {number}, while round 1 was the newest" in text]


def accepts_by_hand(world: World) -> None:
    world.edit(approval="Manual")
    world.gain = 0.5


NOT_READY: dict[str, Callable[[World], None]] = {
    "paused": lambda world: world.edit(paused=True),
    "pinned": lambda world: world.edit(pin={"entry": "support-000000", "reason": "looking", "by": "ann"}),
    "waits for a person": accepts_by_hand,
}


@pytest.mark.parametrize("why", NOT_READY)
def test_a_channel_that_takes_no_candidate_begins_no_sentinel(why: str) -> None:
    world = judged(opened(probed(1)), "a")
    before = len(sentinels(world))
    world.apply("b")
    until(world, "Test:TestOpened")
    NOT_READY[why](world)
    world.run()
    assert len(sentinels(world)) == before


def test_a_candidate_in_flight_goes_first() -> None:
    world = judged(opened(), "a")
    world.apply("b")
    until(world, "Test:TestOpened")
    world.policy = probed(2, min_effect=100)
    world.run()
    assert world.story()[-6:] == ["Policy:PolicyChanged", "Reject:Stale", *PAIR]


def test_candidates_wait_while_a_sentinel_runs_and_are_told() -> None:
    world = judged(opened(), "a")
    world.apply("b")
    until(world, "Sentinel:SentinelOpened")
    uid = world.apply("c")
    world.reconcile()
    decided = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    assert (decided.status, decided.reason) == ("False", "SentinelRunning")
    world.run()
    assert world.state(uid) == "Rejected"


# ---- how they are measured


def test_they_are_measured_on_items_of_their_own_as_candidates_whose_digest_no_adapter_has() -> None:
    world = judged(opened(), "a", "b")
    job = EvaluateInput.parse(told(world, 1, "evaluate"))
    ref = SentinelRef(kind="Same", number=1)
    assert (job.sentinel, job.round, job.candidate_digest, job.candidate_uid) == (ref, 1, ref.digest_of(), "sentinel-1")


def test_the_incumbent_against_itself_is_the_incumbents_model_and_noise_one_of_its_own() -> None:
    world = judged(opened(probed(1), gain=0.5), "a")
    same, bad = (EvaluateInput.parse(told(world, number, "evaluate")) for number in (1, 2))
    assert same.arms["candidate"] == same.arms["incumbent"] != bad.arms["candidate"]
    assert bad.arms["candidate"].startswith("candidate-")
    assert same.incumbent_digest == state(world).incumbent_digest is not None


def test_their_job_belongs_to_the_channel_goes_by_itself_and_may_read_adapters_but_not_write_them() -> None:
    world = judged(opened(), "a", "b")
    job = next(job for job in world.jobs.values() if job.view.candidate_uid == "sentinel-2")
    publisher = job.manifest["spec"]["template"]["spec"]["initContainers"][0]
    data = [(mount["subPath"], mount["readOnly"]) for mount in publisher["volumeMounts"] if mount["name"] == "data"]
    (owner,) = job.manifest["metadata"]["ownerReferences"]
    assert data == [("channel-1/adapters", True)]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("AdapterChannel", "support", "channel-1")
    assert job.manifest["spec"]["ttlSecondsAfterFinished"] > 0
    assert PublishInput.parse(told(world, 2, "publish")).produced_by is None


def test_what_a_job_is_called_fits_a_label_and_tells_numbers_and_channels_apart() -> None:
    world = judged(opened(), *"abcd")
    names = [job.view.name for job in world.jobs.values() if job.view.step == "sentinel"]
    assert (len(names), len(set(names))) == (4, 4)
    assert max(map(len, names)) + 40 - len("support") <= 63


# ---- what follows


def test_a_failed_one_freezes_the_channel_and_candidates_wait() -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a", "b")
    assert world.story()[-3:] == FAILED
    assert condition(world) == ("False", "SentinelFailed", "support-000006: the incumbent against itself passed every check")
    uid = world.apply("c")
    world.run()
    assert (world.state(uid), world.condition("Frozen")[0]) == ("Queued", "True")
    assert world.told("SentinelFailed") == [
        "SentinelFailed: support-000006: sentinel 1 (Same): the incumbent against itself passed every check"
    ]


def test_what_was_accepted_before_a_failure_is_not_promoted_after_it() -> None:
    world = opened(probed(1), gain=0.5, gain_of_sentinels=0.5, spec=channel_spec(approval="Manual"))
    uid = world.apply("a")
    world.run()
    world.approve(uid, "Approve", world.candidates[uid].status.evidence.digest)  # type: ignore[union-attr]
    world.log.append(EntryView(ended(world, opened_entry(world), EntryReason.SENTINEL_FAILED), world.log[0].status, True))
    world.run()
    assert "Promote:Approved" not in world.story()


def test_the_freeze_does_not_wait_for_the_external_log() -> None:
    world = judged(opened(), "a")
    world.gain_of_sentinels = 0.5
    world.apply("b")
    until(world, "Sentinel:SentinelFailed")
    world.store_down = True
    world.reconcile()
    assert world.story()[-1] == "Freeze:SentinelFailed"


def test_once_a_person_has_lifted_it_the_gate_is_probed_before_any_candidate_and_freezes_again() -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a", "b")
    world.apply("c")
    lift(world)
    assert world.story()[-4:] == ["Unfreeze:Unfrozen", *FAILED]
    assert sentinels(world) == ["Same 1 SentinelFailed", "Same 2 SentinelFailed"]


def test_a_gate_that_was_mended_passes_and_candidates_go_on() -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a", "b")
    uid = world.apply("c")
    world.gain_of_sentinels = 0.0
    lift(world)
    assert world.story()[-7:] == ["Unfreeze:Unfrozen", *PAIR, "Test:TestOpened", "Reject:PrimaryNotPassed"]
    assert (world.state(uid), condition(world)[:2], failed_sentinel(state(world))) == ("Rejected", ("True", "AsExpected"), None)


def test_after_a_failure_no_test_is_opened_on_traffic_on_which_the_gate_cannot_be_probed_again() -> None:
    world = judged(opened(on_traffic(), gain_of_sentinels=0.5), "a", "b")
    assert world.story()[-3:] == FAILED
    world.policy, world.gain = on_traffic(items=80), 0.5
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "other traffic"})
    uid = world.apply("c")
    world.run()
    lift(world)
    decided = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    assert (world.state(uid), decided.reason, world.story()[-1]) == ("Queued", "GateUnprobed", "Unfreeze:Unfrozen")
    assert "name a policy whose traffic a round has asked" in decided.message
    world.policy, world.gain_of_sentinels = on_traffic(min_effect=100), 0.0
    world.edit(gatePolicyApproval={"digest": world.policy.digest_of(), "by": "ann", "reason": "traffic that was asked"})
    world.run()
    released = ["Test:TestOpened", "Accept:GatePassed", "Promote:GatePassed"]
    assert (world.state(uid), world.story()[-11:]) == ("Promoted", [*PAIR, *released, *PAIR])


def unreadable(world: World, uid: str, spec: Any = None) -> Any:
    """An operator that cannot read a candidate's spec, and with a spec one that can again; gives the spec it had."""
    known = world.candidates[uid]
    world.candidates[uid] = replace(known, spec=spec, problem=None if spec else "the spec breaks its contract")
    return known.spec


def test_after_a_failure_the_gate_is_probed_before_a_candidate_that_was_in_training_is_tested() -> None:
    world = judged(opened(probed(1)), "a")
    world.gain, uid = 0.5, world.apply("b")
    while world.state(uid) != "Training":
        world.reconcile()
        world._tick()
    world.policy, world.gain_of_sentinels = probed(1, min_effect=100), 0.5
    world.reconcile()
    spec = unreadable(world, uid)
    world.run()
    assert world.story()[-3:] == FAILED
    unreadable(world, uid, spec)
    lift(world)
    assert world.story()[-4:] == ["Unfreeze:Unfrozen", *FAILED]
    world.gain_of_sentinels = 0.0
    lift(world)
    assert world.state(uid) == "Promoted"


def test_none_is_asked_the_items_of_a_round_whose_last_test_is_open() -> None:
    world = judged(opened(on_traffic()), "a")
    uid = world.apply("b")
    until(world, "Test:TestOpened")
    spec = unreadable(world, uid)
    world.run()
    assert world.story()[-1] == "Test:TestOpened"
    unreadable(world, uid, spec)
    world.run()
    assert (world.state(uid), world.story()[-4:]) == ("Rejected", PAIR)


def lift(world: World) -> None:
    """A person mends the cause and lifts the freeze."""
    held = state(world).frozen_by
    assert held is not None
    world.annotations = {"gatevalve.dev/unfreeze": f"support-{held.sequence:06d}"}
    world.run()


UNSOUND: dict[str, Callable[[World], None]] = {
    "its Job breaks a contract": lambda world: setattr(world, "script", lambda step, attempt: 10 if step == "sentinel" else 0),
    "its Job keeps failing": lambda world: setattr(world, "script", lambda step, attempt: 1 if step == "sentinel" else 0),
    "its Job names no evidence": lambda world: setattr(world, "names_evidence", False),
    "its evidence cannot be read": lambda world: setattr(world, "evidence_problem", "report.json: is gone"),
    "its evidence was made under other digests": lambda world: setattr(world, "evidence_digest", KEY_ID),
}


def test_one_that_finds_too_few_fresh_items_ends_at_once_and_says_so() -> None:
    world = judged(opened(), "a")
    world.script = lambda step, attempt: 16 if step == "sentinel" else 0
    judged(world, "b")
    assert len([job for job in world.jobs.values() if job.view.step == "sentinel"]) == 2
    assert sentinels(world) == ["Same 1 SentinelInconclusive", "Bad 2 SentinelInconclusive"]
    assert condition(world)[2].count("exit 16") == 2


@pytest.mark.parametrize("why", UNSOUND)
def test_one_without_a_verdict_says_nothing_of_the_gate_and_freezes_nothing(why: str) -> None:
    world = judged(opened(), "a")
    world.apply("b")
    until(world, "Sentinel:SentinelOpened")
    UNSOUND[why](world)
    world.run()
    assert sentinels(world) == ["Same 1 SentinelInconclusive", "Bad 2 SentinelInconclusive"]
    assert (state(world).frozen_by, condition(world)[:2]) == (None, ("Unknown", "SentinelInconclusive"))


def test_after_one_without_a_verdict_the_gate_is_probed_again_after_the_next_test() -> None:
    world = opened(probed(100))
    world.script = lambda step, attempt: 10 if step == "sentinel" else 0
    world.policy = probed(100, min_effect=100)
    world.run()
    world.script = lambda step, attempt: 0
    judged(world, "a")
    assert sentinels(world) == [
        *("Same 1 SentinelInconclusive", "Bad 2 SentinelInconclusive"),
        *("Same 3 SentinelPassed", "Bad 4 SentinelPassed"),
    ]


OVERTAKEN: dict[str, Callable[[World], None]] = {
    "the incumbent changed": lambda world: world.edit(pin={"entry": "support-000000", "reason": "worse", "by": "ann"}),
    "another policy came into force": lambda world: setattr(world, "policy", probed(1, min_effect=100)),
    "no verdict within 6 h": lambda world: setattr(world, "now", world.now.replace(hour=23)),
}


@pytest.mark.parametrize("what", OVERTAKEN)
def test_one_that_was_overtaken_ends_without_a_verdict_and_its_job_is_stopped(what: str) -> None:
    world = opened(probed(1), gain=0.5)
    world.apply("a")
    until(world, "Sentinel:SentinelOpened")
    world.reconcile()
    OVERTAKEN[what](world)
    until(world, "Sentinel:SentinelInconclusive")
    assert world.log[-1].spec.message == what
    assert not [job for job in world.jobs.values() if job.view.step == "sentinel" and not job.view.finished]


@pytest.mark.parametrize("after", range(1, 26))
def test_an_operator_that_is_killed_anywhere_writes_the_same_log(after: int) -> None:
    whole = judged(opened(probed(1), gain_of_sentinels=0.5), "a").story()
    world = World(policy=probed(1), gain=0.0, gain_of_sentinels=0.5, kill_after=after)
    world.run()
    assert judged(world, "a").story() == whole


def test_a_gate_that_would_accept_but_for_what_the_log_allows_has_failed() -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a")
    world.apply("b")
    until(world, "Sentinel:SentinelOpened")
    while (evidence := world.view().evidence) is None:
        world.reconcile()
        world._tick()
    log, begun = state(world), world.log[-1].spec
    assert begun.gate is not None
    assert evidence.report is not None
    assert evidence.digest is not None
    result = EvidenceResult(evidence_digest=evidence.digest, pairs_digest=evidence.report.pairs.sha256)
    assert judge_sentinel(log, begun, BASE_DIGEST, evidence, result).reason is EntryReason.SENTINEL_FAILED
    exhausted = begun.model_copy(update={"gate": begun.gate.model_copy(update={"test": 11})})
    assert judge_test(log, as_test(exhausted, BASE_DIGEST), BASE_DIGEST, evidence, result).reason is EntryReason.NOT_AUTHORIZED
    assert judge_sentinel(log, exhausted, BASE_DIGEST, evidence, result).reason is EntryReason.SENTINEL_FAILED


# ---- they take nothing from candidates, and nothing of them is released


def test_rounds_budgets_and_the_rejection_ratio_are_those_of_a_log_without_them() -> None:
    world = judged(opened(probed(1)), *"abc")
    log = state(world)
    without = [spec for spec in log.specs if spec.action is not Action.SENTINEL]
    assert list(rounds(log.specs))[-1] == list(rounds(without))[-1]
    assert world.channel_status.round is not None
    assert (world.channel_status.round.tests, rejection_ratio(world.view().log)) == (3, 1.0)
    assert len(log.quarantine) == 3


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("candidate"), st.sampled_from([0.0, 0.5])),
        st.tuples(st.just("gate"), st.sampled_from([0.0, 0.5])),
        st.tuples(st.just("policy"), st.sampled_from([50, 60, 70])),
        st.tuples(st.just("lift"), st.just(0)),
        st.tuples(st.just("restart"), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(moves=MOVES, every=st.integers(1, 3))
def test_whatever_happens_only_accepted_candidates_are_promoted_and_the_log_stands_its_audit(moves: list[Any], every: int) -> None:
    world = opened(probed(every))
    for number, (what, how) in enumerate(moves):
        _move(world, number, what, how, every)
    promoted = [spec for spec in state(world).specs if spec.action is Action.PROMOTE]
    accepted = {spec.candidate.uid: spec for spec in state(world).specs if spec.action is Action.ACCEPT and spec.candidate}
    digests = {spec.sentinel.digest_of() for spec in state(world).specs if spec.sentinel}
    assert all(spec.candidate and spec.candidate.uid in accepted and spec.candidate.uid in world.candidates for spec in promoted)
    assert all(spec.serves and spec.serves.digest not in digests for spec in promoted)
    assert log_problems(state(world)) == ()


def _move(world: World, number: int, what: str, how: Any, every: int) -> None:
    held = state(world).frozen_by
    if what == "candidate":
        world.gain = how
        world.apply(f"c{number}")
    elif what == "gate":
        world.gain_of_sentinels = how
    elif what == "policy":
        world.policy = probed(every, min_effect=how)
    elif what == "restart":
        world.kill_after = world.actions + how
    elif held is not None:
        world.annotations = {"gatevalve.dev/unfreeze": f"support-{held.sequence:06d}"}
    world.run()


def test_a_candidate_that_calls_itself_a_failed_sentinel_is_promoted_by_nothing() -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a", "b")
    uid = world.apply("sentinel-1")
    known = world.candidates.pop(uid)
    world.candidates["sentinel-1"] = replace(known, meta=replace(known.meta, uid="sentinel-1"))
    world.forge("sentinel-1", state="Accepted")
    lift(world)
    assert not [spec for spec in state(world).specs if spec.action in (Action.ACCEPT, Action.PROMOTE)]


# ---- the audit


def opened_entry(world: World, number: int = 9) -> AdapterReleaseSpec:
    """The entry that begins another sentinel, as the log would have it next; appended."""
    log, first = state(world), next(spec for spec in state(world).specs if spec.gate is not None)
    assert first.gate is not None
    gate = first.gate.model_copy(update={"round": number, "test": 1, "incumbent_digest": log.incumbent_digest, "evidence": None})
    ref = SentinelRef(kind="Bad", number=number)
    changes = {"action": Action.SENTINEL, "reason": EntryReason.SENTINEL_OPENED, "sentinel": ref, "gate": gate, "sequence": len(log.specs)}
    spec = first.model_copy(update={**changes, "candidate": None, "lineage": None, "verdict": None})
    world.log.append(EntryView(spec, world.log[0].status, True))
    return spec


def ended(world: World, begun: AdapterReleaseSpec, reason: EntryReason) -> AdapterReleaseSpec:
    """An entry that ends a sentinel."""
    verdict = {EntryReason.SENTINEL_FAILED: Verdict.ACCEPTED}.get(reason, Verdict.REJECTED)
    return begun.model_copy(update={"sequence": len(world.log), "reason": reason, "verdict": verdict})


SERVED = Serves(base=True)
FORGED: dict[str, tuple[int, dict[str, Any], str]] = {
    "serves": (-4, {"serves": SERVED}, "Sentinel names what serves"),
    "used number": (-2, {"sentinel": SentinelRef(kind="Bad", number=1)}, "has a number that was used"),
    "other policy": (-4, {"gate.policy_digest": KEY_ID}, "it begins under policy"),
    "other incumbent": (-4, {"gate.incumbent_digest": KEY_ID}, "it is measured against another incumbent"),
    "a verdict at its beginning": (-4, {"verdict": Verdict.ACCEPTED}, "before anything was measured"),
    "a candidate": (-3, {"candidate": "a"}, "it names a candidate"),
    "another verdict": (-3, {"verdict": Verdict.ACCEPTED}, "does not go with reason"),
    "no evidence": (-3, {"gate.evidence": None}, "it judges without evidence"),
    "ends twice": (-2, {"reason": EntryReason.SENTINEL_PASSED}, "it ends a sentinel that had not begun"),
    "begins twice": (-3, {"reason": EntryReason.SENTINEL_OPENED}, "began a sentinel that has not ended"),
    "another sentinel's end": (-3, {"sentinel": SentinelRef(kind="Bad", number=7)}, "it ends a sentinel that had not begun"),
    "no sentinel": (-4, {"sentinel": None}, "it does not say which sentinel"),
    "another look": (-3, {"gate.incumbent_digest": KEY_ID}, "it judges something else"),
}


@cache
def honest() -> tuple[EntryView, ...]:
    """A log that ends with two sentinels."""
    return tuple(judged(opened(), "a", "b").log)


@pytest.mark.parametrize("what", FORGED)
def test_an_entry_that_no_decision_could_have_written_is_named(what: str) -> None:
    world = World(policy=probed(), log=list(honest()))
    position, changes, problem = FORGED[what]
    view = world.log[position]
    world.log[position] = replace(view, spec=changed(world, view.spec, changes))
    name = f"support-{view.spec.sequence:06d}"
    assert any(text.startswith(name) and problem in text for text in log_problems(state(world))), log_problems(state(world))


def changed(world: World, spec: AdapterReleaseSpec, changes: dict[str, Any]) -> AdapterReleaseSpec:
    candidate = next(entry.spec.candidate for entry in world.log if entry.spec.candidate)
    plain = {key: candidate if key == "candidate" else value for key, value in changes.items() if "." not in key}
    nested = {key.split(".")[1]: value for key, value in changes.items() if "." in key}
    gate = spec.gate.model_copy(update=nested) if spec.gate else None
    return spec.model_copy(update={**plain, "gate": gate})


def test_one_that_begins_under_a_policy_without_any_is_named() -> None:
    entries = [replace(honest()[0], spec=honest()[0].spec.model_copy(update={"policy": probed(0)})), *honest()[1:]]
    assert any("it begins although sentinels.everyCandidates" in text for text in log_problems(LogState(tuple(entries))))


@pytest.mark.parametrize("action", [Action.SENTINEL, Action.TEST])
def test_what_begins_while_the_channel_is_frozen_is_named(action: Action) -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a", "b")
    begun = next(spec for spec in state(world).specs if spec.action is action)
    world.log.append(EntryView(begun.model_copy(update={"sequence": len(world.log)}), world.log[0].status, True))
    assert any(f"support-{len(world.log) - 2:06d} froze the channel" in text for text in log_problems(state(world)))


def test_a_test_that_is_opened_while_a_sentinel_runs_is_named() -> None:
    world = judged(opened(), "a")
    world.apply("b")
    until(world, "Sentinel:SentinelOpened")
    test = next(spec for spec in state(world).specs if spec.action is Action.TEST)
    world.log.append(EntryView(test.model_copy(update={"sequence": len(world.log)}), world.log[0].status, True))
    assert any("began a sentinel that has not ended" in text for text in log_problems(state(world)))


def test_a_promotion_of_what_a_sentinel_was_is_named() -> None:
    world = judged(opened(gain_of_sentinels=0.5), "a", "b")
    failed = world.log[-2].spec
    promote = failed.model_copy(
        update={"action": Action.PROMOTE, "reason": EntryReason.GATE_PASSED, "sequence": len(world.log), "serves": SERVED}
    )
    world.log.append(EntryView(promote, world.log[0].status, True))
    assert any("it promotes what was never accepted" in text for text in log_problems(state(world)))


def test_ends_that_rest_on_evidence_are_judged_anew() -> None:
    world = judged(opened(), "a", "b")
    assert [given.entry.sequence - given.test.sequence for given in given_sentinels(state(world))] == [1, 1]
