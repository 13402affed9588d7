"""Replay: stored evidence under another policy; what was not measured is not made up."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, PairRow, SuiteFact
from gatevalve.contracts.policy import SCREEN, GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Verdict
from gatevalve.decide.audit import GivenVerdict, given_verdicts
from gatevalve.decide.log import LogState
from gatevalve.decide.replay import Replayed, replayed
from gatevalve.decide.view import EvidenceView
from support.gate_cases import row_of
from support.world import ITEMS, World, policy, rows_of

SCREENED = 20
Given = tuple[GivenVerdict, EvidenceView]


def changed(old: GatePolicySpec, **changes: Any) -> GatePolicySpec:
    """A policy with fields of its suites, by name, or of itself changed; None removes."""
    wire = old.wire()
    for suite in wire["suites"]:
        suite |= changes.pop(suite["name"], {})
    return GatePolicySpec.parse({**wire, **changes})


OLD = changed(policy(), futility={"items": SCREENED, "alphaBasisPoints": 5000})


@cache
def whole(gain: float = 0.5) -> Given:
    """The verdict on the one candidate of a channel, and its evidence, whole."""
    world = World(policy=OLD, gain=gain)
    world.apply("one")
    world.run()
    (given,) = given_verdicts(LogState(tuple(world.log)))
    job = next(name for name, job in world.jobs.items() if job.view.step == "evaluate")
    report = world._report(world._job_input(job))
    screen = SuiteFact(name=SCREEN, path="items-screen.jsonl", items=SCREENED, sha256=sha256(b"screen"))
    view = EvidenceView(report.test_entry, report.digest_of(), report.model_copy(update={"suites": (*report.suites, screen)}))
    return given, replace(view, rows=(*rows_of(OLD, gain), *screen_rows(gain)))


def screen_rows(gain: float) -> list[PairRow]:
    rows = [row_of(SCREEN, item, ((SCORE_ONE, SCORE_ONE) if item < gain * SCREENED else (0, 0)), (0, 0)) for item in range(SCREENED)]
    return [two_arms(row) for row in rows]


def two_arms(row: PairRow) -> PairRow:
    """The screen asks no anchor."""
    given = {name: getattr(row, name) for name in ("scores", "tokens", "finishes", "texts", "failures")}
    return row.model_copy(update={name: {arm: told for arm, told in arms.items() if arm != "anchor"} for name, arms in given.items()})


def screened(gain: float) -> Given:
    """The same test ended by its screen."""
    given, view = whole(gain)
    assert view.report is not None
    facts = tuple(fact for fact in view.report.suites if fact.name == SCREEN)
    report = view.report.model_copy(update={"stage": "Screen", "suites": facts})
    return given, replace(view, report=report, rows=tuple(row for row in view.rows if row.suite == SCREEN))


def said(found: Replayed) -> tuple[Verdict, EntryReason]:
    assert found.untold is None
    assert found.judgement is not None
    return found.judgement.verdict, found.judgement.reason


PASSED = Verdict.ACCEPTED, EntryReason.GATE_PASSED
NOT_BETTER = Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED

JUDGED: dict[str, tuple[float, GatePolicySpec, tuple[Verdict, EntryReason]]] = {
    "the same policy says the same of a gain": (0.5, OLD, PASSED),
    "the same policy says the same of no gain": (0.0, OLD, NOT_BETTER),
    "a greater least effect refuses a gain": (0.5, changed(OLD, target={"minEffectBasisPoints": 9000}), NOT_BETTER),
    "a smaller alpha refuses a gain": (0.2, changed(OLD, round={"alphaBasisPoints": 1, "maxTests": 100}), NOT_BETTER),
    "a larger alpha accepts it": (0.2, changed(OLD, round={"alphaBasisPoints": 5000, "maxTests": 1}), PASSED),
    "a margin that so few items cannot show": (
        0.5,
        changed(OLD, regression={"marginBasisPoints": 100}),
        (Verdict.REJECTED, EntryReason.GUARD_REGRESSED),
    ),
    "without a screen its rows are left aside": (0.5, changed(OLD, futility={"items": 0, "alphaBasisPoints": 5000}), PASSED),
    "with fewer items those that are left count": (
        0.5,
        changed(OLD, target={"items": {"generator": "word-problems", "count": 40}}),
        PASSED,
    ),
    "a suite less asks less": (0.5, GatePolicySpec.parse({**OLD.wire(), "suites": OLD.wire()["suites"][:1]}), PASSED),
    "a path of the same bytes is the same file": (
        0.5,
        changed(OLD, regression={"items": {"uri": "suites/moved.jsonl", "digest": OLD.suites[1].items.digest}}),
        PASSED,
    ),
}


@pytest.mark.parametrize("sentence", JUDGED)
def test_evidence_is_judged_anew_where(sentence: str) -> None:
    gain, new, verdict = JUDGED[sentence]
    assert said(replayed(*whole(gain), new)) == verdict


def behaviour_suite() -> dict[str, Any]:
    items = {"uri": "suites/manners.jsonl", "digest": sha256(b"manners")}
    return {"name": "manners", "role": "Behaviour", "items": items, "sampling": {"temperature": "0", "maxTokens": 48}, "decodes": 1}


UNTOLD: dict[str, tuple[GatePolicySpec, str]] = {
    "a suite more": (GatePolicySpec.parse({**OLD.wire(), "suites": [*OLD.wire()["suites"], behaviour_suite()]}), "suite manners"),
    "another name": (changed(OLD, regression={"name": "other"}), "suite other"),
    "another role": (
        changed(OLD, regression={"role": "MustPass", "marginBasisPoints": None, "floorBasisPoints": None}),
        "suite regression role",
    ),
    "another generator": (changed(OLD, target={"items": {"generator": "x", "count": ITEMS}}), "suite target items.generator"),
    "another file": (
        changed(OLD, regression={"items": {"uri": "suites/x.jsonl", "digest": sha256(b"x")}}),
        "suite regression items.digest",
    ),
    "another verifier": (changed(OLD, target={"verifier": "x"}), "suite target verifier"),
    "another temperature": (
        changed(OLD, target={"sampling": {"temperature": "0.7", "maxTokens": 48}}),
        "suite target sampling.temperature",
    ),
    "longer replies": (changed(OLD, target={"sampling": {"temperature": "1.0", "maxTokens": 96}}), "suite target sampling.maxTokens"),
    "more decodes": (changed(OLD, target={"decodes": 4}), "suite target decodes"),
    "more items": (
        changed(OLD, target={"items": {"generator": "word-problems", "count": 61}}),
        "suite target items: 60 were measured, 61 are asked for",
    ),
    "traffic": (changed(OLD, target={"items": {"traffic": {"min": 40}}}), "suite target items.generator"),
    "a larger screen": (
        changed(OLD, futility={"items": 21, "alphaBasisPoints": 5000}),
        "futility.items: 20 were measured, 21 are asked for",
    ),
}


@pytest.mark.parametrize("sentence", UNTOLD)
def test_it_cannot_be_told_what_would_come_of(sentence: str) -> None:
    new, field = UNTOLD[sentence]
    found = replayed(*whole(), new)
    assert found.judgement is None
    assert (found.untold or "").startswith(field)


def test_a_screen_that_was_not_measured_cannot_be_told() -> None:
    given, view = whole()
    assert view.report is not None
    unscreened = changed(OLD, futility={"items": 0, "alphaBasisPoints": 5000})
    found = LogState(tuple(_under(unscreened).log))
    (given,) = given_verdicts(found)
    assert replayed(given, view, OLD).untold == "futility.items: no screen was measured"


def _under(rules: GatePolicySpec) -> World:
    world = World(policy=rules)
    world.apply("one")
    world.run()
    return world


def test_a_test_beyond_the_rounds_number_would_have_had_other_items() -> None:
    given, view = whole()
    assert given.test.gate is not None
    late = replace(given, test=given.test.model_copy(update={"gate": given.test.gate.model_copy(update={"test": 6})}))
    untold = replayed(late, view, changed(OLD, round={"alphaBasisPoints": 500, "maxTests": 5})).untold
    assert (untold or "").startswith("round.maxTests")


SCREENS: dict[str, tuple[float, GatePolicySpec, tuple[Verdict, EntryReason] | None]] = {
    "hopeless then and now": (0.0, OLD, NOT_BETTER),
    "other suites do not matter to it": (0.0, changed(OLD, regression={"marginBasisPoints": 1}), NOT_BETTER),
    "a screen that lets it pass": (0.0, changed(OLD, futility={"items": SCREENED, "alphaBasisPoints": 10_000}), None),
    "no screen": (0.0, changed(OLD, futility={"items": 0, "alphaBasisPoints": 5000}), None),
    "a screen of other answers": (0.0, changed(OLD, target={"decodes": 4}), None),
}


@pytest.mark.parametrize("sentence", SCREENS)
def test_of_a_test_that_its_screen_ended(sentence: str) -> None:
    gain, new, verdict = SCREENS[sentence]
    found = replayed(*screened(gain), new)
    assert (said(found) if found.judgement else None) == verdict


def test_a_screen_that_is_hopeless_under_the_new_policy_ends_a_test_that_was_measured_whole() -> None:
    given, view = whole()
    weak = replace(view, rows=(*(row for row in view.rows if row.suite != SCREEN), *screen_rows(0.1)))
    strict = changed(OLD, futility={"items": SCREENED, "alphaBasisPoints": 10})
    assert said(replayed(given, weak, OLD)) == PASSED
    assert said(replayed(given, weak, strict)) == NOT_BETTER


def test_evidence_that_is_gone_or_not_what_it_was_tells_nothing() -> None:
    given, view = whole()
    assert replayed(given, replace(view, report=None), OLD).untold == "evidence: it is gone"
    assert replayed(given, replace(view, report=None, problem="other bytes"), OLD).untold == "evidence: other bytes"


def test_rows_that_are_missing_are_not_made_up() -> None:
    given, view = whole()
    short = replace(view, rows=tuple(row for row in view.rows if row.item != "item-003"))
    found = said(replayed(given, short, OLD))
    assert found[0] is not Verdict.ACCEPTED


def test_which_items_count_does_not_hang_on_their_order() -> None:
    given, view = whole()
    fewer = changed(OLD, target={"items": {"generator": "word-problems", "count": 34}})
    assert replayed(given, view, fewer) == replayed(given, replace(view, rows=view.rows[::-1]), fewer)
