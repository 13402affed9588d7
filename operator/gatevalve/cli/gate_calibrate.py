"""`gate calibrate`: how far the incumbent strays from itself in stored evidence, beside each limit of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from gatevalve.cli.sealed import Named
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.gate.calibrate import Calibration, calibrate
from gatevalve.gate.inputs import Evidence


@dataclass(frozen=True, slots=True)
class CalibrationTable:
    """The limits of a policy beside one test's noise; `same` tells that it measured the incumbent against itself."""

    test: str
    same: bool
    limits: tuple[Calibration, ...]

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        return {"test": self.test, "same": self.same, "limits": [{**asdict(limit), "tight": limit.tight} for limit in self.limits]}


def calibration_table(policy: GatePolicySpec, named: Named, same: bool | None = None) -> CalibrationTable:
    """What one test's evidence says of a policy's limits. `same`: the log says so; without it the report's digests tell.

    Raises ContractError when the evidence holds no row of the policy's suites.
    """
    report, digest = named.view.report, named.view.digest
    if report is None or digest is None:
        raise ContractError("evidence", f"{named.name} holds none: {named.view.problem or 'it is gone'}", "give other evidence")
    limits = calibrate(policy, Evidence.of(report, named.view.rows), digest)
    if not limits:
        raise ContractError("evidence", f"{named.name} holds no answers to the policy's suites", "give evidence of a whole test")
    return CalibrationTable(named.name, report.candidate_digest == report.incumbent_digest if same is None else same, limits)


def table(found: CalibrationTable) -> Table:
    """A line for each limit and suite."""
    shown = Table(title=f"the incumbent's own noise in {found.test}", box=None, title_justify="left")
    for column in ("limit", "suite", "measured", "1 %", "99 %", "allowed", ""):
        shown.add_column(column)
    for limit in found.limits:
        numbers = (_number(limit.measured), _number(limit.low), _number(limit.high))
        shown.add_row(limit.field, limit.suite, *numbers, _allowed(limit), "tighter than the noise" if limit.tight else "")
    return shown


def told(found: CalibrationTable) -> Iterator[str]:
    """What kind of evidence it is, and which limits the incumbent itself would break."""
    if not found.same:
        yield f"note: {found.test} did not measure the incumbent against itself; what a candidate changed is counted as noise here"
    tight = [f"{limit.field} ({limit.suite})" for limit in found.limits if limit.tight]
    yield f"tighter than the noise: {', '.join(tight)}" if tight else "no limit is tighter than the noise"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _allowed(limit: Calibration) -> str:
    if limit.least is not None and limit.most is not None:
        return f"{limit.least} to {limit.most}"
    return f"at least {limit.least}" if limit.least is not None else "any" if limit.most is None else f"at most {limit.most}"
