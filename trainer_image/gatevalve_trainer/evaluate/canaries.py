"""Canaries: pairs of replies whose better one is known, which show in each test whether a judge can tell."""

from __future__ import annotations

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import FEWEST_CANARIES, Canary
from gatevalve.contracts.policy import GatePolicySpec, Judge
from gatevalve_trainer.evaluate.judge_identity import judges_in
from gatevalve_trainer.evaluate.suites import fixed_bytes
from gatevalve_trainer.store import Area


def load_canaries(policy: GatePolicySpec, data: Area) -> dict[str, tuple[Canary, ...]]:
    """The canaries of each suite's judge; raises ContractError when a file is another, a line is no canary, or they are too few."""
    return {suite: _canaries(f"suite {suite}.judge.canaries", judge, data) for suite, judge in judges_in(policy)}


def _canaries(field: str, judge: Judge, data: Area) -> tuple[Canary, ...]:
    lines = fixed_bytes(field, judge.canaries, data).splitlines()
    found = tuple(_canary(field, number, line) for number, line in enumerate(lines, start=1) if line.strip())
    if len({canary.id for canary in found}) < len(found):
        raise ContractError(field, "holds an id twice", "give every pair an id of its own")
    if len(found) < FEWEST_CANARIES:
        raise ContractError(field, f"holds {len(found)} pairs", f"give at least {FEWEST_CANARIES}")
    return found


def _canary(field: str, number: int, line: bytes) -> Canary:
    try:
        return Canary.parse_json(line)
    except ContractError as error:
        raise ContractError(f"{field} line {number}: {error.field}", error.problem, error.remedy) from error
