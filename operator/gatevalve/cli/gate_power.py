"""`gate power`: the effects that a policy's tests see, by planning variances or by those of stored evidence, and what more would buy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from gatevalve.cli.sealed import Named
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import PairRow
from gatevalve.contracts.policy import SCREEN, GatePolicySpec, Suite
from gatevalve.decide.underpowered import underpowered
from gatevalve.gate.noise import WORST_RATE, Noise, observed_noise, planned_noise, pooled
from gatevalve.gate.power import SuitePower, planned_items, power, powered

PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class PowerTable:
    """What each suite sees, the basis of its variance, what is not told and why, and what the operator says of the policy."""

    suites: tuple[SuitePower, ...]
    basis: Mapping[str, str]
    untold: Mapping[str, str]
    condition: str

    def wire(self) -> dict[str, Any]:
        """As JSON: effects are shares of 1."""
        suites = [{**asdict(found), "basis": self.basis[found.suite]} for found in self.suites]
        return {"suites": suites, "untold": dict(self.untold), "condition": self.condition}


def power_table(policy: GatePolicySpec, rate: float | None, items: Mapping[str, int], evidence: Sequence[Named]) -> PowerTable:
    """The table of a policy: suites with evidence by what it shows, the others as planned. Raises ContractError for unknown suites."""
    suites = {suite.name: suite for suite in powered(policy)}
    _known("--items", items, suites)
    seen = {name: found for name, suite in suites.items() if (found := list(_observed(suite, evidence)))}
    noises = {name: pooled([noise for _, noise in found]) for name, found in seen.items()}
    basis = {name: "observed in " + ", ".join(test for test, _ in found) for name, found in seen.items()}
    plans = {name: planned_noise(suite, WORST_RATE if rate is None else rate) for name, suite in suites.items()}
    sizes = {**_measured_items(policy, evidence), **planned_items(policy), **items}
    condition, _, text = underpowered(policy)
    return PowerTable(
        suites=power(policy, {**plans, **noises}, sizes),
        basis={name: basis.get(name, PLANNED) for name in suites},
        untold={name: f"the policy does not count its items: give --items {name}=NUMBER" for name in suites if name not in sizes},
        condition=f"Underpowered {'Unknown' if condition is None else condition}: {text}",
    )


def _known(option: str, named: Iterable[str], suites: Mapping[str, Suite]) -> None:
    unknown = sorted(set(named) - set(suites))
    if unknown:
        raise ContractError(option, f"the policy has no Primary or Guard suite {unknown[0]}", f"name one of {', '.join(suites)}")


def _observed(suite: Suite, evidence: Sequence[Named]) -> Iterator[tuple[str, Noise]]:
    """What each test shows of a suite; Primary and screen ask alike, so that either tells of both."""
    for found in evidence:
        rows = _rows(found, suite.name) or _rows(found, _other_name(suite, found))
        if rows:
            yield found.name, observed_noise(rows, _decodes(found.name, suite, rows))


def _other_name(suite: Suite, found: Named) -> str:
    facts = found.view.report.suites if found.view.report else ()
    primary = suite.role == "Primary"
    named = {row.suite for row in found.view.rows}
    other = next((fact.name for fact in facts if fact.name not in (SCREEN, suite.name)), "") if suite.name == SCREEN else SCREEN
    return other if primary and other in named else ""


def _rows(found: Named, name: str) -> list[PairRow]:
    return [row for row in found.view.rows if row.suite == name]


def _decodes(test: str, suite: Suite, rows: Sequence[PairRow]) -> int:
    """Answers to an item; with one answer nothing tells what several would show."""
    decodes = len(rows[0].scores["candidate"])
    if decodes == 1 and suite.decodes > 1:
        problem = f"{test} holds one answer to each item of suite {suite.name}, for which the policy asks {suite.decodes}"
        raise ContractError("--from-evidence", problem, "give evidence of several decodes, or leave it out")
    return decodes


def _measured_items(policy: GatePolicySpec, evidence: Sequence[Named]) -> dict[str, int]:
    """The sizes of fixed files, as far as evidence of just those files tells them."""
    facts = {(fact.name, fact.sha256): fact.items for found in evidence if found.view.report for fact in found.view.report.suites}
    sizes = {suite.name: facts.get((suite.name, suite.items.digest or "")) for suite in powered(policy)}
    return {name: size for name, size in sizes.items() if size is not None}


def table(found: PowerTable) -> Table:
    """A line for each suite."""
    shown = Table(title="what a test sees in 8 of 10 cases", box=None, title_justify="left")
    for column in ("suite", "items", "decodes", "error rate", "sees", "of equals pass", *_choices(found.suites), "variance"):
        shown.add_column(column)
    for suite in found.suites:
        choices = {choice.what: _points(suite, choice.effect) for choice in suite.choices}
        equal = "" if suite.equal is None else f"{suite.equal:.1%}"
        numbers = (str(suite.size.items), str(suite.size.decodes), f"{suite.alpha:.4f}", _points(suite, suite.effect), equal)
        more = (choices.get(what, "") for what in _choices(found.suites))
        shown.add_row(suite.suite, *numbers, *more, found.basis[suite.suite])
    return shown


def _choices(suites: Sequence[SuitePower]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(choice.what for suite in suites for choice in suite.choices))


def _points(suite: SuitePower, effect: float | None) -> str:
    if effect is None:
        return "none"
    return f"a loss up to {100 * effect:.1f}" if suite.equal is not None else f"a gain of {100 * effect:.1f}"


def told(found: PowerTable) -> Iterator[str]:
    """What the table does not tell, and the condition that the operator sets."""
    yield "gains and losses in percentage points"
    yield from (f"{name}: {text}" for name, text in found.untold.items())
    yield f"the operator, which plans with a rate of {WORST_RATE} and the policy's own items, sets {found.condition}"
