"""Pin: a person's way back leads to an entry that has served, and to no promotion that was given up before it did."""

from __future__ import annotations

from gatevalve.contracts.kinds import Pin
from gatevalve.contracts.reasons import Action, EntryReason
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.view import EntryView


def pin_target(log: LogState, pin: Pin) -> EntryView | None:
    """The entry that a pin restores; None when the log holds none of that name, or one that never served."""
    target = log.serving_entry(pin.entry)
    return target if target is not None and _given_up_in(log, target) is None else None


def pin_problem(log: LogState, pin: Pin) -> str | None:
    """Why a pin cannot be carried out, in a sentence."""
    target = log.serving_entry(pin.entry)
    if target is None:
        return f"spec.pin.entry {pin.entry} is no serving entry of this channel (Open, Promote or Rollback)"
    if (given_up := _given_up_in(log, target)) is not None:
        return f"spec.pin.entry {pin.entry} has never served: {name_of(given_up.spec)} gave its rollout up; pin an entry that served"
    return None


def _given_up_in(log: LogState, target: EntryView) -> EntryView | None:
    """The Rollback by which a promotion that did not settle gave way to something else; the log alone says so."""
    following = next((entry for entry in log.serving if entry.spec.sequence > target.spec.sequence), None)
    if following is None or target.spec.action is not Action.PROMOTE or following.spec.reason is not EntryReason.ROLLOUT_FAILED:
        return None
    return following if following.spec.restores != name_of(target.spec) else None
