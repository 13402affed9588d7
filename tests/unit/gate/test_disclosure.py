"""Disclosure: of sealed items nothing but one bit is told, in whatever way they did not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import SCREEN
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.disclosure import disclosed
from gatevalve.gate.inputs import Evidence
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Check, Judgement, found
from support.gate_cases import case_of, guard_rows, manners_rows, policy_of, row_of, screen_rows, target_rows, without_answer
from support.thresholds import THRESHOLDS

ONE = SCORE_ONE
POLICY = policy_of(futility={"items": 20, "alphaBasisPoints": 5000}, behaviour={**THRESHOLDS["behaviour"], "maxGainByLengthPercent": 50})
Rows = list[PairRow]


def far_from_anchor() -> Rows:
    return [row.model_copy(update={"scores": {**row.scores, "anchor": (ONE, ONE)}}) for row in target_rows()]


def out_of_range() -> Rows:
    rows = target_rows()
    return [rows[0].model_copy(update={"scores": {**rows[0].scores, "candidate": (ONE + 1, 0)}}), *rows[1:]]


def with_losses() -> Rows:
    return [row_of("target", i, (0, 0) if i % 10 == 0 else (ONE, ONE), (ONE, ONE) if i % 10 == 0 else (0, 0)) for i in range(40)]


def padded() -> Rows:
    """A gain on every item that became longer, and on no other."""
    return [row_of("target", i, (ONE * (i % 2),) * 2, (0, 0), tokens=(20 + 20 * (i % 2), 20, 20)) for i in range(40)]


SEALED: dict[str, tuple[Callable[[], Rows], Finding]] = {
    "the gain could be chance": (lambda: [*target_rows(9), *screen_rows()], Finding.NOT_SIGNIFICANT),
    "no gain": (lambda: [*target_rows(0), *screen_rows()], Finding.EFFECT_TOO_SMALL),
    "below the anchor": (lambda: [*far_from_anchor(), *screen_rows()], Finding.BELOW_ANCHOR),
    "answers lost": (lambda: [*with_losses(), *screen_rows()], Finding.CHURNED),
    "a gain by length": (lambda: [*padded(), *screen_rows()], Finding.GAIN_BY_LENGTH),
    "a score out of range": (lambda: [*out_of_range(), *screen_rows()], Finding.EVIDENCE_NUMBERS),
    "an item missing": (lambda: [*target_rows()[1:], *screen_rows()], Finding.EVIDENCE_ROWS),
    "answers missing": (
        lambda: [without_answer(target_rows()[0], "candidate", 0), *target_rows()[1:], *screen_rows()],
        Finding.EVIDENCE_MISSING,
    ),
    "a hopeless screen": (lambda: [*target_rows(), *screen_rows(0)], Finding.HOPELESS),
    "an item of the screen missing": (lambda: [*target_rows(), *screen_rows()[1:]], Finding.EVIDENCE_ROWS),
    "a hopeless screen and no gain": (lambda: [*target_rows(0), *screen_rows(0)], Finding.EFFECT_TOO_SMALL),
    "a hopeless screen and a primary out of range": (lambda: [*out_of_range(), *screen_rows(0)], Finding.EVIDENCE_NUMBERS),
}

PUBLIC: dict[str, tuple[Callable[[], Rows], tuple[Verdict, EntryReason]]] = {
    "all of it passes": (lambda: [*guard_rows(), *manners_rows()], (Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED)),
    "a guard lost": (lambda: [*guard_rows(30), *manners_rows()], (Verdict.REJECTED, EntryReason.GUARD_REGRESSED)),
    "longer replies": (lambda: [*guard_rows(), *manners_rows(40)], (Verdict.REJECTED, EntryReason.BEHAVIOUR_CHANGED)),
    "a guard's item missing": (lambda: [*guard_rows()[1:], *manners_rows()], (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)),
    "replies missing": (lambda: [*guard_rows(), *manners_rows()[1:]], (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)),
    "longer replies, and a guard's item missing": (
        lambda: [*guard_rows()[1:], *manners_rows(40)],
        (Verdict.REJECTED, EntryReason.BEHAVIOUR_CHANGED),
    ),
}


def judged(rows: Rows) -> Judgement:
    """The judgement on rows where a whole test was expected."""
    whole = [*target_rows(), *guard_rows(), *manners_rows(), *screen_rows()]
    evidence, ledger = case_of(POLICY, whole)
    return judge(POLICY, Evidence.of(evidence.report, rows), ledger)


def told(judgement: Judgement) -> tuple[Verdict, EntryReason, str, int | None]:
    return judgement.verdict, judgement.reason, judgement.message, judgement.effect_basis_points


@pytest.mark.parametrize("case", SEALED)
def test_each_case_of_sealed_items_is_what_it_says(case: str) -> None:
    rows, finding = SEALED[case]
    problems = [result for result in judged([*rows(), *guard_rows(), *manners_rows()]).results if result.outcome is not Outcome.PASS]
    assert finding in {problem.finding for problem in problems}
    assert {problem.suite for problem in problems} <= {"target", SCREEN}


@pytest.mark.parametrize("public", PUBLIC)
def test_sealed_items_that_did_not_pass_look_alike_however_they_did_not(public: str) -> None:
    rows, expected = PUBLIC[public]
    seen = {told(judged([*sealed(), *rows()])) for sealed, _ in SEALED.values()}
    assert len(seen) == 1
    assert seen.pop()[:2] == expected


@pytest.mark.parametrize("public", [case for case in PUBLIC if case != "all of it passes"])
def test_where_public_suites_speak_not_even_the_bit_is_told(public: str) -> None:
    rows, expected = PUBLIC[public]
    passing, failing = judged([*target_rows(), *screen_rows(), *rows()]), judged([*target_rows(0), *screen_rows(0), *rows()])
    assert told(passing) == told(failing)
    assert told(passing)[:2] == expected


def test_a_test_that_ended_with_its_screen_looks_like_one_that_did_not() -> None:
    ended = judge(POLICY, *case_of(POLICY, screen_rows(0), "Screen"))
    whole = judged([*target_rows(0), *screen_rows(), *guard_rows(), *manners_rows()])
    assert told(ended) == told(whole) == (Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED, EntryReason.PRIMARY_NOT_PASSED.sentence, None)


def test_whatever_the_authority_says_is_told_whatever_sealed_items_show() -> None:
    seen = set()
    for gained, screened in product((24, 0), (12, 0)):
        evidence, ledger = case_of(POLICY, [*target_rows(gained), *guard_rows(), *manners_rows(), *screen_rows(screened)])
        seen.add(told(judge(POLICY, evidence, replace(ledger, quarantined=frozenset({sha256(b"candidate")})))))
    assert seen == {(Verdict.REJECTED, EntryReason.NOT_AUTHORIZED, Finding.QUARANTINED.sentence, None)}


def test_every_finding_on_the_primary_or_its_screen_is_the_same_message() -> None:
    sealed = [suite for suite in (POLICY.primary, POLICY.screen) if suite]
    seen = {
        disclosed(POLICY, [found(check, outcome, finding, suite, 1, "secret")])
        for check, outcome, finding, suite in product(Check, (Outcome.FAIL, Outcome.INSUFFICIENT), Finding, sealed)
    }
    assert seen == {(Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED, EntryReason.PRIMARY_NOT_PASSED.sentence)}


def test_a_finding_of_a_public_suite_names_the_suite_and_what_was_found() -> None:
    for finding in set(Finding) - {Finding.OK}:
        verdict, _, message = disclosed(POLICY, [found(Check.BEHAVIOUR, Outcome.FAIL, finding, POLICY.suites[2], 1, "")])
        assert (verdict, message) == (Verdict.REJECTED, f"manners: {finding.sentence}")
        assert not any(character.isdigit() for character in message)
