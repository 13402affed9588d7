"""Evidence that is missing, short, duplicated, foreign or out of range is never judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import ARMS, SCORE_ONE, EvidenceReport, PairRow, SuiteFact
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.evidence import sound_evidence
from gatevalve.gate.inputs import Evidence, expected_items
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Check
from support.gate_cases import case_of, facts_of, good_rows, guard_rows, ledger_of, manners_rows, policy_of, report_of, row_of, target_rows

POLICY = policy_of()
OTHER = sha256(b"other")
Rows = Sequence[PairRow]


def with_row(rows: Rows, index: int, **changes: Any) -> list[PairRow]:
    return [row.model_copy(update=changes) if i == index else row for i, row in enumerate(rows)]


def with_scores(rows: Rows, index: int, candidate: tuple[int | None, ...]) -> list[PairRow]:
    return with_row(rows, index, scores={**rows[index].scores, "candidate": candidate})


def with_missing(rows: Rows, arm: str, times: int) -> list[PairRow]:
    return [
        row.model_copy(update={"scores": {**row.scores, arm: (None,) * len(row.scores["candidate"])}}) if i < times else row
        for i, row in enumerate(rows)
    ]


UNSOUND_ROWS: dict[str, tuple[Callable[[Rows], Rows], str | None, Finding, str]] = {
    "nothing was measured": (lambda rows: [], "target", Finding.EVIDENCE_ROWS, "There are 0 items where 40 are expected."),
    "an item is missing": (lambda rows: rows[1:], "target", Finding.EVIDENCE_ROWS, "There are 39 items where 40 are expected."),
    "a guard's item is missing": (lambda rows: [*rows[:40], *rows[41:]], "regression", Finding.EVIDENCE_ROWS, "There are 199 items"),
    "a reply of the behaviour suite is missing": (lambda rows: rows[:-1], "manners", Finding.EVIDENCE_ROWS, "There are 4 items where 5"),
    "an item appears twice": (lambda rows: [*rows, rows[0]], "target", Finding.EVIDENCE_ROWS, "more than once: target-00000."),
    "an item takes another's place": (lambda rows: [rows[1], *rows[1:]], "target", Finding.EVIDENCE_ROWS, "more than once: target-00001."),
    "all items appear twice": (
        lambda rows: [*rows, *rows[:40]],
        "target",
        Finding.EVIDENCE_ROWS,
        "more than once: target-00000, target-00001, target-00002 and 37 more.",
    ),
    "an item of too many": (
        lambda rows: [*rows, row_of("target", 40, (0, 0), (0, 0))],
        "target",
        Finding.EVIDENCE_ROWS,
        "There are 41 items",
    ),
    "a suite that nobody asked for": (
        lambda rows: [*rows, row_of("extra", 0, (0,), (0,))],
        None,
        Finding.EVIDENCE_ROWS,
        "does not name: extra.",
    ),
    "a decode is missing": (
        lambda rows: with_scores(rows, 3, (SCORE_ONE,)),
        "target",
        Finding.EVIDENCE_ROWS,
        "2 answers of every arm: target-00003.",
    ),
    "a decode of too many": (lambda rows: with_scores(rows, 3, (0, 0, 0)), "target", Finding.EVIDENCE_ROWS, "2 answers of every arm"),
    "an arm is missing": (
        lambda rows: with_row(rows, 2, scores=dict.fromkeys(ARMS[:2], (0, 0))),
        "target",
        Finding.EVIDENCE_ROWS,
        "2 answers of every arm: target-00002.",
    ),
    "a score above one": (
        lambda rows: with_scores(rows, 5, (SCORE_ONE + 1, 0)),
        "target",
        Finding.EVIDENCE_NUMBERS,
        "out of range: target-00005.",
    ),
    "a score below zero": (lambda rows: with_scores(rows, 5, (-1, 0)), "target", Finding.EVIDENCE_NUMBERS, "out of range: target-00005."),
    "a token count below zero": (
        lambda rows: with_row(rows, -1 % len(rows), tokens=dict.fromkeys(ARMS, (-1,))),
        "manners",
        Finding.EVIDENCE_NUMBERS,
        "out of range: manners-00004.",
    ),
    "too many answers of the candidate are missing": (
        lambda rows: with_missing(rows, "candidate", 1),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the candidate are missing.",
    ),
    "too many answers of the incumbent are missing": (
        lambda rows: with_missing(rows, "incumbent", 1),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the incumbent are missing.",
    ),
    "too many answers of the anchor are missing": (
        lambda rows: with_missing(rows, "anchor", 1),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the anchor are missing.",
    ),
    "too many replies without a length": (
        lambda rows: with_row(rows, 240, tokens={**rows[240].tokens, "incumbent": (None,)}),
        "manners",
        Finding.EVIDENCE_MISSING,
        "1 of 5 answers of the incumbent are missing.",
    ),
    "too few clusters": (
        lambda rows: [row.model_copy(update={"cluster": f"{int(row.item[-5:]) % 29}"}) if row.suite == "target" else row for row in rows],
        "target",
        Finding.EVIDENCE_SIZE,
        "There are 29 clusters where 30 are needed.",
    ),
}


@pytest.mark.parametrize("case", UNSOUND_ROWS)
def test_unsound_rows_are_inconclusive_whatever_they_show(case: str) -> None:
    change, suite, finding, sentence = UNSOUND_ROWS[case]
    evidence, ledger = case_of(POLICY, good_rows())
    judgement = judge(POLICY, Evidence.of(evidence.report, change(good_rows())), ledger)
    problems = [result for result in judgement.results if result.outcome is not Outcome.PASS]
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert (problems[0].check, problems[0].suite, problems[0].finding) == (Check.EVIDENCE, suite, finding)
    assert sentence in problems[0].sentence
    assert judgement.reason is (EntryReason.PRIMARY_NOT_PASSED if suite == "target" else EntryReason.EVIDENCE_UNSOUND)
    assert {result.check for result in judgement.results} == {Check.EVIDENCE, Check.AUTHORITY}


def other_suites(report: EvidenceReport, **changes: Any) -> EvidenceReport:
    return report.model_copy(update={"suites": tuple(fact.model_copy(update=changes) for fact in report.suites)})


FOREIGN_REPORTS: dict[str, tuple[Callable[[EvidenceReport], EvidenceReport | None], Finding, str]] = {
    "there is no report": (lambda report: None, Finding.EVIDENCE_ROWS, "There is no report."),
    "another test": (
        lambda report: report.model_copy(update={"test_entry": "support-000006"}),
        Finding.EVIDENCE_DIGESTS,
        "made for another testEntry.",
    ),
    "another entry of that name": (
        lambda report: report.model_copy(update={"test_digest": OTHER}),
        Finding.EVIDENCE_DIGESTS,
        "another testDigest.",
    ),
    "another channel": (lambda report: report.model_copy(update={"channel_uid": "x"}), Finding.EVIDENCE_DIGESTS, "another channelUid."),
    "another candidate": (
        lambda report: report.model_copy(update={"candidate_uid": "x"}),
        Finding.EVIDENCE_DIGESTS,
        "another candidateUid.",
    ),
    "another round": (lambda report: report.model_copy(update={"round": 2}), Finding.EVIDENCE_DIGESTS, "another round."),
    "another policy": (
        lambda report: report.model_copy(update={"policy_digest": OTHER}),
        Finding.EVIDENCE_DIGESTS,
        "another policyDigest.",
    ),
    "another base": (lambda report: report.model_copy(update={"base_digest": OTHER}), Finding.EVIDENCE_DIGESTS, "another baseDigest."),
    "another adapter": (
        lambda report: report.model_copy(update={"candidate_digest": OTHER}),
        Finding.EVIDENCE_DIGESTS,
        "another candidateDigest.",
    ),
    "another incumbent": (
        lambda report: report.model_copy(update={"incumbent_digest": None}),
        Finding.EVIDENCE_DIGESTS,
        "another incumbentDigest.",
    ),
    "another anchor": (
        lambda report: report.model_copy(update={"anchor_digest": OTHER}),
        Finding.EVIDENCE_DIGESTS,
        "another anchorDigest.",
    ),
    "no suites": (lambda report: report.model_copy(update={"suites": ()}), Finding.EVIDENCE_ROWS, "exactly the policy's suites."),
    "a suite twice": (
        lambda report: report.model_copy(update={"suites": (*report.suites, report.suites[0])}),
        Finding.EVIDENCE_ROWS,
        "exactly the policy's suites.",
    ),
    "items of another file": (
        lambda report: other_suites(report, sha256=OTHER),
        Finding.EVIDENCE_DIGESTS,
        "other files than the policy names: regression, manners.",
    ),
    "another number of items": (
        lambda report: other_suites(report, items=3),
        Finding.EVIDENCE_SIZE,
        "another number of items than expected: target, regression, manners.",
    ),
}


@pytest.mark.parametrize("case", FOREIGN_REPORTS)
def test_a_foreign_report_is_inconclusive_whatever_it_shows(case: str) -> None:
    change, finding, sentence = FOREIGN_REPORTS[case]
    evidence, ledger = case_of(POLICY, good_rows())
    assert evidence.report is not None
    judgement = judge(POLICY, replace(evidence, report=change(evidence.report)), ledger)
    problem = next(result for result in judgement.results if result.outcome is not Outcome.PASS)
    assert (judgement.verdict, judgement.reason) == (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)
    assert (problem.check, problem.finding) == (Check.EVIDENCE, finding)
    assert sentence in problem.sentence


def test_sound_evidence_passes_for_the_test_and_every_suite() -> None:
    evidence, ledger = case_of(POLICY, good_rows())
    results = sound_evidence(POLICY, evidence, ledger)
    assert [(result.suite, result.outcome, result.n) for result in results] == [
        (None, Outcome.PASS, 0),
        (None, Outcome.PASS, 0),
        ("target", Outcome.PASS, 40),
        ("regression", Outcome.PASS, 200),
        ("manners", Outcome.PASS, 5),
    ]


def test_a_missing_answer_counts_as_the_candidates_worst_and_the_baselines_best() -> None:
    policy = policy_of(items=100)
    rows = [*target_rows(60, 100), *guard_rows(), *manners_rows()]
    evidence, ledger = case_of(policy, rows)
    whole = judge(policy, evidence, ledger).results[5]
    for arm, index in (("candidate", 99), ("incumbent", 98)):
        row = rows[index].model_copy(update={"scores": {**rows[index].scores, arm: (None, 0)}})
        short = judge(policy, Evidence.of(evidence.report, [*rows[:index], row, *rows[index + 1 :]]), ledger).results[5]
        assert (whole.check, short.check) == (Check.SUPERIORITY, Check.SUPERIORITY)
        assert float(whole.statistic or 0) - float(short.statistic or 0) == pytest.approx(1 / 200)


NOT_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "0.5", "1.0", '"1"', "true", "{}"]


@pytest.mark.parametrize("number", NOT_NUMBERS)
@pytest.mark.parametrize("field", ["scores", "tokens"])
def test_what_is_no_integer_cannot_be_read_as_one(field: str, number: str) -> None:
    line = json.dumps({**row_of("target", 0, (0,), (0,)).wire(), field: {arm: [0] for arm in ARMS}})
    assert PairRow.parse_json(line).item == "target-00000"
    with pytest.raises(ContractError, match=rf"PairRow\.{field}\.|Invalid JSON"):
        PairRow.parse_json(line.replace(f'"{field}": {{"candidate": [0]', f'"{field}": {{"candidate": [{number}]'))


@pytest.mark.parametrize("field", PairRow.model_fields)
def test_a_row_without_one_of_its_fields_cannot_be_read(field: str) -> None:
    whole = row_of("target", 0, (0,), (0,)).wire()
    assert PairRow.parse(whole) == row_of("target", 0, (0,), (0,))
    with pytest.raises(ContractError, match=f"PairRow.{field}: Field required"):
        PairRow.parse({name: value for name, value in whole.items() if name != field})


def test_an_unknown_arm_cannot_be_read() -> None:
    whole = row_of("target", 0, (0,), (0,)).wire()
    with pytest.raises(ContractError, match="scores"):
        PairRow.parse({**whole, "scores": {**whole["scores"], "other": [0]}})


def test_the_expected_number_of_items_comes_from_the_generator_or_from_the_file_of_that_digest() -> None:
    facts = facts_of(POLICY, good_rows())
    assert expected_items(POLICY, facts) == {"target": 40, "regression": 200, "manners": 5}
    assert expected_items(POLICY, [fact.model_copy(update={"sha256": OTHER, "items": 1}) for fact in facts]) == {"target": 40}
    assert expected_items(POLICY, ()) == {"target": 40}


def test_evidence_of_a_suite_whose_size_is_unknown_is_not_sound() -> None:
    rows = good_rows()
    facts: tuple[SuiteFact, ...] = facts_of(POLICY, rows)
    ledger = ledger_of(POLICY, facts, expected_items=expected_items(POLICY, ()))
    assert judge(POLICY, Evidence.of(report_of(ledger, facts), rows), ledger).verdict is Verdict.INCONCLUSIVE


def test_rows_are_named_in_the_order_of_their_ids_however_they_arrive() -> None:
    rows: list[PairRow] = good_rows()
    for index in (30, 7, 21, 2):
        rows = with_scores(rows, index, (0,))
    evidence, ledger = case_of(POLICY, rows)
    backwards = Evidence.of(evidence.report, reversed(rows))
    assert sound_evidence(POLICY, backwards, ledger) == sound_evidence(POLICY, evidence, ledger)
    assert "target-00002, target-00007, target-00021 and 1 more" in sound_evidence(POLICY, backwards, ledger)[2].sentence
