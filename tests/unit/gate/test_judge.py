"""The verdict: the worst outcome wins, what people see tells nothing of sealed items, and no change for the worse helps a candidate."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.behaviour import RULES
from gatevalve.gate.disclosure import PUBLIC_REASON, public_effect
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Check, Judgement
from support.gate_cases import (
    PLAIN,
    case_of,
    drawn_rows,
    good_rows,
    guard_rows,
    manners_rows,
    must_pass_policy,
    must_rows,
    policy_of,
    row_of,
    screen_rows,
    target_rows,
    without_answer,
)
from support.thresholds import THRESHOLDS

ONE = SCORE_ONE
POLICY = policy_of()
SCREENED = policy_of(futility={"items": 20, "alphaBasisPoints": 5000})
NO_FLOOR = {"floorBasisPoints": 0}


def judged(rows: list[PairRow], policy: GatePolicySpec = POLICY, **ledger_changes: Any) -> Judgement:
    evidence, ledger = case_of(policy, rows)
    return judge(policy, evidence, replace(ledger, **ledger_changes))


def far_from_anchor(row: PairRow) -> PairRow:
    return row.model_copy(update={"scores": {**row.scores, "anchor": (ONE,) * len(row.scores["candidate"])}})


def repetitive_rows() -> list[PairRow]:
    """Replies of which the candidate's are half repetition."""
    half = PLAIN.model_copy(update={"repetition": ONE // 2})
    return [row.model_copy(update={"styles": {**(row.styles or {}), "candidate": (half,)}}) for row in manners_rows()]


def churned_guard() -> list[PairRow]:
    """A guard that loses one item in seventeen, of which the others win as many."""
    return [row_of("regression", i, (ONE if i >= 12 else 0,), (ONE if i < 188 else 0,)) for i in range(200)]


def churned_target() -> list[PairRow]:
    """A primary with a clear gain, of which every tenth item is lost nevertheless."""
    return [row_of("target", i, (0, 0), (ONE, ONE)) if i % 10 == 0 else row_of("target", i, (ONE, ONE), (0, 0)) for i in range(40)]


def guard_of_the_worse() -> list[PairRow]:
    """A guard that the incumbent has lost too, but the anchor has not."""
    return [row_of("regression", i, (ONE if i >= 12 else 0,), (ONE if i >= 12 else 0,), (ONE,)) for i in range(200)]


VERDICTS: dict[str, tuple[Callable[[], Judgement], Verdict, EntryReason, str]] = {
    "all checks pass": (lambda: judged(good_rows()), Verdict.ACCEPTED, EntryReason.GATE_PASSED, "All checks passed."),
    "no gain on the primary": (
        lambda: judged([*target_rows(3), *guard_rows(), *manners_rows()]),
        Verdict.REJECTED,
        EntryReason.PRIMARY_NOT_PASSED,
        EntryReason.PRIMARY_NOT_PASSED.sentence,
    ),
    "below the anchor on the primary": (
        lambda: judged([*map(far_from_anchor, target_rows()), *guard_rows(), *manners_rows()]),
        Verdict.REJECTED,
        EntryReason.PRIMARY_NOT_PASSED,
        EntryReason.PRIMARY_NOT_PASSED.sentence,
    ),
    "a guard lost": (
        lambda: judged([*target_rows(), *guard_rows(30), *manners_rows()]),
        Verdict.REJECTED,
        EntryReason.GUARD_REGRESSED,
        f"regression: {Finding.WORSE_THAN_MARGIN.sentence}",
    ),
    "a guard below the anchor": (
        lambda: judged([*target_rows(), *guard_of_the_worse(), *manners_rows()], policy_of(guard=NO_FLOOR)),
        Verdict.REJECTED,
        EntryReason.ANCHOR_REGRESSED,
        f"regression: {Finding.BELOW_ANCHOR.sentence}",
    ),
    "a guard below its floor": (
        lambda: judged(good_rows(), policy_of(guard={"floorBasisPoints": 9900})),
        Verdict.REJECTED,
        EntryReason.BELOW_FLOOR,
        f"regression: {Finding.BELOW_FLOOR.sentence}",
    ),
    "replies twice as long": (
        lambda: judged([*target_rows(), *guard_rows(), *manners_rows(40)]),
        Verdict.REJECTED,
        EntryReason.BEHAVIOUR_CHANGED,
        f"manners: {Finding.LENGTH_RATIO.sentence}",
    ),
    "a quarantined adapter": (
        lambda: judged(good_rows(), quarantined=frozenset({sha256(b"candidate")})),
        Verdict.REJECTED,
        EntryReason.NOT_AUTHORIZED,
        Finding.QUARANTINED.sentence,
    ),
    "replies that repeat themselves": (
        lambda: judged([*target_rows(), *guard_rows(), *repetitive_rows()]),
        Verdict.REJECTED,
        EntryReason.BEHAVIOUR_CHANGED,
        f"manners: {Finding.REPETITION.sentence}",
    ),
    "a reply that must pass and does not": (
        lambda: judged([*good_rows(), *must_rows((0,))], must_pass_policy()),
        Verdict.REJECTED,
        EntryReason.MUST_PASS_FAILED,
        f"safety: {Finding.MUST_PASS_FAILED.sentence}",
    ),
    "answers lost that others make up for": (
        lambda: judged([*target_rows(), *churned_guard(), *manners_rows()], policy_of(guard={"marginBasisPoints": 2000, **NO_FLOOR})),
        Verdict.REJECTED,
        EntryReason.CHURNED,
        f"regression: {Finding.CHURNED.sentence}",
    ),
    "answers lost on the primary that more others make up for": (
        lambda: judged([*churned_target(), *guard_rows(), *manners_rows()]),
        Verdict.REJECTED,
        EntryReason.PRIMARY_NOT_PASSED,
        EntryReason.PRIMARY_NOT_PASSED.sentence,
    ),
    "a hopeless screen": (
        lambda: judge(SCREENED, *case_of(SCREENED, screen_rows(0), "Screen")),
        Verdict.REJECTED,
        EntryReason.PRIMARY_NOT_PASSED,
        EntryReason.PRIMARY_NOT_PASSED.sentence,
    ),
    "no evidence": (lambda: judged([]), Verdict.INCONCLUSIVE, EntryReason.EVIDENCE_UNSOUND, ""),
    "no evidence of a quarantined adapter": (
        lambda: judged([], quarantined=frozenset({sha256(b"candidate")})),
        Verdict.REJECTED,
        EntryReason.NOT_AUTHORIZED,
        Finding.QUARANTINED.sentence,
    ),
    "primary and guard lost: the guard is told": (
        lambda: judged([*target_rows(0), *guard_rows(30), *manners_rows(80)]),
        Verdict.REJECTED,
        EntryReason.GUARD_REGRESSED,
        f"regression: {Finding.WORSE_THAN_MARGIN.sentence}",
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_verdict_reason_and_message(case: str) -> None:
    make, verdict, reason, message = VERDICTS[case]
    judgement = make()
    assert (judgement.verdict, judgement.reason) == (verdict, reason)
    assert judgement.message == message or not message
    assert (judgement.effect_basis_points is not None) == (verdict is Verdict.ACCEPTED)


def test_a_judgement_holds_every_check_of_every_suite_in_order() -> None:
    policy = must_pass_policy(futility=SCREENED.futility.wire())
    judgement = judged([*good_rows(), *must_rows(()), *screen_rows()], policy)
    assert [(result.check, result.suite) for result in judgement.results] == [
        *[(Check.EVIDENCE, suite) for suite in (None, None, None, "target", "regression", "manners", "safety", "screen")],
        (Check.FUTILITY, "screen"),
        (Check.SUPERIORITY, "target"),
        (Check.NONINFERIORITY, "regression"),
        (Check.ANCHORED, "target"),
        (Check.ANCHORED, "regression"),
        (Check.FLOORS, "regression"),
        (Check.FLOORS, "safety"),
        (Check.BEHAVIOUR, "target"),
        *[(Check.BEHAVIOUR, "manners")] * len(RULES),
        (Check.CHURN, "target"),
        (Check.CHURN, "regression"),
        (Check.CHURN, "safety"),
        (Check.AUTHORITY, None),
    ]


@pytest.mark.parametrize("case", VERDICTS)
def test_messages_for_people_hold_no_number(case: str) -> None:
    judgement = VERDICTS[case][0]()
    assert not any(character.isdigit() for character in judgement.message)


def test_every_finding_has_a_public_reason() -> None:
    assert set(PUBLIC_REASON) == set(Finding) - {Finding.OK}


@pytest.mark.parametrize(("mean", "published"), [(0.0874, 850), (0.0875, 900), (0.0050, 50), (0.1, 1000)])
def test_the_effect_is_published_in_steps_of_half_a_point(mean: float, published: int) -> None:
    assert public_effect(mean) == published


def test_an_accepted_candidate_publishes_its_rounded_effect_only() -> None:
    assert judged(good_rows()).effect_basis_points == 3000


def test_a_result_states_statistic_bound_and_size_in_fixed_digits() -> None:
    (superiority,) = (result for result in judged(good_rows()).results if result.check is Check.SUPERIORITY)
    assert (superiority.statistic, superiority.n) == ("0.300000000", 40)


# ---- properties

SMALL = policy_of(evidence={"maxMissingBasisPoints": 500, "minClusters": 30})
SCORES = st.sampled_from([None, 0, ONE // 3, ONE])
SEEDS = st.integers(0, 2**32 - 1)


def random_case(seed: int) -> tuple[list[PairRow], Evidence, Ledger]:
    """Evidence near the thresholds, so that both verdicts are common."""
    rng = random.Random(seed)
    gain = rng.choice([0.15, 0.3, 0.6, 0.9])
    sparse = rng.random() < 0.3
    target = [(min(1.0, 0.05 + gain * (not sparse or i < 8)), 0.05) for i in range(40)]
    guard = [(1 - rng.choice([0.0, 0.01]), 0.99) for _ in range(300)]
    rows = [*drawn_rows("target", target, 2, rng), *drawn_rows("regression", guard, 1, rng), *manners_rows(rng.choice([20, 27]))]
    return rows, *case_of(SMALL, rows)


def unsound(judgement: Judgement) -> bool:
    return any(result.check is Check.EVIDENCE and result.outcome is Outcome.INSUFFICIENT for result in judgement.results)


def test_random_cases_have_every_verdict_the_properties_need() -> None:
    verdicts = [judge(SMALL, *random_case(seed)[1:]).verdict for seed in range(25)]
    assert 5 <= verdicts.count(Verdict.ACCEPTED) <= 20


@given(SEEDS, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_order_of_rows_changes_no_digit_of_the_judgement(seed: int, shuffle: random.Random) -> None:
    rows, evidence, ledger = random_case(seed)
    shuffled = rows.copy()
    shuffle.shuffle(shuffled)
    assert judge(SMALL, Evidence.of(evidence.report, shuffled), ledger) == judge(SMALL, evidence, ledger)


@given(SEEDS, st.data())
@settings(max_examples=25, deadline=None)
def test_repeated_rows_are_unsound(seed: int, data: st.DataObject) -> None:
    rows, evidence, ledger = random_case(seed)
    again = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, max_size=5))
    judgement = judge(SMALL, Evidence.of(evidence.report, [*rows, *(rows[i] for i in again)]), ledger)
    assert judgement.verdict is not Verdict.ACCEPTED
    assert unsound(judgement)


@given(SEEDS, st.data())
@settings(max_examples=25, deadline=None)
def test_a_dropped_row_is_unsound(seed: int, data: st.DataObject) -> None:
    rows, evidence, ledger = random_case(seed)
    dropped = data.draw(st.sets(st.sampled_from(range(len(rows))), min_size=1, max_size=5))
    kept = [row for i, row in enumerate(rows) if i not in dropped]
    judgement = judge(SMALL, Evidence.of(evidence.report, kept), ledger)
    assert judgement.verdict is not Verdict.ACCEPTED
    assert unsound(judgement)


@given(SEEDS, st.data())
@settings(max_examples=40, deadline=None)
def test_a_dropped_arm_or_answer_is_unsound(seed: int, data: st.DataObject) -> None:
    rows, evidence, ledger = random_case(seed)
    index = data.draw(st.sampled_from(range(len(rows))))
    fields = ["scores", "tokens", "finishes", "texts", "failures", *(["styles"] if rows[index].styles else [])]
    field = data.draw(st.sampled_from(fields))
    arms = dict(getattr(rows[index], field))
    arm = data.draw(st.sampled_from(sorted(arms)))
    if data.draw(st.booleans()):
        del arms[arm]
    else:
        arms[arm] = arms[arm][1:]
    broken = [row.model_copy(update={field: arms}) if i == index else row for i, row in enumerate(rows)]
    judgement = judge(SMALL, Evidence.of(evidence.report, broken), ledger)
    assert judgement.verdict is not Verdict.ACCEPTED
    assert unsound(judgement)


@given(SEEDS, st.data())
@settings(max_examples=60, deadline=None)
def test_worse_answers_of_the_candidate_never_make_it_accepted(seed: int, data: st.DataObject) -> None:
    rows, evidence, ledger = random_case(seed)
    before = judge(SMALL, evidence, ledger)
    for index in data.draw(st.lists(st.integers(0, 339), min_size=1, max_size=6)):
        rows[index] = worsened(rows[index], data.draw(SCORES))
    after = judge(SMALL, Evidence.of(evidence.report, rows), ledger)
    assert after.verdict is not Verdict.ACCEPTED or before.verdict is Verdict.ACCEPTED


def worsened(row: PairRow, score: int | None) -> PairRow:
    if score is None:
        return reduce(lambda whole, decode: without_answer(whole, "candidate", decode), range(len(row.scores["candidate"])), row)
    scores = tuple(old if old is None else min(old, score) for old in row.scores["candidate"])
    return row.model_copy(update={"scores": {**row.scores, "candidate": scores}})


TIGHTER: dict[str, GatePolicySpec] = {
    "a smaller alpha": policy_of(round={"alphaBasisPoints": 100, "maxTests": 10}),
    "a smaller guard alpha": policy_of(guardAlphaBasisPoints=10),
    "a smaller margin": policy_of(guard={"marginBasisPoints": 250}),
    "a higher floor": policy_of(guard={"floorBasisPoints": 9750}),
    "a narrower range of lengths": policy_of(behaviour={**THRESHOLDS["behaviour"], "lengthRatioPercent": {"min": 90, "max": 120}}),
    "fewer answers lost": policy_of(behaviour={**THRESHOLDS["behaviour"], "maxExcessNegativeFlipBasisPoints": 50}),
    "less divergence": policy_of(behaviour={**THRESHOLDS["behaviour"], "maxKlMillinatsPerToken": 17}),
    "no missing answers": policy_of(evidence={"maxMissingBasisPoints": 0, "minClusters": 30}),
    "more clusters": policy_of(items=41, evidence={"maxMissingBasisPoints": 500, "minClusters": 41}),
}


@pytest.mark.parametrize("tightened", TIGHTER)
def test_a_tighter_threshold_never_makes_a_candidate_accepted(tightened: str) -> None:
    fewer = 0
    for seed in range(25):
        _, evidence, ledger = random_case(seed)
        assert evidence.report is not None
        policy, digest = TIGHTER[tightened], TIGHTER[tightened].digest_of()
        report = evidence.report.model_copy(update={"policy_digest": digest})
        before = judge(SMALL, evidence, ledger).verdict is Verdict.ACCEPTED
        after = judge(policy, replace(evidence, report=report), replace(ledger, policy_digest=digest)).verdict is Verdict.ACCEPTED
        assert before or not after
        fewer += before and not after
    assert fewer or tightened == "no missing answers"


def test_two_thousand_items_of_three_answers_and_three_arms_are_judged_within_a_second() -> None:
    policy, rng = policy_of(items=2000, decodes=3), random.Random(0)
    rows = [*drawn_rows("target", [(0.6, 0.5)] * 2000, 3, rng), *guard_rows(3, 2000), *manners_rows()]
    evidence, ledger = case_of(policy, rows)
    started = time.process_time()
    assert judge(policy, evidence, ledger).verdict is Verdict.ACCEPTED
    assert time.process_time() - started < 1
