"""A channel's status: what the log says, what the pods report, and conditions that tell what to do."""

from __future__ import annotations

from gatevalve.contracts.kinds import Condition, LiveStatus, RoundStatus
from gatevalve.contracts.names import entry_name
from gatevalve.contracts.reasons import ChannelCondition, ConditionReason, EntryReason
from gatevalve.decide.anchor import anchor_problem
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.freeze import frozen_text
from gatevalve.decide.log import LogState, fold, name_of, served_digest
from gatevalve.decide.pin import pin_problem
from gatevalve.decide.plan import ChannelStatusUpdate
from gatevalve.decide.rollout import Standing
from gatevalve.decide.sentinel_schedule import sentinels_told
from gatevalve.decide.supply import shortage_of
from gatevalve.decide.tampering import Notice
from gatevalve.decide.underpowered import underpowered
from gatevalve.decide.view import ChannelView, EntryView, View

Problem = tuple[ConditionReason, str]
"""What stops a channel, and what to do about it."""

Row = tuple[ChannelCondition, bool | None, ConditionReason | EntryReason, str]

_GATE_PROBLEMS = (ConditionReason.POLICY_MISSING, ConditionReason.POLICY_UNAPPROVED)
_LOG_PROBLEMS = (ConditionReason.LOG_INVALID, ConditionReason.UID_CHANGED)


def channel_status(
    view: View, channel: ChannelView, log: LogState | None, now: Standing | None, problem: Problem | None, seen: Notice
) -> tuple[ChannelStatusUpdate, ...]:
    """The status, when it differs from the one written. `now` is absent while something stops the channel."""
    update: dict[str, object] = {"observed_generation": channel.meta.generation, "tampering": seen.tampering}
    if log is not None and log.live is not None:
        update |= _derived(view, log, log.live)
    if now is not None:
        update["pods"] = now.pods
    update["conditions"] = _conditions(view, channel, now, problem, seen)
    status = channel.status.model_copy(update=update)
    return (ChannelStatusUpdate(channel.meta.name, channel.meta.uid, status),) if status != channel.status else ()


def _derived(view: View, log: LogState, live: EntryView) -> dict[str, object]:
    adapter = live.spec.serves.adapter if live.spec.serves else None
    fields: dict[str, object] = {
        "live": LiveStatus(entry=name_of(live.spec), adapter=adapter, digest=served_digest(live), since=live.status.live_since),
        "incumbent": log.incumbent_digest,
        "anchor": log.anchor if log.anchor.entry is not None else None,
        "log_head": entry_name(view.name, log.next_sequence - 1),
    }
    if (policy := log.policy) is not None:
        number, tests, max_tests = log.round_in_force(policy, log.policy_digest or "", log.incumbent_digest)
        fields["round"] = RoundStatus(number=number, tests=tests, max_tests=max_tests)
    return fields


def _conditions(view: View, channel: ChannelView, now: Standing | None, problem: Problem | None, seen: Notice) -> tuple[Condition, ...]:
    conditions = channel.status.conditions
    untampered: Row = (ChannelCondition.UNTAMPERED, *seen.untampered(view.now))
    for row in (
        *_checked(view, channel, problem),
        _frozen(view),
        _sentinels(view),
        _round_waiting(view),
        *_power(view),
        *_serving(view, channel, now, problem),
        untampered,
    ):
        conditions = with_condition(conditions, *row, view.now, channel.meta.generation)
    return conditions


def audit_finding(view: View) -> Problem | None:
    """What holds tests, verdicts and promotions although the chain is sound; a person may go back, and what served is rolled out."""
    if view.log.finding is None:
        return None
    text = f"{view.log.finding}; tests, verdicts and promotions wait, a pin or rollback does not; see docs/operations.md"
    return ConditionReason.LOG_INVALID, text


def _checked(view: View, channel: ChannelView, problem: Problem | None) -> tuple[Row, Row]:
    gate = problem if problem is not None and problem[0] in _GATE_PROBLEMS else None
    log = problem if problem is not None and problem[0] in _LOG_PROBLEMS else audit_finding(view)
    unknown = _external_problem(view) if log is None else None
    return (
        (ChannelCondition.GATE_READY, gate is None, *(gate or (ConditionReason.AS_EXPECTED, _in_force(view, channel)))),
        (
            ChannelCondition.LOG_VALID,
            None if unknown else log is None,
            *(log or unknown or (ConditionReason.AS_EXPECTED, "gapless, signed, equal to its copy")),
        ),
    )


def _sentinels(view: View) -> Row:
    """How the gate stands its own probes."""
    return ChannelCondition.SENTINELS_PASSED, *sentinels_told(fold(view.log))


def _round_waiting(view: View) -> Row:
    if (text := shortage_of(view, fold(view.log))) is not None:
        return ChannelCondition.ROUND_WAITING, True, ConditionReason.ITEM_SUPPLY, text
    return ChannelCondition.ROUND_WAITING, False, ConditionReason.AS_EXPECTED, "no candidate waits for items"


def _serving(view: View, channel: ChannelView, now: Standing | None, problem: Problem | None) -> tuple[Row, ...]:
    if now is None:
        return ((ChannelCondition.READY, False, *problem),) if problem else ()
    other = audit_finding(view) or problem or _freeze_problem(view) or _person_problem(channel, view) or _external_problem(view)
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


def _freeze_problem(view: View) -> Problem | None:
    text = frozen_text(fold(view.log))
    return (ConditionReason.FROZEN, text) if text is not None else None


def _frozen(view: View) -> Row:
    """Of a broken log it is not known what its end says."""
    if view.log.problem is not None:
        return ChannelCondition.FROZEN, None, ConditionReason.LOG_INVALID, "the log is broken: nothing is promoted, its end is not known"
    log = fold(view.log)
    if (held := log.frozen_by) is None:
        return ChannelCondition.FROZEN, False, ConditionReason.AS_EXPECTED, "no entry freezes the channel"
    return ChannelCondition.FROZEN, True, held.reason, frozen_text(log) or ""


def _power(view: View) -> tuple[Row, ...]:
    policy = fold(view.log).policy
    return ((ChannelCondition.UNDERPOWERED, *underpowered(policy)),) if policy is not None else ()


def _external_problem(view: View) -> Problem | None:
    """Nothing follows an entry before its copy: a full, read-only or silent external log holds promotions back, but no rollback."""
    if view.log.external_error is None:
        return None
    text = f"{view.log.external_error}; promotions wait, a rollback does not; make room on the log's volume or repair it"
    return ConditionReason.EXTERNAL_LOG_UNAVAILABLE, text


def _person_problem(channel: ChannelView, view: View) -> Problem | None:
    """What a person asks for and the log does not allow."""
    pin, anchor = (channel.spec.pin, channel.spec.anchor) if channel.spec else (None, None)
    log = fold(view.log)
    text = (pin_problem(log, pin) if pin is not None else None) or (anchor_problem(log, anchor) if anchor is not None else None)
    return (ConditionReason.SPEC_INVALID, text) if text is not None else None


def _in_force(view: View, channel: ChannelView) -> str:
    """Which policy judges, and since when: one that is stricter takes over without asking, and a person shall see that it did."""
    log = fold(view.log)
    since = log.policy_entry
    if since is None or channel.spec is None:
        return "the policy is in force"
    policy = f"GatePolicy {channel.spec.gate_policy} with digest {log.policy_digest}"
    return f"{policy} is in force since {since.decided_at} ({name_of(since)})"
