"""Anchor: the gate's fixed reference is the base until a person moves it to what an earlier entry serves; the log tells where and why."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterChannelSpec, Anchor, AnchorInForce
from gatevalve.contracts.reasons import EntryReason, EventReason
from gatevalve.decide import entries
from gatevalve.decide.log import LogState, name_of, served_digest
from gatevalve.decide.plan import AppendEntry, Event, Plan
from gatevalve.decide.view import ChannelView, View

RESET = "spec.anchor was removed: the base is the anchor again"


def anchor_change(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState) -> Plan:
    """The Anchor entry that the channel asks for, if any; an anchor that cannot be taken leaves the one in force."""
    if spec.anchor is None:
        return _reset(view, channel, log) if log.anchor.entry is not None else Plan()
    target = log.serving_entry(spec.anchor.entry)
    if target is None or log.anchor.entry == spec.anchor.entry or anchor_problem(log, spec.anchor) is not None:
        return Plan()
    anchor = AnchorInForce(entry=name_of(target.spec), digest=served_digest(target))
    entry = entries.anchor_entry(view, log, anchor, EntryReason.ANCHOR_MOVED, spec.anchor.reason, spec.anchor.by)
    return _written(channel, AppendEntry(entry), f"{anchor.entry} ({anchor.digest or 'the base'}) is the anchor: {spec.anchor.reason}")


def anchor_problem(log: LogState, anchor: Anchor) -> str | None:
    """Why a named anchor is none to measure against, in a sentence."""
    target = log.serving_entry(anchor.entry)
    if target is None:
        return f"spec.anchor.entry {anchor.entry} is no serving entry of this channel (Open, Promote or Rollback)"
    digest = served_digest(target)
    if digest is not None and log.is_quarantined(digest):
        return f"spec.anchor.entry {anchor.entry} serves adapter {digest}, which was rejected or taken back; name another entry"
    return None


def _reset(view: View, channel: ChannelView, log: LogState) -> Plan:
    entry = entries.anchor_entry(view, log, AnchorInForce(), EntryReason.ANCHOR_RESET, RESET, None)
    return _written(channel, AppendEntry(entry), RESET)


def _written(channel: ChannelView, append: AppendEntry, message: str) -> Plan:
    """What was lost against the anchor before is forgiven: whoever did not mean that must see it."""
    event = Event("AdapterChannel", channel.meta.name, channel.meta.uid, EventReason.ANCHOR_MOVED, message, warning=True)
    return Plan((append,), events=(event,), requeue_seconds=0)
