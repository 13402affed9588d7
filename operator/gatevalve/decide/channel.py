"""One reconcile of a channel: the log first, then a way back, then the pods, then the candidates in order."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterChannelSpec
from gatevalve.contracts.names import ANNOTATION_ADOPT
from gatevalve.contracts.reasons import (
    TERMINAL_STATES,
    Action,
    ChannelCondition,
    ConditionReason,
    EntryReason,
    EventReason,
    Verdict,
)
from gatevalve.decide import entries
from gatevalve.decide.anchor import anchor_change
from gatevalve.decide.candidate import advance, dequeue, refuse, wait
from gatevalve.decide.case import Case, has_verdict, is_in_flight, is_over, is_witnessed
from gatevalve.decide.channel_status import Problem, audit_finding, channel_status
from gatevalve.decide.conditions import condition_of
from gatevalve.decide.freeze import frozen_text, unfreeze
from gatevalve.decide.holds import no_test_because
from gatevalve.decide.log import LogState, fold, name_of
from gatevalve.decide.pin import pin_target
from gatevalve.decide.plan import AppendEntry, CopyEntry, Event, Plan, RestoreKeys
from gatevalve.decide.policy import policy_change, policy_problem
from gatevalve.decide.restore import has_served, restored_document
from gatevalve.decide.rollout import POLL_SECONDS, Standing, decide_rollout, rollout_failed, standing
from gatevalve.decide.sentinel import advance_sentinel, begin_sentinel, freeze_after_failure, open_probe
from gatevalve.decide.sentinel_schedule import failed_sentinel
from gatevalve.decide.supply import used_up
from gatevalve.decide.tampering import Notice, notice
from gatevalve.decide.verdict import after_verdict
from gatevalve.decide.view import CandidateView, ChannelView, View

BROKEN = "nothing can be written behind it, a pin included: restore the log, or serve from a new channel; see docs/operations.md"
"""What a broken log means to a person who wants to go back, and what to do."""


def decide(view: View) -> Plan:
    """The plan of one reconcile."""
    channel = view.channel
    if channel is None:
        text = f"AdapterChannel {view.name} does not exist in this namespace; create it"
        return _refuse_all(view, (ConditionReason.CHANNEL_MISSING, text))
    if channel.spec is None:
        problem = (ConditionReason.SPEC_INVALID, channel.problem or "the spec breaks its contract")
        return _told(view, channel, None, None, problem, notice(view, channel, fold(view.log))) + _refuse_all(view, problem)
    return _decide_valid(view, channel, channel.spec)


def _decide_valid(view: View, channel: ChannelView, spec: AdapterChannelSpec) -> Plan:
    log = fold(view.log)
    gate = policy_problem(view, spec, log)
    problem = _log_problem(view, channel, log) or (gate if log.live is None else None)
    if problem is not None:
        return _stopped(view, channel, spec, log, problem)
    if (opening := _opening(view, channel, spec, log)) is not None:
        return opening
    now = standing(view, spec, log)
    if (back := _way_back(view, channel, spec, log, now)) is not None:
        return back
    if view.log.finding is None and (failed := freeze_after_failure(view, channel, log)).actions:
        return failed
    rollout, seen = _rolled_out(view, spec, log, now), notice(view, channel, log)
    return rollout + _told(view, channel, log, now, gate, seen) + (_copies(view) or _gated(view, channel, spec, log, now, gate, seen))


def _stopped(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState, problem: Problem) -> Plan:
    """Nothing is decided; what serves goes on, and of a broken log it is still kept up as far as the log and the pods agree on it."""
    kept = restored_document(view, spec, log) if view.log.problem is not None else ()
    return Plan(kept) + _told(view, channel, log, None, problem, notice(view, channel, log)) + _refuse_all(view, problem)


def _rolled_out(view: View, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan:
    """A log that does not stand its audit rolls out nothing that has not served: it is not known who promoted it."""
    if not _may_roll_out(view, now):
        return Plan()
    if view.log.finding is not None and not has_served(now.live):
        return Plan(restored_document(view, spec, log), requeue_seconds=POLL_SECONDS)
    return decide_rollout(view, spec, log, now)


def _told(view: View, channel: ChannelView, log: LogState | None, now: Standing | None, problem: Problem | None, seen: Notice) -> Plan:
    """The channel's status, and events of what is new in it. Keys are restored here and nowhere else, so that it is never done untold."""
    events = (*_log_event(view, channel), *seen.events(channel))
    keys = (RestoreKeys(),) if view.pool.keys_problem is not None else ()
    return Plan(keys, channel_status(view, channel, log, now, problem, seen), events)


def _gated(
    view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState, now: Standing, gate: Problem | None, seen: Notice
) -> Plan:
    """What goes through the gate: what persons decide first, then candidates under a policy that is in force and that the channel names."""
    if (finding := audit_finding(view)) is not None:
        return _refuse_all(view, finding)
    lifted = unfreeze(view, channel, log)
    if lifted.actions:
        return lifted
    change = policy_change(view, channel, spec, log)
    if change.actions:
        return change
    moved = anchor_change(view, channel, spec, log)
    if moved.actions:
        return moved
    if gate is not None:
        return _refuse_all(view, gate)
    return Plan(requeue_seconds=0) if seen.comes_first else _candidates(view, spec, log, now)


def _log_problem(view: View, channel: ChannelView, log: LogState) -> Problem | None:
    """What stops everything but serving."""
    if view.log.problem is not None:
        return ConditionReason.LOG_INVALID, f"{view.log.problem}; {BROKEN}"
    adopted = channel.meta.annotations.get(ANNOTATION_ADOPT)
    if log.channel_uid not in (None, channel.meta.uid) and adopted != log.channel_uid:
        text = f"the log belongs to a deleted channel; annotate this one with {ANNOTATION_ADOPT}={log.channel_uid} to go on with it"
        return ConditionReason.UID_CHANGED, text
    return audit_finding(view) if log.channel_uid != channel.meta.uid else None


def _opening(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState) -> Plan | None:
    """The Open entry comes before anything else. An adopted log keeps the policy in force: adoption is no way round an approval."""
    policy = view.policy.spec if view.policy else None
    if policy is None or log.channel_uid == channel.meta.uid:
        return None
    return Plan((AppendEntry(entries.open_entry(view, channel, spec, log, log.policy or policy)),), requeue_seconds=0)


def _way_back(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan | None:
    """A person's pin, or a promotion that did not settle: a Rollback entry, at once.

    A pin to what serves already is written as well: it is a person's decision, and what was measured before it is stale.
    """
    target = pin_target(log, spec.pin) if spec.pin is not None else None
    if spec.pin is not None and target is not None:
        if now.live.spec.action is Action.ROLLBACK and log.restored(target.spec) == log.restored(now.live.spec):
            return None
        entry = entries.rollback_entry(view, log, target, EntryReason.PINNED, spec.pin.reason, spec.pin.by)
    elif rollout_failed(view, spec, now) and len(log.serving) > 1:
        message = f"{name_of(now.live.spec)} did not settle within {spec.serving.rollout_seconds} s: {now.message}"
        entry = entries.rollback_entry(view, log, log.serving[-2], EntryReason.ROLLOUT_FAILED, message, None)
    else:
        return None
    text = f"{entry.reason}: {name_of(now.live.spec)} gives way to {entry.restores}"
    return Plan((AppendEntry(entry, copy_first=False),), events=(_event(channel, EventReason.ROLLED_BACK, text),), requeue_seconds=0)


def _may_roll_out(view: View, now: Standing) -> bool:
    """No document follows an entry before its copy, but a way back goes at once; and no two channels serve one alias."""
    if now.live.spec.action is Action.ROLLBACK:
        return True
    return now.live.exported and view.pool.alias_owner is None


def _copies(view: View) -> Plan | None:
    """Nothing follows an entry before its copy in the external log."""
    copies = tuple(CopyEntry(entry.spec.sequence) for entry in view.log.entries if not entry.exported)
    return Plan(copies, requeue_seconds=0) if copies else None


def _candidates(view: View, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan:
    if (orphan := _orphaned_test(view, log)) is not None:
        return orphan
    plan = Plan()
    cases = _cases(view, spec, log)
    for case in cases:
        if has_verdict(log, case.candidate):
            plan += after_verdict(case, _held(spec, log))
        if plan.actions:
            return plan
    return plan + _unreadable(view) + (_probed(view, cases, spec, log, now) or _queue(cases, spec, log, now))


def _probed(view: View, cases: list[Case], spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan | None:
    """A sentinel that has begun goes on, and one that is due begins when the channel could take a candidate; candidates wait meanwhile."""
    undecided = _undecided(cases)
    probe = open_probe(view, view.channel, spec, log) if view.channel is not None else None
    busy = bool(log.open_tests) or _goes_first(undecided, log) or _not_ready(cases, spec, log, now) is not None
    plan = advance_sentinel(probe) if probe is not None else Plan() if busy else begin_sentinel(view, log)
    if probe is None and not plan.actions:
        return None
    for case in undecided:
        plan += wait(case, ConditionReason.SENTINEL_RUNNING, ConditionReason.SENTINEL_RUNNING.sentence)
    return plan


def _goes_first(undecided: list[Case], log: LogState) -> bool:
    """What has begun goes before a sentinel, unless one has failed: then only tests that are open do."""
    return failed_sentinel(log) is None and any(case.has_begun for case in undecided)


def _undecided(cases: list[Case]) -> list[Case]:
    return [case for case in cases if not has_verdict(case.log, case.candidate) and not is_over(case.log, case.candidate)]


def _queue(cases: list[Case], spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan:
    """Advance the one in flight; otherwise take the oldest that waits, when the channel is ready for it."""
    ordered = sorted(_undecided(cases), key=lambda case: (not case.has_begun, not is_in_flight(log, case.candidate)))
    plan = Plan()
    for first in ordered[:1]:
        plan = _turn(first, None if first.has_begun else _not_ready(cases, spec, log, now))
    for case in ordered[1:]:
        plan += wait(case, ConditionReason.BEHIND_ANOTHER, "an older candidate goes first")
    return plan


def _turn(case: Case, problem: Problem | None) -> Plan:
    """Facts alone are no start: a status may be forged, and what a channel that is not ready has not begun stays in the queue."""
    if problem is not None:
        return wait(case, *problem)
    return advance(case) if is_in_flight(case.log, case.candidate) else dequeue(case)


def _not_ready(cases: list[Case], spec: AdapterChannelSpec, log: LogState, now: Standing) -> Problem | None:
    if (held := no_test_because(log)) is not None:
        return held
    if spec.paused:
        return ConditionReason.CHANNEL_PAUSED, "spec.paused is true; set it to false to go on"
    if spec.pin is not None:
        return ConditionReason.CHANNEL_PINNED, f"pinned to {spec.pin.entry} by {spec.pin.by}; remove spec.pin to go on"
    if now.blocked:
        return now.reason, now.message
    if not now.settled:
        return ConditionReason.SERVING_UNSETTLED, f"{name_of(now.live.spec)} is not settled: {now.message}"
    if (spent := used_up(log)) is not None:
        return ConditionReason.ITEM_SUPPLY, spent
    if any(_waits_for_a_person(case) for case in cases):
        return ConditionReason.BEHIND_ANOTHER, "an accepted candidate waits for its approval"
    return None


def _held(spec: AdapterChannelSpec, log: LogState) -> Problem | None:
    """What holds an accepted candidate back."""
    if (frozen := frozen_text(log)) is not None:
        return ConditionReason.FROZEN, frozen
    return (ConditionReason.CHANNEL_PINNED, "the channel is pinned and promotes nothing") if spec.pin is not None else None


def _waits_for_a_person(case: Case) -> bool:
    accept = case.log.of_candidate(case.uid, Action.ACCEPT)
    open_to_decide = accept is not None and case.spec.approval is None and not is_over(case.log, case.candidate)
    return open_to_decide and accept is not None and case.overtaken_since(accept) is None


def _orphaned_test(view: View, log: LogState) -> Plan | None:
    """A test whose candidate is gone gets its Reject(Inconclusive): deleting a candidate refunds nothing."""
    present = {candidate.meta.uid for candidate in view.candidates if not candidate.meta.deleting}
    for test in log.open_tests:
        if test.candidate is not None and test.candidate.uid not in present:
            text = f"candidate {test.candidate.name} was deleted after its test was opened"
            entry = entries.reject_entry(view, log, test, Verdict.INCONCLUSIVE, EntryReason.CANDIDATE_DELETED, text, None)
            return Plan((AppendEntry(entry),), requeue_seconds=0)
    return None


def _cases(view: View, spec: AdapterChannelSpec, log: LogState) -> list[Case]:
    """The readable candidates, oldest first."""
    uid = log.store_uid
    ordered = sorted(view.candidates, key=lambda candidate: (candidate.meta.created_at or view.now, candidate.meta.name))
    return [Case(view, spec, uid, log, one, one.spec) for one in ordered if one.spec is not None and not one.meta.deleting]


def _unreadable(view: View) -> Plan:
    plan = Plan()
    for candidate in view.candidates:
        if candidate.spec is None and not candidate.meta.deleting:
            plan += refuse(view, candidate, ConditionReason.SPEC_INVALID, candidate.problem or "the spec breaks its contract")
    return plan


def _refuse_all(view: View, problem: Problem) -> Plan:
    """Tell every open candidate why its channel does not take it."""
    missing = problem[0] is ConditionReason.CHANNEL_MISSING
    reason = problem[0] if missing else ConditionReason.CHANNEL_NOT_READY
    plan = Plan()
    for candidate in view.candidates:
        if not candidate.meta.deleting and not _has_ended(view, candidate):
            plan += refuse(view, candidate, reason, problem[1])
    return plan


def _has_ended(view: View, candidate: CandidateView) -> bool:
    """It has been told its end, or will be; a log that is broken may lack the entry of it."""
    log = fold(view.log)
    told = candidate.status.state in TERMINAL_STATES
    return is_over(log, candidate) or (told and (view.log.problem is not None or is_witnessed(log, candidate)))


def _log_event(view: View, channel: ChannelView) -> tuple[Event, ...]:
    old = condition_of(channel.status.conditions, ChannelCondition.LOG_VALID)
    wrong = view.log.problem or view.log.finding
    if wrong is None or (old is not None and old.status == "False"):
        return ()
    return (_event(channel, EventReason.LOG_INVALID, wrong),)


def _event(channel: ChannelView, reason: EventReason, message: str) -> Event:
    return Event("AdapterChannel", channel.meta.name, channel.meta.uid, reason, message, warning=True)
