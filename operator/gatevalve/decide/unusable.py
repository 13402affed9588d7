"""What makes a candidate of no use before any Job is started: parameters of another recipe, a window that lies in the future."""

from __future__ import annotations

from datetime import timedelta

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.kinds import Train
from gatevalve.contracts.recipes import check_parameters
from gatevalve.decide.case import Case
from gatevalve.decide.conditions import timestamp

CLOCK_SLACK = timedelta(minutes=5)
"""A window may end so long after the candidate's creation: whoever wrote it may have a fast clock, and the snapshot Job waits."""


def unusable(case: Case) -> str | None:
    """Why no Job can make anything of a candidate, with the remedy; None when one may try."""
    train = case.spec.train
    return (_foreign_parameters(case, train) or _future_window(case)) if train is not None else None


def _foreign_parameters(case: Case, train: Train) -> str | None:
    """The API server knows the recipe only where the candidate names it."""
    try:
        check_parameters(case.recipe, train.parameters)
    except ContractError as error:
        return f"spec.train.{error}, or name another recipe in spec.train.recipe"
    return None


def _future_window(case: Case) -> str | None:
    window, created = case.window, case.candidate.meta.created_at or case.view.now
    if window is None or window[1] <= created + CLOCK_SLACK:
        return None
    end = timestamp(window[1])
    return (
        f"spec.train.snapshot.to {end} lies in the future of {timestamp(created)}; apply a candidate whose window is over, or use last: 24h"
    )
