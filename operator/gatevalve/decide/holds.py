"""What keeps a channel from opening tests, whichever candidate is next: it cannot rely on its gate."""

from __future__ import annotations

from gatevalve.contracts.reasons import ConditionReason
from gatevalve.decide.freeze import frozen_text
from gatevalve.decide.log import LogState
from gatevalve.decide.sentinel_schedule import unprobed


def no_test_because(log: LogState) -> tuple[ConditionReason, str] | None:
    """Reason and sentence; None when tests may be opened."""
    if (frozen := frozen_text(log)) is not None:
        return ConditionReason.FROZEN, frozen
    if (waiting := unprobed(log)) is not None:
        return ConditionReason.GATE_UNPROBED, waiting
    return None
