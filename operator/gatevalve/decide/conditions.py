"""Conditions: set one without losing the time of its last transition."""

from __future__ import annotations

from datetime import UTC, datetime

from gatevalve.contracts.kinds import Condition
from gatevalve.contracts.reasons import CandidateCondition, ChannelCondition, ConditionReason, EntryReason

MESSAGE_LIMIT = 1024


def timestamp(now: datetime) -> str:
    """A UTC instant as the API writes it, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant(text: str) -> datetime:
    """The instant that `timestamp` or a finer RFC 3339 text names."""
    return datetime.fromisoformat(text)


def with_condition(
    conditions: tuple[Condition, ...],
    kind: CandidateCondition | ChannelCondition,
    value: bool | None,
    reason: ConditionReason | EntryReason,
    message: str,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """The conditions with one replaced or added; its transition time moves only when its status changes. `value` None is Unknown."""
    status = "Unknown" if value is None else str(value)
    old = next((condition for condition in conditions if condition.type == kind), None)
    since = old.last_transition_time if old and old.status == status else timestamp(now)
    new = Condition(
        type=str(kind),
        status=status,  # type: ignore[arg-type]
        reason=str(reason),
        message=message[:MESSAGE_LIMIT],
        last_transition_time=since,
        observed_generation=generation,
    )
    if old is None:
        return (*conditions, new)
    return tuple(new if condition.type == kind else condition for condition in conditions)


def condition_of(conditions: tuple[Condition, ...], kind: CandidateCondition | ChannelCondition) -> Condition | None:
    """A condition by type."""
    return next((condition for condition in conditions if condition.type == kind), None)
