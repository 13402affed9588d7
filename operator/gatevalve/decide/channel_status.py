"""A channel's status: what the log says, what the pods report, and conditions that tell what to do."""

from __future__ import annotations

from gatevalve.contracts.kinds import Condition, LiveStatus, RoundStatus
from gatevalve.contracts.names import entry_name
from gatevalve.contracts.reasons import ChannelCondition, ConditionReason
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.log import LogState, fold, name_of, served_digest
from gatevalve.decide.plan import ChannelStatusUpdate
from gatevalve.decide.rollout import Standing
from gatevalve.decide.view import ChannelView, EntryView, View
from gatevalve.gate.rounds import round_in_force

Problem = tuple[ConditionReason, str]
"""What stops a channel, and what to do about it."""

Row = tuple[ChannelCondition, bool, ConditionReason, str]

_LOG_PROBLEMS = (ConditionReason.LOG_INVALID, ConditionReason.UID_CHANGED)


def channel_status(
    view: View, channel: ChannelView, log: LogState | None, now: Standing | None, problem: Problem | None
) -> tuple[ChannelStatusUpdate, ...]:
    """The status, when it differs from the one written. `now` is absent while something stops the channel."""
    update: dict[str, object] = {"observed_generation": channel.meta.generation}
    if log is not None and log.live is not None:
        update |= _derived(view, log, log.live)
    if now is not None:
        update["pods"] = now.pods
    update["conditions"] = _conditions(view, channel, now, problem)
    status = channel.status.model_copy(update=update)
    return (ChannelStatusUpdate(channel.meta.name, channel.meta.uid, status),) if status != channel.status else ()


def _derived(view: View, log: LogState, live: EntryView) -> dict[str, object]:
    adapter = live.spec.serves.adapter if live.spec.serves else None
    fields: dict[str, object] = {
        "live": LiveStatus(entry=name_of(live.spec), adapter=adapter, digest=served_digest(live), since=live.status.live_since),
        "incumbent": log.incumbent_digest,
        "log_head": entry_name(view.name, log.next_sequence - 1),
    }
    if (policy := log.policy) is not None:
        number, tests = round_in_force(log.specs, policy, policy.digest_of(), log.incumbent_digest)
        fields["round"] = RoundStatus(number=number, tests=tests, max_tests=policy.round.max_tests)
    return fields


def _conditions(view: View, channel: ChannelView, now: Standing | None, problem: Problem | None) -> tuple[Condition, ...]:
    conditions = channel.status.conditions
    for row in (*_checked(problem), *_serving(view, channel, now, problem)):
        conditions = with_condition(conditions, *row, view.now, channel.meta.generation)
    return conditions


def _checked(problem: Problem | None) -> tuple[Row, Row]:
    gate = problem if problem is not None and problem[0] is ConditionReason.POLICY_MISSING else None
    log = problem if problem is not None and problem[0] in _LOG_PROBLEMS else None
    return (
        (ChannelCondition.GATE_READY, gate is None, *(gate or (ConditionReason.AS_EXPECTED, "the policy is in force"))),
        (ChannelCondition.LOG_VALID, log is None, *(log or (ConditionReason.AS_EXPECTED, "gapless, signed, equal to its copy"))),
    )


def _serving(view: View, channel: ChannelView, now: Standing | None, problem: Problem | None) -> tuple[Row, ...]:
    if now is None:
        return ((ChannelCondition.READY, False, *problem),) if problem else ()
    other = problem or _pin_problem(channel, view)
    ready = now.serving and now.reason is ConditionReason.AS_EXPECTED and other is None
    return (
        (ChannelCondition.SERVING, now.serving, now.reason, now.message),
        (ChannelCondition.READY, ready, *(other or (now.reason, now.message + _held(channel)))),
    )


def _held(channel: ChannelView) -> str:
    """What a person holds back, told where people look first."""
    spec = channel.spec
    pinned = f"; pinned to {spec.pin.entry} by {spec.pin.by}" if spec and spec.pin else ""
    return pinned + ("; paused" if spec and spec.paused else "")


def _pin_problem(channel: ChannelView, view: View) -> Problem | None:
    pin = channel.spec.pin if channel.spec else None
    if pin is None or fold(view.log).serving_entry(pin.entry) is not None:
        return None
    return ConditionReason.SPEC_INVALID, f"spec.pin.entry {pin.entry} is no serving entry of this channel (Open, Promote or Rollback)"
