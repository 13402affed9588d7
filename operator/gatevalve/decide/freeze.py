"""Freeze: the log itself stops a channel from releasing anything; one person's annotation that names the freezing entry lifts it."""

from __future__ import annotations

from gatevalve.contracts.names import ANNOTATION_UNFREEZE
from gatevalve.contracts.reasons import EntryReason, EventReason
from gatevalve.decide import entries
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.plan import AppendEntry, Event, Plan
from gatevalve.decide.view import ChannelView, View


def freeze(view: View, channel: ChannelView, log: LogState, reason: EntryReason, message: str) -> Plan:
    """Freeze the channel, at once: a full external log must not keep what cannot be relied on going."""
    entry = entries.freeze_entry(view, log, reason, message)
    event = _event(channel, EventReason.FROZEN, f"{name_of(entry)}: {reason}: {message}")
    return Plan((AppendEntry(entry, copy_first=False),), events=(event,), requeue_seconds=0)


def unfreeze(view: View, channel: ChannelView, log: LogState) -> Plan:
    """The Unfreeze entry that the annotation asks for, if any; one that names another entry than the freeze in force does nothing."""
    held = log.frozen_by
    if held is None or channel.meta.annotations.get(ANNOTATION_UNFREEZE) != name_of(held):
        return Plan()
    entry = entries.unfreeze_entry(view, log, held)
    event = _event(channel, EventReason.UNFROZEN, f"{name_of(entry)}: {entry.message}")
    return Plan((AppendEntry(entry),), events=(event,), requeue_seconds=0)


def frozen_text(log: LogState) -> str | None:
    """What froze the channel and what to do, in a sentence; None while nothing does."""
    held = log.frozen_by
    if held is None:
        return None
    name = name_of(held)
    remedy = f"mend its cause, then annotate the channel with {ANNOTATION_UNFREEZE}={name}"
    return f"{name} froze the channel, nothing is dequeued, put to a test or promoted; {remedy}; {held.reason}: {held.message}"


def _event(channel: ChannelView, reason: EventReason, message: str) -> Event:
    return Event("AdapterChannel", channel.meta.name, channel.meta.uid, reason, message, warning=True)
