"""One reconcile of a channel: the log first, then a way back, then the candidates in order, then the pods."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterChannelSpec, Condition, LiveStatus, RoundStatus
from gatevalve.contracts.names import ANNOTATION_ADOPT, entry_name
from gatevalve.contracts.reasons import Action, CandidateState, ChannelCondition, ConditionReason, EntryReason, EventReason, Verdict
from gatevalve.decide import entries
from gatevalve.decide.candidate import Case, advance, dequeue, has_verdict, is_in_flight, is_over, settle_verdict, unreadable, wait
from gatevalve.decide.conditions import condition_of, with_condition
from gatevalve.decide.log import LogState, fold, name_of, served_digest
from gatevalve.decide.plan import AppendEntry, ChannelStatusUpdate, CopyEntry, Event, Plan
from gatevalve.decide.rollout import Standing, decide_rollout, rollout_failed, standing
from gatevalve.decide.view import CandidateView, ChannelView, EntryView, View
from gatevalve.gate.rounds import round_in_force

Problem = tuple[ConditionReason, str]


def decide(view: View) -> Plan:
    """The plan of one reconcile."""
    channel = view.channel
    if channel is None:
        return _refuse_all(view, ConditionReason.CHANNEL_MISSING, f"AdapterChannel {view.name} does not exist in this namespace; create it")
    if channel.spec is None:
        problem = channel.problem or "the spec breaks its contract"
        status = _channel_status(view, channel, None, None, (ConditionReason.SPEC_INVALID, problem))
        return Plan(statuses=status) + _refuse_all(view, ConditionReason.CHANNEL_NOT_READY, problem)
    return _decide_valid(view, channel, channel.spec)


def _decide_valid(view: View, channel: ChannelView, spec: AdapterChannelSpec) -> Plan:
    log = fold(view.log)
    problem = _problem(view, channel, log)
    if problem is not None:
        status = _channel_status(view, channel, log, None, problem)
        return Plan(statuses=status, events=_log_event(view, channel)) + _refuse_all(view, *problem)
    if (opening := _opening(view, channel, spec, log)) is not None:
        return opening
    now = standing(view, spec, log)
    if (back := _way_back(view, channel, spec, log, now)) is not None:
        return back
    rollout = Plan() if view.pool.alias_owner else decide_rollout(view, spec, log, now)
    status = Plan(statuses=_channel_status(view, channel, log, now, None))
    return rollout + status + _exports(view) + _candidates(view, spec, log, now)


def _problem(view: View, channel: ChannelView, log: LogState) -> Problem | None:
    """What stops everything but serving."""
    if view.log.problem is not None:
        return ConditionReason.LOG_INVALID, view.log.problem
    adopted = channel.meta.annotations.get(ANNOTATION_ADOPT)
    if log.channel_uid not in (None, channel.meta.uid) and adopted != log.channel_uid:
        text = f"the log belongs to a deleted channel; annotate this one with {ANNOTATION_ADOPT}={log.channel_uid} to go on with it"
        return ConditionReason.UID_CHANGED, text
    if view.policy is None or view.policy.spec is None:
        text = (view.policy.problem if view.policy else None) or "create the GatePolicy that spec.gatePolicy names"
        return ConditionReason.POLICY_MISSING, text
    return None


def _opening(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState) -> Plan | None:
    """The entries that come before anything else: Open, and Policy when another digest is in force."""
    policy = view.policy.spec if view.policy else None
    if policy is None:
        return None
    if log.channel_uid != channel.meta.uid:
        return Plan((AppendEntry(entries.open_entry(view, channel, spec, log, policy)),), requeue_seconds=0)
    if policy.digest_of() != log.policy_digest:
        event = _event(channel, EventReason.POLICY_CHANGED, f"policy {spec.gate_policy} is in force with digest {policy.digest_of()}", True)
        return Plan((AppendEntry(entries.policy_entry(view, log, policy)),), events=(event,), requeue_seconds=0)
    return None


def _way_back(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan | None:
    """A person's pin, or a promotion that did not settle: a Rollback entry, at once."""
    if spec.pin is not None:
        target = log.serving_entry(spec.pin.entry)
        if target is None or log.restored(target.spec) == log.restored(now.live.spec):
            return None
        entry = entries.rollback_entry(view, log, target, EntryReason.PINNED, spec.pin.reason, spec.pin.by)
    elif rollout_failed(view, spec, now) and len(log.serving) > 1:
        message = f"{name_of(now.live.spec)} did not settle within {spec.serving.rollout_seconds} s: {now.message}"
        entry = entries.rollback_entry(view, log, log.serving[-2], EntryReason.ROLLOUT_FAILED, message, None)
    else:
        return None
    event = _event(channel, EventReason.ROLLED_BACK, f"{entry.reason}: {name_of(now.live.spec)} gives way to {entry.restores}", True)
    return Plan((AppendEntry(entry, copy_first=False),), events=(event,), requeue_seconds=0)


def _exports(view: View) -> Plan:
    copies = tuple(CopyEntry(entry.spec.sequence) for entry in view.log.entries if not entry.exported)
    return Plan(copies, requeue_seconds=0 if copies else None)


def _candidates(view: View, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan:
    if any(not entry.exported for entry in view.log.entries):
        return Plan()
    if (orphan := _orphaned_test(view, log)) is not None:
        return orphan
    plan = Plan()
    for case in _cases(view, spec, log):
        if has_verdict(log, case.candidate):
            step = settle_verdict(case, pinned=spec.pin is not None)
            plan += step
            if step.actions:
                return plan
    return plan + _unreadable(view) + _queue(view, spec, log, now)


def _queue(view: View, spec: AdapterChannelSpec, log: LogState, now: Standing) -> Plan:
    """Advance the one in flight; otherwise take the oldest that waits, when the channel is ready for it."""
    cases = [case for case in _cases(view, spec, log) if not has_verdict(log, case.candidate) and not is_over(log, case.candidate)]
    flying = [case for case in cases if is_in_flight(log, case.candidate)]
    waiting = [case for case in cases if not is_in_flight(log, case.candidate)]
    plan = advance(flying[0]) if flying else Plan()
    if not flying and waiting:
        reason = _not_ready(spec, log, now, view)
        plan = wait(waiting[0], *reason) if reason else dequeue(waiting[0])
        waiting = waiting[1:]
    for case in waiting:
        plan += wait(case, ConditionReason.BEHIND_ANOTHER, "behind an older candidate of the channel")
    return plan


def _not_ready(spec: AdapterChannelSpec, log: LogState, now: Standing, view: View) -> Problem | None:
    if spec.paused:
        return ConditionReason.CHANNEL_PAUSED, "spec.paused is set"
    if spec.pin is not None:
        return ConditionReason.CHANNEL_PINNED, "the channel is pinned"
    if now.blocked:
        return now.reason, now.message
    if not now.settled:
        return ConditionReason.SERVING_UNSETTLED, f"{name_of(now.live.spec)} is not settled: {now.message}"
    if any(_accepted_waits(log, candidate) for candidate in view.candidates):
        return ConditionReason.BEHIND_ANOTHER, "an accepted candidate waits for its approval"
    return None


def _accepted_waits(log: LogState, candidate: CandidateView) -> bool:
    accepted = log.of_candidate(candidate.meta.uid, Action.ACCEPT) is not None
    return accepted and not is_over(log, candidate) and candidate.status.state is CandidateState.ACCEPTED


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
    uid = log.channel_uid or ""
    ordered = sorted(view.candidates, key=lambda c: (c.meta.created_at or view.now, c.meta.name))
    return [Case(view, spec, uid, log, c, c.spec) for c in ordered if c.spec is not None and not c.meta.deleting]


def _unreadable(view: View) -> Plan:
    plan = Plan()
    for candidate in view.candidates:
        if candidate.spec is None and not candidate.meta.deleting:
            plan += unreadable(view, candidate, ConditionReason.SPEC_INVALID, candidate.problem or "the spec breaks its contract")
    return plan


def _refuse_all(view: View, reason: ConditionReason, message: str) -> Plan:
    plan = Plan()
    for candidate in view.candidates:
        if candidate.meta.deleting or is_over(fold(view.log), candidate):
            continue
        plan += unreadable(view, candidate, ConditionReason.CHANNEL_NOT_READY if reason is not ConditionReason.CHANNEL_MISSING else reason, message)
    return plan


# ---- status


def _channel_status(
    view: View, channel: ChannelView, log: LogState | None, now: Standing | None, problem: Problem | None
) -> tuple[ChannelStatusUpdate, ...]:
    old = channel.status
    update: dict[str, object] = {"observed_generation": channel.meta.generation}
    if log is not None and log.live is not None:
        update |= _derived(view, log, log.live)
    if now is not None:
        update["pods"] = now.pods
    status = old.model_copy(update=update)
    status = status.model_copy(update={"conditions": _channel_conditions(view, channel, now, problem)})
    return (ChannelStatusUpdate(channel.meta.name, channel.meta.uid, status),) if status != old else ()


def _derived(view: View, log: LogState, live: EntryView) -> dict[str, object]:
    serves = live.spec.serves
    fields: dict[str, object] = {
        "live": LiveStatus(
            entry=name_of(live.spec),
            adapter=serves.adapter if serves else None,
            digest=served_digest(live),
            since=live.status.live_since,
        ),
        "incumbent": log.incumbent_digest,
        "log_head": entry_name(view.name, log.next_sequence - 1),
    }
    policy = log.policy
    if policy is not None:
        number, tests = round_in_force(log.specs, policy, policy.digest_of(), log.incumbent_digest)
        fields["round"] = RoundStatus(number=number, tests=tests, max_tests=policy.round.max_tests)
    return fields


def _channel_conditions(
    view: View, channel: ChannelView, now: Standing | None, problem: Problem | None
) -> tuple[Condition, ...]:
    generation = channel.meta.generation
    conditions = channel.status.conditions
    ok = ConditionReason.AS_EXPECTED
    policy_bad = problem is not None and problem[0] is ConditionReason.POLICY_MISSING
    log_bad = problem is not None and problem[0] in (ConditionReason.LOG_INVALID, ConditionReason.UID_CHANGED)
    values: list[tuple[ChannelCondition, bool | None, ConditionReason, str]] = [
        (ChannelCondition.GATE_READY, not policy_bad, *(problem if policy_bad and problem else (ok, "the policy is in force"))),
        (ChannelCondition.LOG_VALID, not log_bad, *(problem if log_bad and problem else (ok, "gapless, signed, equal to its copy"))),
    ]
    if now is not None:
        values.append((ChannelCondition.SERVING, now.serving, now.reason, now.message))
        pin = _pin_problem(channel, view)
        ready = now.serving and now.reason is ok and pin is None
        values.append((ChannelCondition.READY, ready, *(pin or (now.reason, now.message))))
    elif problem is not None:
        values.append((ChannelCondition.READY, False, *problem))
    for kind, value, reason, message in values:
        conditions = with_condition(conditions, kind, value, reason, message, view.now, generation)
    return conditions


def _pin_problem(channel: ChannelView, view: View) -> Problem | None:
    pin = channel.spec.pin if channel.spec else None
    if pin is None or fold(view.log).serving_entry(pin.entry) is not None:
        return None
    return ConditionReason.SPEC_INVALID, f"spec.pin.entry {pin.entry} is no serving entry of this channel (Open, Promote or Rollback)"


def _log_event(view: View, channel: ChannelView) -> tuple[Event, ...]:
    old = condition_of(channel.status.conditions, ChannelCondition.LOG_VALID)
    if view.log.problem is None or (old is not None and old.status == "False"):
        return ()
    return (_event(channel, EventReason.LOG_INVALID, view.log.problem, True),)


def _event(channel: ChannelView, reason: EventReason, message: str, warning: bool = False) -> Event:
    return Event("AdapterChannel", channel.meta.name, channel.meta.uid, reason, message, warning)
