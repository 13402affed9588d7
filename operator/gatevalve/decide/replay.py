"""Replay: what a test's stored evidence would have come to under another policy, on the log as it was; told only where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import EvidenceReport, PairRow, SuiteFact
from gatevalve.contracts.policy import SCREEN, GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding
from gatevalve.decide.audit import GivenVerdict
from gatevalve.decide.judgement import ledger_of
from gatevalve.decide.view import EvidenceView
from gatevalve.gate.inputs import Evidence, expected_items, measured_suites
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Judgement

ASKED: tuple[tuple[str, Callable[[Suite], Any]], ...] = (
    ("role", lambda suite: suite.role),
    ("items.generator", lambda suite: suite.items.generator),
    ("items.traffic", lambda suite: suite.items.traffic is not None),
    ("items.digest", lambda suite: suite.items.digest),
    ("verifier", lambda suite: suite.verifier),
    ("judge", lambda suite: suite.judge),
    ("sampling.temperature", lambda suite: suite.sampling.temperature),
    ("sampling.maxTokens", lambda suite: suite.sampling.max_tokens),
    ("decodes", lambda suite: suite.decodes),
)
"""What decides which answers a suite asks for, beside the number of items: evidence of anything else is evidence of another suite."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a test comes to under another policy: a judgement, or the field for which the evidence cannot tell."""

    judgement: Judgement | None
    untold: str | None = None
    missing: bool = False
    """A verdict rests on evidence that is not at hand as it was."""


def replayed(given: GivenVerdict, evidence: EvidenceView, policy: GatePolicySpec) -> Replayed:
    """Judge a test's evidence anew under a policy. Rows that the policy does not ask for are left out; nothing is made up for missing ones.

    Of more items than the policy asks, those with the smallest digests of their ids count: a choice that no score can sway.
    """
    report, gate = evidence.report, given.test.gate
    old = given.before.policy_named(gate.policy_digest) if gate else None
    if report is None or gate is None or old is None:
        return Replayed(None, f"evidence: {evidence.problem or 'it is gone'}", missing=True)
    if gate.test > policy.round.max_tests:
        return Replayed(None, "round.maxTests: the test would have belonged to a later round, with other items")
    if (field := next(_lacking(old, policy, report), None)) is not None:
        return Replayed(None, field)
    judgement = _judged(given, evidence, _cut(policy, evidence), policy)
    if any(result.finding is Finding.SCREEN_ONLY for result in judgement.results):
        return Replayed(None, "futility: the screen would not have ended the test, and nothing else was measured")
    return Replayed(judgement)


def _judged(given: GivenVerdict, evidence: EvidenceView, cut: Evidence, policy: GatePolicySpec) -> Judgement:
    ledger = ledger_of(given.before, given.test, given.before.base_digest, evidence)
    facts = cut.report.suites if cut.report else ()
    return judge(policy, cut, replace(ledger, policy_digest=policy.digest_of(), expected_items=expected_items(policy, facts)))


def _lacking(old: GatePolicySpec, new: GatePolicySpec, report: EvidenceReport) -> Iterator[str]:
    """Every field of the new policy that asks for what was not measured under the old one."""
    if report.stage == "Screen" and new.screen is None:
        yield "futility.items: the screen ended the test, and nothing else was measured"
    measured = {suite.name: suite for suite in measured_suites(old, report.stage)}
    for suite in measured_suites(new, report.stage):
        if suite.name in measured:
            yield from _differs(measured[suite.name], suite)
        else:
            yield "futility.items: no screen was measured" if suite.name == SCREEN else f"suite {suite.name}: it was not measured"


def _differs(measured: Suite, asked: Suite) -> Iterator[str]:
    for field, value in ASKED:
        if value(measured) != value(asked):
            yield f"suite {asked.name} {field}"
    if (asked.items.fresh or 0) > (measured.items.fresh or 0):
        field = "futility.items" if asked.name == SCREEN else f"suite {asked.name} items"
        yield f"{field}: {measured.items.fresh} were measured, {asked.items.fresh} are asked for"


def _cut(policy: GatePolicySpec, evidence: EvidenceView) -> Evidence:
    """The evidence as a test under the policy would have left it."""
    report = evidence.report
    if report is None:
        return Evidence.of(None, ())
    suites = {suite.name: suite for suite in measured_suites(policy, report.stage)}
    rows = tuple(row for name, suite in suites.items() for row in _first([row for row in evidence.rows if row.suite == name], suite))
    facts = tuple(_fewer(fact, suites[fact.name]) for fact in report.suites if fact.name in suites)
    judges = tuple(fact for fact in report.judges if fact.suite in suites)
    told = report.model_copy(update={"policy_digest": policy.digest_of(), "suites": facts, "judges": judges})
    return Evidence.of(told, rows)


def _first(rows: list[PairRow], suite: Suite) -> list[PairRow]:
    fresh = suite.items.fresh
    return rows if fresh is None or len(rows) <= fresh else sorted(rows, key=lambda row: sha256(row.item.encode()))[:fresh]


def _fewer(fact: SuiteFact, suite: Suite) -> SuiteFact:
    fresh = suite.items.fresh
    return fact if fresh is None else fact.model_copy(update={"items": min(fact.items, fresh)})
