"""Behaviour: each limit on both sides of it, on replies that exist, and a gain that is not one of length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gatevalve.contracts.files import SCORE_ONE, Arm, Likelihood, PairRow, Style
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.behaviour import RULES, behaviour
from gatevalve.gate.gain_by_length import gain_by_length
from gatevalve.gate.judge import judge
from gatevalve.gate.results import CheckResult
from gatevalve.gate.statistics import decimal
from support.gate_cases import (
    NEAR,
    PLAIN,
    case_of,
    good_rows,
    guard_rows,
    manners_rows,
    policy_of,
    row_of,
    suite_rows,
    target_rows,
    without_answer,
)
from support.thresholds import THRESHOLDS

ONE = SCORE_ONE
REPLIES = 1000


def limits(**changes: Any) -> GatePolicySpec:
    return policy_of(behaviour={**THRESHOLDS["behaviour"], **changes})


def of_manners(policy: GatePolicySpec, rows: Sequence[PairRow]) -> dict[Finding, CheckResult]:
    """The result of every rule on the behaviour suite, by what the rule would find."""
    results = [result for result in behaviour(policy, *case_of(policy, rows)) if result.suite == "manners"]
    return dict(zip((rule.finding for rule in RULES), results, strict=True))


def broken(policy: GatePolicySpec, rows: Sequence[PairRow]) -> list[Finding]:
    return [result.finding for result in of_manners(policy, rows).values() if result.outcome is not Outcome.PASS]


def changed(arm: Arm, times: int, of: Sequence[PairRow] | None = None, **style: Any) -> list[PairRow]:
    """Behaviour rows of which one arm's first replies have another form."""
    rows = list(of or manners_rows(count=REPLIES))
    for i, row in enumerate(rows[:times]):
        rows[i] = row.model_copy(update={"styles": {**(row.styles or {}), arm: (PLAIN.model_copy(update=style),)}})
    return rows


def cut(arm: Arm, times: int, of: Sequence[PairRow] | None = None) -> list[PairRow]:
    """Behaviour rows of which one arm's first replies ran into their limit."""
    rows = list(of or manners_rows(count=REPLIES))
    return [row.model_copy(update={"finishes": {**row.finishes, arm: ("length",)}}) if i < times else row for i, row in enumerate(rows)]


def same_text(arm: Arm, times: int, of: Sequence[PairRow] | None = None) -> list[PairRow]:
    """Behaviour rows of which one arm's first replies are all the first one."""
    rows = list(of or manners_rows(count=REPLIES))
    text = rows[0].texts[arm]
    return [row.model_copy(update={"texts": {**row.texts, arm: text}}) if i < times else row for i, row in enumerate(rows)]


def unlikely(tokens: int = 20, **k3: int) -> list[PairRow]:
    rows = manners_rows(tokens, count=REPLIES)
    return [row.model_copy(update={"likelihoods": (NEAR.model_copy(update=k3),)}) for row in rows]


def silent_incumbent() -> list[PairRow]:
    return [row_of("manners", i, (None,), (None,), tokens=(20, 0, 0)) for i in range(5)]


RULE: dict[str, tuple[Callable[[], list[PairRow]], Finding, str, bool]] = {
    "as long": (lambda: manners_rows(20), Finding.LENGTH_RATIO, "100", True),
    "35 % longer": (lambda: manners_rows(27), Finding.LENGTH_RATIO, "135", True),
    "40 % longer": (lambda: manners_rows(28), Finding.LENGTH_RATIO, "140", False),
    "30 % shorter": (lambda: manners_rows(14), Finding.LENGTH_RATIO, "70", True),
    "35 % shorter": (lambda: manners_rows(13), Finding.LENGTH_RATIO, "65", False),
    "half of 10 % of the replies repeated": (lambda: changed("candidate", 100, repetition=ONE // 2), Finding.REPETITION, "500", True),
    "half of 10.1 % of the replies repeated": (lambda: changed("candidate", 101, repetition=ONE // 2), Finding.REPETITION, "505", False),
    "as repetitive as the anchor": (
        lambda: changed("anchor", 900, changed("candidate", 900, repetition=ONE), repetition=ONE),
        Finding.REPETITION,
        "0",
        True,
    ),
    "5 % cut off": (lambda: cut("candidate", 50), Finding.TRUNCATION, "500", True),
    "5.1 % cut off": (lambda: cut("candidate", 51), Finding.TRUNCATION, "510", False),
    "as often cut off as the anchor": (lambda: cut("anchor", 600, cut("candidate", 600)), Finding.TRUNCATION, "0", True),
    "three quarters of the replies distinct": (lambda: same_text("candidate", 251), Finding.DIVERSITY, "75", True),
    "less than three quarters distinct": (lambda: same_text("candidate", 252), Finding.DIVERSITY, "74.9", False),
    "as uniform as the anchor": (lambda: same_text("anchor", 900, same_text("candidate", 900)), Finding.DIVERSITY, "100", True),
    "at the limit from the incumbent": (lambda: unlikely(k3_incumbent=10_000_000), Finding.KL_INCUMBENT, "500", True),
    "too far from the incumbent": (lambda: unlikely(k3_incumbent=10_000_001), Finding.KL_INCUMBENT, "500.00005", False),
    "at the limit from the anchor": (lambda: unlikely(k3_anchor=40_000_000), Finding.KL_ANCHOR, "2000", True),
    "too far from the anchor": (lambda: unlikely(k3_anchor=40_000_001), Finding.KL_ANCHOR, "2000.00005", False),
    "5 % more markup": (lambda: changed("candidate", 50, markup=True), Finding.FORMAT_SHIFT, "500", True),
    "5.1 % more markup": (lambda: changed("candidate", 51, markup=True), Finding.FORMAT_SHIFT, "510", False),
    "5 % less markup": (lambda: changed("anchor", 50, markup=True), Finding.FORMAT_SHIFT, "-500", True),
    "5.1 % less markup": (lambda: changed("anchor", 51, markup=True), Finding.FORMAT_SHIFT, "-510", False),
    "5 of 1000 address the judge": (lambda: changed("candidate", 5, addresses_judge=True), Finding.JUDGE_TEXT, "50", True),
    "6 of 1000 address the judge": (lambda: changed("candidate", 6, addresses_judge=True), Finding.JUDGE_TEXT, "60", False),
    "2 % avoid an answer": (lambda: changed("candidate", 20, avoids=True), Finding.AVOIDANCE, "200", True),
    "2.1 % avoid an answer": (lambda: changed("candidate", 21, avoids=True), Finding.AVOIDANCE, "210", False),
    "the anchor avoids more": (lambda: changed("anchor", 500, avoids=True), Finding.AVOIDANCE, "-5000", True),
}


@pytest.mark.parametrize("case", RULE)
def test_each_rule_holds_up_to_its_limit(case: str) -> None:
    rows, finding, value, holds = RULE[case]
    result = of_manners(policy_of(), rows())[finding]
    assert (result.outcome, result.finding) == ((Outcome.PASS, Finding.OK) if holds else (Outcome.FAIL, finding))
    assert (result.statistic, result.n) == (decimal(float(value)), len(rows()))


def test_every_rule_has_a_case_on_either_side_of_its_limit() -> None:
    for rule in RULES:
        assert {holds for _, finding, _, holds in RULE.values() if finding is rule.finding} == {True, False}


@pytest.mark.parametrize("case", [case for case in RULE if not RULE[case][3]])
def test_each_rule_is_told_with_a_sentence_of_its_own(case: str) -> None:
    rows, finding, *_ = RULE[case]
    judgement = judge(policy_of(), *case_of(policy_of(), [*target_rows(), *guard_rows(), *rows()]))
    assert (judgement.verdict, judgement.reason) == (Verdict.REJECTED, EntryReason.BEHAVIOUR_CHANGED)
    assert judgement.message == f"manners: {finding.sentence}"


NO_LIMIT: dict[str, tuple[dict[str, Any], Callable[[], list[PairRow]]]] = {
    "repetition": ({"maxRepetitionBasisPoints": 10_000}, lambda: changed("candidate", REPLIES, repetition=ONE)),
    "truncation": ({"maxTruncationBasisPoints": 10_000}, lambda: cut("candidate", REPLIES)),
    "diversity": ({"minDiversityPercent": 0}, lambda: same_text("candidate", REPLIES)),
    "KL from the incumbent": ({"maxKlMillinatsPerToken": 1_000_000}, lambda: unlikely(k3_incumbent=10**15)),
    "KL from the anchor": ({"maxAnchorKlMillinatsPerToken": 1_000_000}, lambda: unlikely(k3_anchor=10**15)),
    "format": ({"maxFormatShiftBasisPoints": 10_000}, lambda: changed("candidate", REPLIES, markup=True)),
    "text for a judge": ({"maxJudgeTextBasisPoints": 10_000}, lambda: changed("candidate", REPLIES, addresses_judge=True)),
    "avoidance": ({"maxAvoidanceBasisPoints": 10_000}, lambda: changed("candidate", REPLIES, avoids=True)),
}


@pytest.mark.parametrize("rule", NO_LIMIT)
def test_a_limit_that_is_none_holds_whatever_happens(rule: str) -> None:
    none, rows = NO_LIMIT[rule]
    assert broken(policy_of(), rows()) != []
    assert broken(limits(**none), rows()) == []


def gone(arms: Sequence[Arm], rows: Sequence[PairRow]) -> list[PairRow]:
    found = list(rows)
    for arm in arms:
        found = [without_answer(row, arm, 0) for row in found]
    return found


NOTHING: dict[str, Callable[[], list[PairRow]]] = {
    "there are no rows": list,
    "the candidate has not replied": lambda: gone(["candidate"], manners_rows()),
    "the incumbent has not replied": lambda: gone(["incumbent"], manners_rows()),
    "the anchor has not replied": lambda: gone(["anchor"], manners_rows()),
}


@pytest.mark.parametrize("case", NOTHING)
def test_where_there_are_no_replies_nothing_can_be_told(case: str) -> None:
    results = behaviour(policy_of(), *case_of(policy_of(), [*target_rows(), *NOTHING[case]()]))
    told = [(result.outcome, result.finding) for result in results if result.suite == "manners"]
    assert told == [(Outcome.INSUFFICIENT, Finding.NO_REPLIES)]


def test_the_length_of_nothing_has_no_ratio() -> None:
    result = of_manners(policy_of(), silent_incumbent())[Finding.LENGTH_RATIO]
    assert (result.outcome, result.finding) == (Outcome.INSUFFICIENT, Finding.NO_REPLIES)


def test_replies_without_a_token_have_no_divergence() -> None:
    results = of_manners(policy_of(), unlikely(0))
    assert {results[finding].outcome for finding in (Finding.KL_INCUMBENT, Finding.KL_ANCHOR)} == {Outcome.INSUFFICIENT}
    assert results[Finding.LENGTH_RATIO].outcome is Outcome.FAIL


def test_a_reply_that_is_missing_is_not_measured() -> None:
    rows = changed("candidate", 1, manners_rows(), addresses_judge=True)
    assert broken(policy_of(), rows) == [Finding.JUDGE_TEXT]
    assert broken(policy_of(), [without_answer(rows[0], "candidate", 0), *rows[1:]]) == []


def test_the_divergence_is_a_mean_over_tokens_not_over_replies() -> None:
    short, long = (row_of("manners", i, (None,), (None,), tokens=(tokens, 20, 20)) for i, tokens in enumerate((10, 30)))
    told: list[Likelihood] = [NEAR.model_copy(update={"k3_incumbent": k3}) for k3 in (4_000_000, 0)]
    rows = [row.model_copy(update={"likelihoods": (one,)}) for row, one in zip((short, long), told, strict=True)]
    assert of_manners(policy_of(), rows)[Finding.KL_INCUMBENT].statistic == decimal(100)


def test_a_style_holds_what_the_rules_ask_for() -> None:
    assert set(Style.model_fields) == {"repetition", "markup", "addresses_judge", "avoids"}


# ---- gain by length


def by_length(rows: Sequence[PairRow], percent: int = 50) -> CheckResult:
    policy = limits(maxGainByLengthPercent=percent)
    (result,) = gain_by_length(policy, case_of(policy, rows)[0])
    return result


def lengthened(gains: Sequence[tuple[float, int]], incumbent: float = 0.0) -> list[PairRow]:
    """Rows of the primary with one gain and one length of the candidate each; the incumbent's replies have 20 tokens."""
    base = round(incumbent * ONE)
    return [row_of("target", i, (base + round(gain * ONE),), (base,), tokens=(tokens, 20, 20)) for i, (gain, tokens) in enumerate(gains)]


PADDED = [(math.log(tokens / 20), tokens) for tokens in (20, 24, 28, 32, 36, 40) * 8]
SHIFTED = [(gain - sum(all_gains for all_gains, _ in PADDED) / len(PADDED) + 0.005, tokens) for gain, tokens in PADDED]
HONEST = [(0.3, tokens) for tokens in (18, 20, 22) * 16]
LENGTHS: dict[str, tuple[list[PairRow], int, Outcome]] = {
    "a gain that grows with length and is nothing without it": (lengthened(PADDED), 50, Outcome.FAIL),
    "a gain by length where much more of it may be": (lengthened(PADDED), 300, Outcome.PASS),
    "a gain by length where there is no limit": (lengthened(PADDED), 1000, Outcome.PASS),
    "a small gain made of losses that length makes up for": (lengthened(SHIFTED, 0.5), 300, Outcome.FAIL),
    "such a gain where there is no limit": (lengthened(SHIFTED, 0.5), 1000, Outcome.PASS),
    "the same gain whatever the length": (lengthened(HONEST), 50, Outcome.PASS),
    "replies that are all twice as long explain nothing": (lengthened([(0.3, 40)] * 48), 0, Outcome.PASS),
    "no gain": (lengthened([(0.0, tokens) for _, tokens in PADDED]), 0, Outcome.PASS),
    "a gain by brevity": (lengthened([(-math.log(tokens / 40), tokens) for tokens in (40, 30, 20) * 16]), 10, Outcome.FAIL),
    "an answer of nothing is one of a token": (lengthened([(0.5, 0 if i % 2 else 20) for i in range(48)]), 150, Outcome.PASS),
    "nobody replied": ([row_of("target", i, (None,), (0,)) for i in range(48)], 50, Outcome.INSUFFICIENT),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_gain_by_length(case: str) -> None:
    rows, percent, outcome = LENGTHS[case]
    result = by_length(rows, percent)
    finding = {Outcome.PASS: Finding.OK, Outcome.FAIL: Finding.GAIN_BY_LENGTH, Outcome.INSUFFICIENT: Finding.NO_REPLIES}[outcome]
    assert (result.suite, result.outcome, result.finding) == ("target", outcome, finding)


def test_a_gain_by_length_shows_as_a_primary_that_did_not_pass() -> None:
    policy = policy_of(48, 1, behaviour={**THRESHOLDS["behaviour"], "maxGainByLengthPercent": 20})
    judgement = judge(policy, *case_of(policy, [*lengthened(PADDED), *guard_rows(), *manners_rows()]))
    found = [result.finding for result in judgement.results if result.outcome is not Outcome.PASS]
    assert (found, judgement.verdict, judgement.reason) == ([Finding.GAIN_BY_LENGTH], Verdict.REJECTED, EntryReason.PRIMARY_NOT_PASSED)


def test_an_item_that_would_help_by_losing_counts_with_its_best() -> None:
    results = [by_length(lengthened([(gain, 20)] * 30 + [(0.0, 200)] * 10), 10) for gain in (0.8, 0.6)]
    assert [(result.statistic, result.bound, result.outcome) for result in results] == [
        (decimal(0.8), decimal(0.8 * (0.75 * 0.1 + 0.25) - 0.25 * 0.9), Outcome.PASS),
        (decimal(0.6), decimal(0.6 * (0.75 * 0.1 + 0.25) - 0.25 * 0.9), Outcome.FAIL),
    ]


TABLE = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 60), st.integers(0, 60)), min_size=2, max_size=20)


@given(TABLE, st.integers(0, 100), st.data())
@settings(max_examples=200, deadline=None)
def test_a_worse_answer_never_turns_a_failure_into_a_pass_while_there_is_a_gain(
    table: list[tuple[int, int, int, int]], percent: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(table) - 1))
    new, old, long, short = table[index]
    worse = [*table[:index], (data.draw(st.integers(0, new)), old, long, short), *table[index + 1 :]]
    assume(sum(new - old for new, old, *_ in worse) > 0)
    before, after = (
        by_length([row_of("target", i, (a * ONE // 6,), (b * ONE // 6,), tokens=(c, d, 9)) for i, (a, b, c, d) in enumerate(some)], percent)
        for some in (table, worse)
    )
    assert float(after.bound or 0) <= float(before.bound or 0) + 1e-8
    assert before.outcome is Outcome.PASS or after.outcome is Outcome.FAIL


def test_a_good_candidate_passes_every_rule() -> None:
    results = behaviour(limits(maxGainByLengthPercent=0), *case_of(policy_of(), good_rows()))
    assert [result.outcome for result in results] == [Outcome.PASS] * (1 + len(RULES))


def test_the_behaviour_of_a_suite_is_not_that_of_the_primary() -> None:
    assert {result.suite for result in behaviour(policy_of(), *case_of(policy_of(), good_rows()))} == {"target", "manners"}
    wordy = [*suite_rows("target", 40, 2, lambda i: 2, lambda i: 0), *manners_rows(28)]
    assert broken(policy_of(), wordy) == [Finding.LENGTH_RATIO]
