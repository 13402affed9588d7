"""`gate replay`: every test of a channel judged anew from its stored evidence under another policy, and what would have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from gatevalve.cli.sealed import sealed_evidence
from gatevalve.cli.verify import Question, sound_log
from gatevalve.contracts.errors import ContractError, StoreError
from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action
from gatevalve.decide.audit import GivenVerdict, given_verdicts
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.replay import Replayed, replayed
from gatevalve.engine.audit import recorded
from gatevalve.gate.compare import Difference, Relation, compare, differences
from gatevalve.gate.results import CheckResult
from gatevalve.io.ports import EvidenceStore

CANNOT_BE_TOLD = "cannot be told"


@dataclass(frozen=True, slots=True)
class Line:
    """One test: what was said of it, and what would be said. `untold` names the field for which the evidence cannot tell.

    `missing`: the evidence that its verdict rests on is not at hand as it was.
    """

    entry: str
    candidate: str
    verdict_then: str
    reason_then: str
    verdict_now: str | None
    reason_now: str | None
    untold: str | None
    changed: bool | None
    missing: bool = False
    results: tuple[CheckResult, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As JSON: without the checks' results, which belong to the evidence area."""
        return {name: value for name, value in asdict(self).items() if name != "results"}


@dataclass(frozen=True, slots=True)
class Replay:
    """Every test of a channel under a policy, and what the policy is to the one in force; neither where no other policy was given."""

    channel: str
    lines: tuple[Line, ...]
    policy_digest: str | None = None
    relation: Relation | None = None
    differences: tuple[Difference, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As JSON."""
        told = [{"field": found.field, "relation": str(found.relation)} for found in self.differences]
        relation = str(self.relation) if self.relation else None
        policy = {"policyDigest": self.policy_digest, "relation": relation, "differences": told}
        return {"channel": self.channel, **policy, "tests": [line.wire() for line in self.lines]}


async def replay(question: Question, policy: GatePolicySpec | None) -> Replay:
    """Judge every test anew, under `policy` or without one under its own. Raises ContractError, StoreError."""
    store = sealed_evidence(question.sealed_dir)
    log = await asyncio.to_thread(sound_log, question)
    given = {name_of(found.test): found for found in given_verdicts(log)}
    tests = [entry for entry in log.specs if entry.action is Action.TEST]
    lines = tuple([await _line(log, test, given.get(name_of(test)), store, policy) for test in tests])
    if policy is None or log.policy is None:
        return Replay(question.channel, lines)
    return Replay(question.channel, lines, policy.digest_of(), compare(log.policy, policy), differences(log.policy, policy))


async def _line(
    log: LogState, test: AdapterReleaseSpec, given: GivenVerdict | None, store: EvidenceStore, policy: GatePolicySpec | None
) -> Line:
    verdict = log.of_candidate(test.candidate.uid, Action.ACCEPT, Action.REJECT) if test.candidate else None
    then = (str(verdict.verdict), str(verdict.reason)) if verdict else ("", "no verdict yet")
    now = await _now(log, given, store, policy)
    if now.judgement is None:
        return Line(name_of(test), _candidate(test), *then, None, None, now.untold, None, now.missing)
    said = (str(now.judgement.verdict), str(now.judgement.reason))
    return Line(name_of(test), _candidate(test), *then, *said, None, said != then, results=now.judgement.results)


def _candidate(test: AdapterReleaseSpec) -> str:
    return test.candidate.name if test.candidate else ""


async def _now(log: LogState, given: GivenVerdict | None, store: EvidenceStore, policy: GatePolicySpec | None) -> Replayed:
    if given is None:
        return Replayed(None, "evidence: no verdict rests on any")
    try:
        evidence = await recorded(given, log, store)
    except StoreError as error:
        return Replayed(None, f"evidence: it cannot be read: {error}", missing=True)
    own = given.before.policy_named(given.test.gate.policy_digest) if given.test.gate else None
    asked = policy or own
    return await asyncio.to_thread(replayed, given, evidence, asked) if asked else Replayed(None, "policy: the test's is not in the log")


def table(found: Replay) -> Table:
    """Tests, verdicts then and now."""
    shown = Table(title=f"tests of channel {found.channel}", box=None, title_justify="left")
    for column in ("test", "candidate", "then", "now", "changed"):
        shown.add_column(column, no_wrap=column == "test")
    for line in found.lines:
        now = f"{CANNOT_BE_TOLD}: {line.untold}" if line.untold else f"{line.verdict_now} {line.reason_now}"
        changed = "" if line.changed is None else "yes" if line.changed else "no"
        shown.add_row(line.entry, line.candidate, f"{line.verdict_then} {line.reason_then}".strip(), now, changed)
    return shown


def told(found: Replay) -> Iterator[str]:
    """What the policy is to the one in force, and how many tests it would have changed."""
    if found.relation is not None:
        yield f"the policy with digest {found.policy_digest} is {found.relation} to the one in force"
    yield from (f"  {item.relation}: {item.field}" for item in found.differences)
    changed, untold = sum(line.changed is True for line in found.lines), sum(line.changed is None for line in found.lines)
    yield f"{len(found.lines)} tests: {changed} would have changed, of {untold} it cannot be told"


def why(found: Replay, entry: str) -> Iterator[str]:
    """Every check of one test: outcome, suite, statistic, bound, n and sentence. Raises ContractError when there is no such test."""
    line = next((line for line in found.lines if line.entry == entry), None)
    if line is None:
        raise ContractError("--why", f"{entry} is no Test entry of channel {found.channel}", "give one that `gate replay` lists")
    if line.untold:
        yield f"{CANNOT_BE_TOLD}: {line.untold}"
        return
    yield f"{entry} of {line.candidate}: {line.verdict_now} {line.reason_now}"
    for result in line.results:
        numbers = f" statistic {result.statistic} bound {result.bound}" if result.statistic is not None else ""
        suite = f" {result.suite}" if result.suite else ""
        yield f"{result.outcome} {result.check}{suite}: {result.finding} n {result.n}{numbers}"
        yield f"  {result.sentence}"


def why_wire(found: Replay, entry: str) -> dict[str, Any]:
    """One test as JSON, with its checks. Raises ContractError when there is no such test."""
    next(why(found, entry))
    line = next(line for line in found.lines if line.entry == entry)
    return {**line.wire(), "results": [asdict(result) for result in line.results]}
