"""The decisions in a small world: each test is a story with its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus
from support.world import LIMITS, SimPod, World, channel_spec, digest, entry, policy

ACCEPTED = ["Test:TestOpened", "Accept:GatePassed", "Promote:GatePassed"]
ROLLOUT = ["Open:ChannelOpened"]


def opened(**changes: object) -> World:
    """A world in which the base serves and is settled."""
    world = World(**changes)  # type: ignore[arg-type]
    world.run()
    return world


def test_a_new_channel_opens_its_log_and_serves_the_base():
    world = opened()
    assert world.story() == ["Open:ChannelOpened"]
    assert world.answering() == {entry(0)}
    assert world.condition("Ready") == ("True", "AsExpected")


def test_a_good_candidate_is_trained_tested_accepted_promoted_and_live():
    world = opened()
    uid = world.apply("monday")
    world.run()
    assert world.story() == ["Open:ChannelOpened", *ACCEPTED]
    assert world.state(uid) == "Promoted"
    assert world.answering() == {entry(3)}
    assert world.log[3].status.live_since is not None
    assert world.pods[0].annotations == {"gatevalve.dev/support": entry(3)}


def test_a_candidate_without_gain_is_rejected_and_the_alias_stays():
    world = opened(gain=0.0)
    uid = world.apply("monday")
    world.run()
    assert world.story()[-1] == "Reject:PrimaryNotPassed"
    assert world.state(uid) == "Rejected"
    assert world.answering() == {entry(0)}


def test_an_artifact_candidate_is_fetched_instead_of_trained():
    world = opened()
    uid = world.apply("made-elsewhere", train=None, artifact={"uri": "file:///gatevalve/data/inbox/a1", "digest": digest("a1")})
    world.run()
    assert world.state(uid) == "Promoted"
    assert {job.view.step for job in world.jobs.values()} == {"draw", "fetch", "evaluate"}


def test_candidates_go_one_at_a_time_oldest_first_each_from_the_incumbent_of_its_turn():
    world = opened()
    first, second = world.apply("monday"), world.apply("tuesday")
    world.run()
    assert [world.state(first), world.state(second)] == ["Promoted", "Promoted"]
    parents = [e.spec.lineage.parent_digest for e in world.log if e.spec.action == "Promote" and e.spec.lineage]
    assert parents == [None, digest(f"adapter of {first}")]


@pytest.mark.parametrize(
    ("step", "code", "state", "reason", "story"),
    [
        ("snapshot", 11, "Skipped", "NoSignal", ROLLOUT),
        ("train", 11, "Skipped", "NoSignal", ROLLOUT),
        ("train", 10, "Errored", "ContractBroken", ROLLOUT),
        ("train", 13, "Errored", "CaptureBroken", ROLLOUT),
        ("train", 12, "Rejected", "TrainingDiverged", [*ROLLOUT, "Reject:TrainingDiverged"]),
        ("train", 14, "Errored", "StepFailed", ROLLOUT),
        ("train", 1, "Errored", "StepFailed", ROLLOUT),
        ("evaluate", 10, "Inconclusive", "EvidenceFailed", [*ROLLOUT, "Test:TestOpened", "Reject:EvidenceFailed"]),
        ("evaluate", 1, "Inconclusive", "EvidenceFailed", [*ROLLOUT, "Test:TestOpened", "Reject:EvidenceFailed"]),
    ],
)
def test_exit_codes_lead_to_their_ends(step, code, state, reason, story):
    world = opened(script=lambda s, attempt: code if s == step else 0)
    uid = world.apply("monday")
    world.run()
    decided = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    assert (world.state(uid), decided.reason, world.story()) == (state, reason, story)
    assert world.answering() == {entry(0)}


@pytest.mark.parametrize(
    ("codes", "attempts"),
    [((143, 0), 2), ((1, 1, 0), 3), ((14, 0), 2), ((15, 15, 0), 3)],
    ids=["terminated resumes", "unknown failures get three attempts", "out of memory gets one more", "backend gone backs off"],
)
def test_a_step_that_can_be_tried_again_is(codes, attempts):
    world = opened(script=lambda step, attempt: codes[attempt - 1] if step == "train" else 0)
    uid = world.apply("monday")
    world.run()
    assert world.state(uid) == "Promoted"
    assert sum(job.view.step == "train" for job in world.jobs.values()) == attempts


def test_out_of_memory_is_tried_with_half_the_token_budget():
    world = opened(script=lambda step, attempt: 14 if step == "train" and attempt == 1 else 0)
    world.apply("monday")
    world.run()
    second = next(job for job in world.jobs.values() if job.view.step == "train" and job.view.attempt == 2)
    job = second.manifest["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]
    assert '"tokenBudgetDivisor":2' in job


def test_a_job_that_never_ends_hits_the_deadline():
    world = opened()
    uid = world.apply("monday", deadline="10m")
    world.reconcile()
    world.reconcile()
    world.now += timedelta(minutes=11)
    world.run()
    assert (world.state(uid), world.jobs) == ("Errored", {})


def test_deleting_a_candidate_after_its_test_opened_refunds_nothing():
    world = opened()
    uid = world.apply("monday")
    while "Test:TestOpened" not in world.story():
        world.reconcile()
        world._tick()
    world.delete(uid)
    world.run()
    assert world.story()[-2:] == ["Test:TestOpened", "Reject:CandidateDeleted"]
    assert world.channel_status.round is not None
    assert world.channel_status.round.tests == 1


def test_rejected_weights_offered_again_are_refused_by_digest():
    world = opened(gain=0.0, adapter_of=lambda uid: digest("the same bytes"))
    world.apply("monday")
    world.run()
    world.gain = 0.5
    uid = world.apply("tuesday")
    world.run()
    assert (world.state(uid), decided(world, uid)) == ("Errored", "Quarantined")
    assert world.story().count("Test:TestOpened") == 1
    assert world.answering() == {entry(0)}


def test_weights_that_were_rolled_back_are_refused_when_they_come_again():
    world = opened(adapter_of=lambda uid: digest("the same bytes"))
    world.apply("monday")
    world.run()
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    world.edit(pin=None)
    uid = world.apply("tuesday")
    world.run()
    assert (world.state(uid), decided(world, uid)) == ("Errored", "Quarantined")
    assert world.story()[-1] == "Rollback:Pinned"


def test_an_adapter_trained_from_another_parent_than_the_incumbent_is_aborted_even_when_its_status_was_wiped():
    world = opened()
    world.apply("monday")
    world.run()
    uid = world.apply("tuesday")
    while not any(job.view.step == "train" and job.view.candidate_uid == uid for job in world.jobs.values()):
        world.reconcile()
        world._tick()
    world.edit(pin={"entry": entry(0), "reason": "back", "by": "ann"})
    world.candidates[uid] = replace(world.candidates[uid], status=AdapterCandidateStatus())
    world.run()
    world.edit(pin=None)
    world.run()
    assert (world.state(uid), decided(world, uid)) == ("Aborted", "Stale")


def test_a_pin_rolls_back_and_removing_it_promotes_nothing():
    world = opened()
    world.apply("monday")
    world.run()
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    assert world.story()[-1] == "Rollback:Pinned"
    assert world.answering() == {entry(4)}
    assert world.log[4].spec.serves is not None
    assert world.log[4].spec.serves.base is True
    assert world.log[4].spec.actor == "ann"
    world.edit(pin=None)
    world.run()
    assert world.story()[-1] == "Rollback:Pinned"


def test_a_pin_rolls_back_also_when_the_policy_was_deleted_and_candidates_are_told_why_they_wait():
    world = opened()
    world.apply("monday")
    world.run()
    world.policy_deleted = True
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    uid = world.apply("tuesday")
    world.run()
    assert world.answering() == {entry(4)}
    assert world.condition("GateReady") == ("False", "PolicyMissing")
    assert world.condition("Ready") == ("False", "PolicyMissing")
    assert (world.state(uid), decided(world, uid)) == ("Queued", "ChannelNotReady")


def test_a_channel_whose_base_no_pod_serves_is_told_and_never_committed():
    base = {"name": "tiny-words", "uri": "file:///models/tiny-words", "digest": digest("another base")}
    world = opened(spec=channel_spec(base=base))
    assert world.committed is None
    assert world.condition("Serving") == ("False", "PodsDegraded")


def test_a_failed_attempt_is_told_by_an_event_before_the_next():
    world = opened(script=lambda step, attempt: 1 if step == "train" and attempt == 1 else 0)
    world.apply("monday")
    world.run()
    assert "StepFailed: exit 1; trying again" in world.events


def test_without_a_policy_no_log_is_opened():
    world = World(policy_deleted=True)
    world.run()
    assert world.log == []
    assert world.condition("Ready") == ("False", "PolicyMissing")


def test_a_pin_is_written_once_however_often_it_is_seen():
    world = opened()
    world.apply("monday")
    world.run()
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    world.run()
    assert world.story().count("Rollback:Pinned") == 1


def test_a_pin_to_an_entry_that_never_served_is_told_and_changes_nothing():
    world = opened()
    world.edit(pin={"entry": entry(7), "reason": "typo", "by": "ann"})
    world.run()
    assert world.condition("Ready") == ("False", "SpecInvalid")
    assert world.story() == ["Open:ChannelOpened"]


def test_a_pin_while_a_rollout_is_in_flight_cancels_it():
    world = opened()
    world.apply("monday")
    while "Promote:GatePassed" not in world.story():
        world.reconcile()
        world._tick()
    world.edit(pin={"entry": entry(0), "reason": "stop", "by": "ann"})
    world.run()
    assert world.story()[-2:] == ["Promote:GatePassed", "Rollback:Pinned"]
    assert world.answering() == {entry(4)}


def test_an_accepted_candidate_waits_while_the_channel_is_pinned_and_is_stale_afterwards():
    world = opened()
    uid = world.apply("monday")
    world.run()
    world.edit(approval="Manual")
    second = world.apply("tuesday")
    world.run()
    assert world.state(second) == "Accepted"
    world.edit(pin={"entry": entry(0), "reason": "stop", "by": "ann"})
    world.run()
    world.edit(pin=None)
    world.run()
    assert (world.state(uid), world.state(second)) == ("Promoted", "Aborted")


def test_manual_approval_promotes_only_with_the_evidence_the_person_saw():
    world = opened(spec=channel_spec(approval="Manual"))
    uid = world.apply("monday")
    world.run()
    assert world.state(uid) == "Accepted"
    seen = world.candidates[uid].status.evidence
    assert seen is not None
    world.approve(uid, "Approve", seen.digest)
    world.run()
    assert (world.state(uid), world.log[-1].spec.reason, world.log[-1].spec.actor) == ("Promoted", "Approved", "ann")


@pytest.mark.parametrize(("decision", "evidence"), [("Deny", None), ("Approve", digest("other evidence"))])
def test_a_denial_or_an_approval_of_other_evidence_aborts(decision, evidence):
    world = opened(spec=channel_spec(approval="Manual"))
    uid = world.apply("monday")
    world.run()
    status = world.candidates[uid].status
    assert status.evidence is not None
    world.approve(uid, decision, evidence or status.evidence.digest)
    world.run()
    assert world.state(uid) == "Aborted"
    assert world.answering() == {entry(0)}


def test_while_one_accepted_candidate_waits_for_a_person_no_other_is_started():
    world = opened(spec=channel_spec(approval="Manual"))
    first, second = world.apply("monday"), world.apply("tuesday")
    world.run()
    assert (world.state(first), world.state(second), decided(world, second)) == ("Accepted", "Queued", "BehindAnother")


def test_a_pin_to_what_serves_is_an_entry_and_makes_the_candidate_in_flight_stale():
    world = opened()
    uid = world.apply("monday")
    run_until(world, "Test:TestOpened")
    world.edit(pin={"entry": entry(0), "reason": "holiday", "by": "ann"})
    world.run()
    assert world.story()[-2:] == ["Rollback:Pinned", "Reject:Stale"]
    world.edit(pin=None)
    world.run()
    assert (world.state(uid), world.story()[-1]) == ("Inconclusive", "Reject:Stale")


def test_while_a_pin_names_no_entry_an_accepted_candidate_is_held():
    world = opened()
    uid = world.apply("monday")
    run_until(world, "Test:TestOpened")
    world.edit(pin={"entry": entry(9), "reason": "typo", "by": "ann"})
    world.run()
    assert (world.state(uid), decided(world, uid), world.answering()) == ("Accepted", "ChannelPinned", {entry(0)})


@pytest.mark.parametrize(("step", "state", "last"), [("train", "Aborted", "Rollback:Pinned"), ("evaluate", "Inconclusive", "Reject:Stale")])
def test_a_candidate_whose_incumbent_changes_while_it_runs_ends(step, state, last):
    world = opened()
    world.apply("monday")
    world.run()
    uid = world.apply("tuesday")
    while not any(job.view.step == step and job.view.candidate_uid == uid for job in world.jobs.values()):
        world.reconcile()
        world._tick()
    world.edit(pin={"entry": entry(0), "reason": "back", "by": "ann"})
    world.run()
    assert (world.state(uid), world.story()[-1]) == (state, last)


@pytest.mark.parametrize("fault", [{"evidence_problem": "report.json is missing"}, {"evidence_digest": digest("another report")}])
def test_evidence_that_cannot_be_read_or_is_not_what_the_job_named_is_inconclusive(fault):
    world = opened(**fault)
    uid = world.apply("monday")
    world.run()
    assert (world.state(uid), world.story()[-1], world.answering()) == ("Inconclusive", "Reject:EvidenceUnsound", {entry(0)})


def decided(world: World, uid: str) -> str:
    return next(c.reason for c in world.candidates[uid].status.conditions if c.type == "Decided")


def run_until(world: World, last: str) -> None:
    while world.story()[-1] != last:
        world.reconcile()
        world._tick()


def test_a_promotion_that_does_not_settle_is_rolled_back_and_its_weights_are_quarantined():
    world = opened(pods=[SimPod("pod-a", fails=True)])
    uid = world.apply("monday")
    world.run()
    world.now += timedelta(seconds=120)
    world.run()
    assert world.story()[-2:] == ["Promote:GatePassed", "Rollback:RolloutFailed"]
    assert world.state(uid) == "Promoted"
    assert world.answering() == {entry(4)}


def promoted() -> World:
    world = opened()
    world.apply("monday")
    run_until(world, "Promote:GatePassed")
    return world


def test_an_operator_that_was_down_longer_than_a_rollout_may_take_still_rolls_out():
    world = promoted()
    world.now += timedelta(hours=2)
    world.started_at = world.now
    world.run()
    assert world.answering() == {entry(3)}


def test_an_operator_killed_in_the_middle_of_a_rollout_gives_it_its_time_again():
    world = promoted()
    world.reconcile()
    world.now += timedelta(hours=2)
    world.started_at = world.now
    world.run()
    assert world.answering() == {entry(3)}


def test_a_log_store_that_was_down_longer_than_a_rollout_may_take_costs_no_promotion():
    world = promoted_without_a_copy()
    world.now += timedelta(hours=2)
    world.reconcile()
    world.store_down = False
    world.run()
    assert world.answering() == {entry(3)}


def test_a_refusal_of_an_older_document_does_not_exclude_a_pod_from_the_next_promotion():
    world = opened(pods=[SimPod("pod-a", reason="Unsigned")])
    world.apply("monday")
    world.run()
    assert world.answering() == {entry(3)}


def test_a_promotion_whose_configmap_is_lost_is_still_verified_before_it_is_committed():
    world = opened(pods=[SimPod("pod-a")])
    world.apply("monday")
    run_until(world, "Promote:GatePassed")
    world.pods[0].fails = True
    world.replay(None)
    for _ in range(10):
        world.reconcile()
        world._tick()
    assert world.committed is not None
    assert world.committed.document.routes[0].entry == entry(0)
    assert world.answering() == {entry(0)}


def test_a_pin_reaches_the_pods_although_another_channel_claims_the_alias():
    world = promoted()
    world.run()
    world.alias_owner = "rival"
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    world.run()
    assert world.answering() == {entry(4)}


def test_a_backend_that_never_answers_ends_the_candidate():
    world = opened(script=lambda step, attempt: 15 if step == "train" else 0)
    uid = world.apply("monday", deadline="999h")
    for _ in range(20):
        world.run()
        world.now += timedelta(minutes=5)
    assert world.state(uid) == "Errored"


def test_an_evaluation_that_names_no_evidence_is_inconclusive():
    world = opened(names_evidence=False)
    uid = world.apply("monday")
    world.run()
    assert (world.state(uid), world.story()[-1]) == ("Inconclusive", "Reject:EvidenceFailed")


def test_an_adopted_channel_goes_on_training_with_the_paths_of_its_log():
    world = promoted()
    world.run()
    world.channel_uid, world.channel_status = "channel-2", AdapterChannelStatus()
    world.annotations = {"gatevalve.dev/adopt": "channel-1"}
    world.run()
    uid = world.apply("tuesday")
    world.run()
    assert world.state(uid) == "Promoted"
    train = next(job for job in world.jobs.values() if job.view.step == "train" and job.view.candidate_uid == uid)
    mounts = [
        mount["subPath"] for mount in train.manifest["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] if "subPath" in mount
    ]
    assert {path.split("/")[0] for path in mounts} == {"channel-1"}


def test_with_no_reachable_pod_a_promotion_waits():
    world = opened()
    world.apply("monday")
    while "Promote:GatePassed" not in world.story():
        world.reconcile()
        world._tick()
    world.pods[0].reachable = False
    world.now += timedelta(hours=1)
    for _ in range(5):
        world.reconcile()
        world._tick()
    assert world.story()[-1] == "Promote:GatePassed"
    assert world.condition("Serving") == ("False", "NoReachablePods")


def promoted_without_a_copy() -> World:
    world = opened()
    world.apply("monday")
    while world.story()[-1] != "Accept:GatePassed":
        world.reconcile()
        world._tick()
    world.store_down = True
    for _ in range(8):
        world.reconcile()
        world._tick()
    return world


def test_no_document_follows_a_promotion_before_its_copy_in_the_external_log():
    world = promoted_without_a_copy()
    assert world.story()[-1] == "Promote:GatePassed"
    assert world.pods[0].document is not None
    assert world.pods[0].document.adapters == ()
    world.store_down = False
    world.run()
    assert world.answering() == {entry(3)}


def test_a_way_back_does_not_wait_for_its_copy():
    world = opened()
    world.apply("monday")
    world.run()
    world.store_down = True
    world.edit(pin={"entry": entry(0), "reason": "complaints", "by": "ann"})
    for _ in range(5):
        world.reconcile()
        world._tick()
    assert world.answering() == {entry(4)}


def test_one_pod_verifies_first_and_a_bad_one_is_excluded_and_named():
    world = opened(pods=[SimPod(f"pod-{index}", fails=index == 4) for index in range(5)])
    world.apply("monday")
    world.run()
    assert {pod.name: pod.answering for pod in world.pods} == {f"pod-{i}": entry(0 if i == 4 else 3) for i in range(5)}
    assert [failure.pod for failure in world.log[3].status.failures] == ["pod-4"]
    assert world.condition("Serving") == ("True", "PodsDegraded")


@pytest.mark.parametrize("failing", [1, 2], ids=["half of the pods", "all pods"])
def test_a_promotion_that_too_few_pods_verified_never_becomes_the_committed_document(failing):
    world = opened(pods=[SimPod("pod-a", fails=failing > 1), SimPod("pod-b", fails=True)])
    world.apply("monday")
    run_until(world, "Promote:GatePassed")
    for _ in range(10):
        world.reconcile()
        world._tick()
    assert world.committed is not None
    assert world.committed.document.routes[0].entry == entry(0)
    assert world.answering() == {entry(0)}


def test_one_pod_loads_a_promotion_before_the_others_are_told_of_it():
    world = opened(pods=[SimPod("pod-a"), SimPod("pod-b"), SimPod("pod-c")])
    world.apply("monday")
    run_until(world, "Promote:GatePassed")
    world.reconcile()
    told = [pod.name for pod in world.pods if pod.document and pod.document.revision[0] == 3]
    assert told == ["pod-a"]


def test_a_rolled_back_adapter_is_not_kept_warm():
    world = opened()
    world.apply("monday")
    world.run()
    world.apply("tuesday")
    world.run()
    world.edit(pin={"entry": entry(3), "reason": "complaints", "by": "ann"})
    world.run()
    assert world.pods[0].document is not None
    assert [adapter.role for adapter in world.pods[0].document.adapters] == ["Live"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"runtime_lora": False}, "RuntimeLoRADisabled"),
        ({"max_lora_rank": 4}, "CapacityExceeded"),
        ({"max_loras": 2}, "CapacityExceeded"),
        ({"max_cpu_loras": 1}, "CapacityExceeded"),
    ],
)
def test_what_pods_can_never_do_is_told_before_anything_is_tried(limits, reason):
    world = opened(pods=[SimPod("pod-a", limits=LIMITS.model_copy(update=limits))])
    uid = world.apply("monday")
    world.run()
    assert (world.state(uid), decided(world, uid), world.jobs) == ("Queued", reason, {})


def test_nothing_is_dequeued_while_no_pod_serves():
    world = World(pods=[])
    world.run()
    uid = world.apply("monday")
    world.run()
    decided = next(c for c in world.candidates[uid].status.conditions if c.type == "Decided")
    assert (world.state(uid), decided.reason, world.condition("Serving")) == ("Queued", "ServingUnsettled", ("False", "NoPods"))


def test_a_restarted_pod_gets_the_committed_document_again():
    world = opened()
    world.apply("monday")
    world.run()
    world.pods[0] = SimPod("pod-a2")
    world.run()
    assert world.answering() == {entry(3)}


def test_a_pool_configmap_deleted_by_hand_is_written_again_as_pods_hold_it():
    world = opened()
    world.apply("monday")
    world.run()
    lost, world.committed = world.committed, None
    world.run()
    assert world.committed == lost
    assert world.answering() == {entry(3)}


def test_a_broken_log_freezes_the_channel_and_the_last_release_keeps_serving():
    world = opened()
    world.apply("monday")
    world.run()
    world.log_problem = "entry support-000002 was edited"
    uid = world.apply("tuesday")
    world.run()
    assert world.condition("LogValid") == ("False", "LogInvalid")
    assert (world.state(uid), world.answering()) == ("Queued", {entry(3)})


def test_another_policy_digest_is_an_entry_and_starts_a_new_round():
    world = opened(gain=0.0)
    world.apply("monday")
    world.run()
    world.policy = policy(min_effect=100)
    world.run()
    assert world.story()[-1] == "Policy:PolicyChanged"
    assert world.channel_status.round is not None
    assert (world.channel_status.round.number, world.channel_status.round.tests) == (2, 0)


def test_a_recreated_channel_is_refused_until_it_is_adopted_and_then_serves_on():
    world = opened()
    world.apply("monday")
    world.run()
    world.channel_uid = "channel-2"
    world.channel_status = AdapterChannelStatus()
    world.run()
    assert world.condition("LogValid") == ("False", "UidChanged")
    world.annotations = {"gatevalve.dev/adopt": "channel-1"}
    world.run()
    assert world.story()[-1] == "Open:ChannelAdopted"
    assert world.log[-1].spec.serves == world.log[3].spec.serves
    assert world.answering() == {entry(4)}


def test_a_wiped_candidate_status_changes_nothing():
    world = opened()
    uid = world.apply("monday")
    while "Test:TestOpened" not in world.story():
        world.reconcile()
        world._tick()
    world.candidates[uid] = replace(world.candidates[uid], status=AdapterCandidateStatus())
    world.run()
    assert world.story() == ["Open:ChannelOpened", *ACCEPTED]
    assert world.state(uid) == "Promoted"


@pytest.mark.parametrize("kill_after", range(1, 24))
def test_killed_after_any_action_the_end_is_the_same(kill_after):
    world = World(kill_after=kill_after)
    world.run()
    uid = world.apply("monday")
    world.run()
    world.edit(pin={"entry": entry(0), "reason": "back", "by": "ann"})
    world.run()
    assert world.story() == ["Open:ChannelOpened", *ACCEPTED, "Rollback:Pinned"]
    assert (world.state(uid), world.answering()) == ("Promoted", {entry(4)})


def test_five_hundred_queued_candidates_are_told_to_wait():
    world = opened()
    uids = [world.apply(f"c{index:03d}") for index in range(500)]
    world.reconcile()
    reasons = {next(c.reason for c in world.candidates[uid].status.conditions if c.type == "Decided") for uid in uids[1:]}
    assert reasons == {"BehindAnother"}


def test_rows_that_contradict_the_report_are_inconclusive():
    world = opened()
    uid = world.apply("monday")
    genuine = world._rows
    world._rows = lambda: genuine()[:-1]  # type: ignore[method-assign]
    world.run()
    assert (world.state(uid), world.story()[-1]) == ("Inconclusive", "Reject:EvidenceUnsound")
