"""Evidence that is missing, short, duplicated, foreign or out of range is never judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import (
    ARMS,
    SCORE_ONE,
    Arm,
    EvidenceReport,
    Failure,
    JudgeFact,
    PairRow,
    Stage,
    SuiteFact,
)
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.evidence import sound_evidence
from gatevalve.gate.inputs import Evidence, expected_items
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Check, Judgement
from gatevalve.gate.superiority import superiority
from support.gate_cases import (
    NEAR,
    PLAIN,
    case_of,
    facts_of,
    good_rows,
    guard_rows,
    judges_of,
    ledger_of,
    manners_rows,
    must_pass_policy,
    policy_of,
    report_of,
    row_of,
    screen_rows,
    target_rows,
    without_answer,
)

POLICY = policy_of()
OTHER = sha256(b"other")
MANNERS = 240
"""Index of the behaviour suite's first row in `good_rows()`."""
Rows = Sequence[PairRow]
SCREENED = policy_of(futility={"items": 20, "alphaBasisPoints": 5000})
JUDGE = {
    "url": "http://judge.example/v1",
    "model": "judge",
    "canaries": {"uri": "suites/canaries.jsonl", "digest": sha256(b"canaries")},
}


def with_row(rows: Rows, index: int, **changes: Any) -> list[PairRow]:
    return [row.model_copy(update=changes) if i == index else row for i, row in enumerate(rows)]


def with_scores(rows: Rows, index: int, candidate: tuple[int | None, ...]) -> list[PairRow]:
    return with_row(rows, index, scores={**rows[index].scores, "candidate": candidate})


def with_missing(rows: Rows, arm: Arm, failure: Failure = "Engine") -> list[PairRow]:
    """The first row without an answer of one arm."""
    first = reduce(lambda row, decode: without_answer(row, arm, decode, failure), range(len(rows[0].scores[arm])), rows[0])
    return [first, *rows[1:]]


def of_manners(rows: Rows, **changes: Any) -> list[PairRow]:
    """The first row of the behaviour suite changed."""
    return with_row(rows, MANNERS, **changes)


def missing_but_for(name: str) -> Callable[[Rows], Rows]:
    return lambda rows: with_row(with_missing(rows, "anchor"), 0, **{name: getattr(rows[0], name)})


def with_tokens(count: int) -> Callable[[Rows], Rows]:
    return lambda rows: with_row(rows, -1 % len(rows), tokens=dict.fromkeys(ARMS, (count,)))


def with_likelihood(**changes: int) -> Callable[[Rows], Rows]:
    return lambda rows: of_manners(rows, likelihoods=(NEAR.model_copy(update=changes),))


def with_repetition(share: int) -> Callable[[Rows], Rows]:
    repetitive = PLAIN.model_copy(update={"repetition": share})
    return lambda rows: of_manners(rows, styles={**dict.fromkeys(ARMS[:2], (PLAIN,)), "anchor": (repetitive,)})


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
        "does not measure: extra.",
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
    "a decode without word of its failure": (
        lambda rows: with_row(rows, 2, failures={**rows[2].failures, "anchor": (None,)}),
        "target",
        Finding.EVIDENCE_ROWS,
        "2 answers of every arm: target-00002.",
    ),
    "a score that is missing without a failure": (
        lambda rows: with_scores(rows, 3, (None, 0)),
        "target",
        Finding.EVIDENCE_ROWS,
        "neither whole nor told to be missing: target-00003.",
    ),
    "a failure of an answer that is there": (
        lambda rows: with_row(rows, 3, failures={**rows[3].failures, "incumbent": ("Engine", None)}),
        "target",
        Finding.EVIDENCE_ROWS,
        "neither whole nor told to be missing: target-00003.",
    ),
    **{
        f"a missing answer that still has its {name}": (
            missing_but_for(name),
            "target",
            Finding.EVIDENCE_ROWS,
            "neither whole nor told to be missing: target-00000.",
        )
        for name in ("scores", "tokens", "finishes", "texts")
    },
    "a score where nothing is scored": (
        lambda rows: of_manners(rows, scores=dict.fromkeys(ARMS, (0,))),
        "manners",
        Finding.EVIDENCE_ROWS,
        "neither whole nor told to be missing: manners-00000.",
    ),
    "a behaviour suite without styles": (
        lambda rows: of_manners(rows, styles=None),
        "manners",
        Finding.EVIDENCE_ROWS,
        "1 answers of every arm: manners-00000.",
    ),
    "styles of two arms": (
        lambda rows: of_manners(rows, styles=dict.fromkeys(ARMS[:2], (PLAIN,))),
        "manners",
        Finding.EVIDENCE_ROWS,
        "1 answers of every arm: manners-00000.",
    ),
    "a reply without a style": (
        lambda rows: of_manners(rows, styles={**dict.fromkeys(ARMS[:2], (PLAIN,)), "anchor": (None,)}),
        "manners",
        Finding.EVIDENCE_ROWS,
        "neither whole nor told to be missing: manners-00000.",
    ),
    "styles where nobody asked for them": (
        lambda rows: with_row(rows, 0, styles=dict.fromkeys(ARMS, (PLAIN, PLAIN))),
        "target",
        Finding.EVIDENCE_ROWS,
        "2 answers of every arm: target-00000.",
    ),
    "a behaviour suite without likelihoods": (
        lambda rows: of_manners(rows, likelihoods=None),
        "manners",
        Finding.EVIDENCE_ROWS,
        "1 answers of every arm: manners-00000.",
    ),
    "a reply without its likelihood": (
        lambda rows: of_manners(rows, likelihoods=(None,)),
        "manners",
        Finding.EVIDENCE_ROWS,
        "neither whole nor told to be missing: manners-00000.",
    ),
    "likelihoods where nobody asked for them": (
        lambda rows: with_row(rows, 0, likelihoods=(NEAR, NEAR)),
        "target",
        Finding.EVIDENCE_ROWS,
        "2 answers of every arm: target-00000.",
    ),
    **{
        f"{told} of {field} in a likelihood": (
            with_likelihood(**{field: value}),
            "manners",
            Finding.EVIDENCE_NUMBERS,
            "out of range: manners-00000.",
        )
        for told, field, value in (
            ("more than certainty", "candidate", 1),
            ("more than certainty", "incumbent", 1),
            ("more than certainty", "anchor", 1),
            ("less than nothing", "k3_incumbent", -1),
            ("less than nothing", "k3_anchor", -1),
            ("more than a record holds", "k3_anchor", 10**400),
            ("less than a record holds", "candidate", -(10**400)),
        )
    },
    **{
        f"a share of {share} millionths repeated": (
            with_repetition(share),
            "manners",
            Finding.EVIDENCE_NUMBERS,
            "out of range: manners-00000.",
        )
        for share in (-1, SCORE_ONE + 1)
    },
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
    **{
        f"replies of {told} tokens": (
            with_tokens(count),
            "manners",
            Finding.EVIDENCE_NUMBERS,
            "out of range: manners-00004.",
        )
        for told, count in (("one more than may be asked for", 49), ("10^400", 10**400))
    },
    "too many answers of the candidate are missing": (
        lambda rows: with_missing(rows, "candidate"),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the candidate are missing.",
    ),
    "answers that no verifier could score are missing": (
        lambda rows: with_missing(rows, "candidate", "Verifier"),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the candidate are missing.",
    ),
    "too many answers of the incumbent are missing": (
        lambda rows: with_missing(rows, "incumbent"),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the incumbent are missing.",
    ),
    "too many answers of the anchor are missing": (
        lambda rows: with_missing(rows, "anchor"),
        "target",
        Finding.EVIDENCE_MISSING,
        "2 of 80 answers of the anchor are missing.",
    ),
    "too many replies are missing": (
        lambda rows: [*rows[:MANNERS], *with_missing(rows[MANNERS:], "incumbent")],
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
def test_unsound_rows_are_never_judged_and_the_other_suites_are(case: str) -> None:
    change, suite, finding, sentence = UNSOUND_ROWS[case]
    evidence, ledger = case_of(POLICY, good_rows())
    judgement = judge(POLICY, Evidence.of(evidence.report, change(good_rows())), ledger)
    problems = [result for result in judgement.results if result.outcome is not Outcome.PASS]
    sealed = {problem.suite for problem in problems} == {"target"}
    assert (problems[0].check, problems[0].suite, problems[0].finding) == (Check.EVIDENCE, suite, finding)
    assert sentence in problems[0].sentence
    assert (judgement.verdict, judgement.reason) == (
        (Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED) if sealed else (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)
    )
    measured = {result.suite for result in judgement.results if result.check not in (Check.EVIDENCE, Check.AUTHORITY)}
    assert measured == (set() if suite is None else {"target", "regression", "manners"} - {problem.suite for problem in problems})


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
    "no suites": (lambda report: report.model_copy(update={"suites": ()}), Finding.EVIDENCE_ROWS, "exactly the suites that"),
    "a suite twice": (
        lambda report: report.model_copy(update={"suites": (*report.suites, report.suites[0])}),
        Finding.EVIDENCE_ROWS,
        "exactly the suites that this test measures.",
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
        (None, Outcome.PASS, 0),
        ("target", Outcome.PASS, 40),
        ("regression", Outcome.PASS, 200),
        ("manners", Outcome.PASS, 5),
    ]


def test_a_missing_answer_counts_as_the_candidates_worst_and_the_baselines_best() -> None:
    policy = policy_of(items=100)
    rows = [*target_rows(60, 100), *guard_rows(), *manners_rows()]
    evidence, ledger = case_of(policy, rows)
    whole = superiority(policy, evidence, ledger)[0]
    arms: tuple[tuple[Arm, int], ...] = (("candidate", 99), ("incumbent", 98))
    for arm, index in arms:
        row = without_answer(rows[index], arm, 0, "Verifier")
        rest = Evidence.of(evidence.report, [*rows[:index], row, *rows[index + 1 :]])
        assert judge(policy, rest, ledger).verdict is Verdict.ACCEPTED
        assert float(whole.statistic or 0) - float(superiority(policy, rest, ledger)[0].statistic or 0) == pytest.approx(1 / 200)


NOT_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "0.5", "1.0", '"1"', "true", "{}"]


@pytest.mark.parametrize("number", NOT_NUMBERS)
@pytest.mark.parametrize("field", ["scores", "tokens"])
def test_what_is_no_integer_cannot_be_read_as_one(field: str, number: str) -> None:
    line = json.dumps({**row_of("target", 0, (0,), (0,)).wire(), field: {arm: [0] for arm in ARMS}})
    assert PairRow.parse_json(line).item == "target-00000"
    with pytest.raises(ContractError, match=rf"PairRow\.{field}\.|Invalid JSON"):
        PairRow.parse_json(line.replace(f'"{field}": {{"candidate": [0]', f'"{field}": {{"candidate": [{number}]'))


@pytest.mark.parametrize("field", [name for name, field in PairRow.model_fields.items() if field.is_required()])
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


def test_the_expected_number_of_items_of_traffic_and_of_the_screen_is_the_policys() -> None:
    traffic = {"name": "chats", "items": {"traffic": {"min": 55}}, "judge": JUDGE}
    spec = {**SCREENED.wire(), "suites": [{**POLICY.suites[0].wire(), **traffic}]}
    del spec["suites"][0]["verifier"]
    assert expected_items(SCREENED, ()) == {"target": 40, "screen": 20}
    assert expected_items(GatePolicySpec.parse(spec), ()) == {"chats": 55, "screen": 20}


# ---- the screen, judges and must-pass suites


def screened_case(rows: Rows, stage: Stage = "Full", policy: GatePolicySpec = SCREENED) -> Judgement:
    return judge(policy, *case_of(policy, rows, stage))


def test_a_whole_test_holds_the_screen_beside_the_policys_suites() -> None:
    judgement = screened_case([*good_rows(), *screen_rows()])
    assert judgement.verdict is Verdict.ACCEPTED
    assert [result.suite for result in judgement.results[3:7]] == ["target", "regression", "manners", "screen"]


SCREENS: dict[str, tuple[Rows, Stage, str]] = {
    "a whole test without its screen": (good_rows(), "Full", "There are 0 items where 0 are expected."),
    "a screen of three arms": (
        [*good_rows(), *(row.model_copy(update={"suite": "screen"}) for row in target_rows(12, 20))],
        "Full",
        "2 answers of every arm: target-00000, target-00001, target-00002 and 17 more.",
    ),
    "a screen of one arm": (
        with_row(screen_rows(), 4, texts={"candidate": screen_rows()[4].texts["candidate"]}),
        "Screen",
        "2 answers of every arm: screen-00004.",
    ),
    "a screen of one cluster": (
        [row.model_copy(update={"cluster": "one"}) for row in screen_rows()],
        "Screen",
        "There are 1 clusters where 2 are needed.",
    ),
    "a screen without answers": (with_missing(screen_rows(), "incumbent"), "Screen", "2 of 40 answers of the incumbent are missing."),
}


@pytest.mark.parametrize("case", SCREENS)
def test_an_unsound_screen_shows_as_a_primary_that_did_not_pass(case: str) -> None:
    rows, stage, sentence = SCREENS[case]
    judgement = screened_case(rows, stage)
    problem = next(result for result in judgement.results if result.outcome is not Outcome.PASS)
    assert (problem.check, problem.suite, problem.outcome) == (Check.EVIDENCE, "screen", Outcome.INSUFFICIENT)
    assert sentence in problem.sentence
    assert (judgement.verdict, judgement.reason) == (Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED)


def test_a_test_that_ended_with_its_screen_holds_no_other_rows() -> None:
    judgement = screened_case([*good_rows(), *screen_rows(0)], "Screen")
    assert (judgement.verdict, judgement.reason) == (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)
    assert "does not measure: manners, regression, target." in judgement.results[1].sentence


def test_a_test_cannot_end_with_a_screen_that_its_policy_does_not_ask_for() -> None:
    judgement = screened_case(screen_rows(0), "Screen", POLICY)
    assert (judgement.verdict, judgement.reason) == (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)
    assert judgement.results[1].sentence == "The report ends with a screen that the policy does not ask for."


def test_rows_of_a_screen_that_nobody_asked_for_are_not_overlooked() -> None:
    judgement = screened_case([*good_rows(), *screen_rows()], "Full", POLICY)
    assert (judgement.verdict, judgement.reason) == (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)


def judged_policy(**changes: Any) -> GatePolicySpec:
    spec = policy_of(**changes).wire()
    spec["suites"][0]["judge"] = JUDGE
    del spec["suites"][0]["verifier"]
    return GatePolicySpec.parse(spec)


def fact(**changes: Any) -> JudgeFact:
    return JudgeFact(**{"suite": "target", "model": "judge", "prompt": 1, "canaries": 40, "right": 40, **changes})


JUDGES: dict[str, tuple[tuple[JudgeFact, ...], bool]] = {
    "all canaries right": ((fact(),), True),
    "95 of 100 right": ((fact(right=38),), True),
    "fewer than 95 of 100 right": ((fact(right=37),), False),
    "no canaries asked": ((fact(canaries=0, right=0),), False),
    "more right than asked": ((fact(right=41),), False),
    "fewer than none asked": ((fact(canaries=-40, right=-40),), False),
    "another judge": ((fact(model="other"),), False),
    "no judge": ((), False),
    "two judges": ((fact(), fact()), False),
    "a judge of a suite that has none": ((fact(), fact(suite="regression")), False),
}


@pytest.mark.parametrize("case", JUDGES)
def test_a_judge_that_fails_its_canaries_says_nothing_of_the_candidate(case: str) -> None:
    facts, reliable = JUDGES[case]
    policy = judged_policy()
    evidence, ledger = case_of(policy, good_rows())
    assert evidence.report is not None
    judgement = judge(policy, replace(evidence, report=evidence.report.model_copy(update={"judges": facts})), ledger)
    expected = (Verdict.ACCEPTED, EntryReason.GATE_PASSED) if reliable else (Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND)
    assert (judgement.verdict, judgement.reason) == expected
    assert reliable or {result.check for result in judgement.results} == {Check.EVIDENCE, Check.AUTHORITY}


def test_the_screen_of_a_judged_primary_is_judged_as_well() -> None:
    policy = judged_policy(futility=SCREENED.futility.wire())
    assert [told.suite for told in judges_of(policy)] == ["target", "screen"]
    assert screened_case([*good_rows(), *screen_rows()], policy=policy).verdict is Verdict.ACCEPTED
    evidence, ledger = case_of(policy, screen_rows(0), "Screen")
    assert judge(policy, evidence, ledger).verdict is Verdict.REJECTED
    assert evidence.report is not None
    silent = replace(evidence, report=evidence.report.model_copy(update={"judges": ()}))
    assert judge(policy, silent, ledger).verdict is Verdict.INCONCLUSIVE


def test_a_suite_of_which_every_reply_must_pass_cannot_be_empty() -> None:
    policy = must_pass_policy()
    judgement = judge(policy, *case_of(policy, good_rows()))
    problem = next(result for result in judgement.results if result.outcome is not Outcome.PASS)
    assert (judgement.verdict, problem.suite, problem.finding) == (Verdict.INCONCLUSIVE, "safety", Finding.EVIDENCE_ROWS)


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
    assert "target-00002, target-00007, target-00021 and 1 more" in sound_evidence(POLICY, backwards, ledger)[3].sentence
