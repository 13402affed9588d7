"""The screen: it ends what is hopeless, never accepts, and no worse answer makes a candidate less hopeless."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from gatevalve.contracts.files import SCORE_ONE, PairRow
from gatevalve.contracts.policy import SCREEN, GatePolicySpec
from gatevalve.contracts.reasons import EntryReason, Finding, Outcome, Verdict
from gatevalve.gate.futility import hopeless
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Check
from support.gate_cases import case_of, good_rows, policy_of, row_of, screen_rows

ONE = SCORE_ONE


def policy(alpha: int = 5000, decodes: int = 2, items: int = 20) -> GatePolicySpec:
    return policy_of(decodes=decodes, futility={"items": items, "alphaBasisPoints": alpha})


def one_decode(pairs: Sequence[tuple[int, int]]) -> list[PairRow]:
    return [row_of(SCREEN, i, (candidate,), (incumbent,)) for i, (candidate, incumbent) in enumerate(pairs)]


HOPELESS: dict[str, tuple[list[PairRow], int, bool]] = {
    "a gain is not hopeless": (screen_rows(12), 5000, False),
    "a small gain is not hopeless at even odds": (screen_rows(1), 5000, False),
    "a small gain is hopeless for who asks for more": (screen_rows(1), 1000, True),
    "the same answers are hopeless": (screen_rows(0), 5000, True),
    "the same answers may still hide a gain for who wants to be sure": (screen_rows(0), 9900, False),
    "a loss is hopeless": (one_decode([(0, ONE), (0, ONE), (ONE, 0), (0, 0)] * 5), 5000, True),
    "a small loss could be chance for who wants to be sure": (one_decode([(0, ONE), (0, ONE), (ONE, 0), (0, 0)] * 5), 9900, False),
    "a great loss is no chance": (one_decode([(0, ONE)] * 15 + [(0, 0)] * 5), 9900, True),
    "a screen that must not stop does not stop": (one_decode([(0, ONE)] * 20), 10_000, False),
    "no rows say nothing": ([], 5000, False),
    "one cluster says nothing": ([row.model_copy(update={"cluster": "one"}) for row in screen_rows(0)], 5000, False),
}


@pytest.mark.parametrize("case", HOPELESS)
def test_hopeless(case: str) -> None:
    rows, alpha, expected = HOPELESS[case]
    decodes = len(rows[0].scores["candidate"]) if rows else 2
    assert hopeless(policy(alpha, decodes), rows) is expected


def test_a_missing_answer_is_the_candidates_worst() -> None:
    rows = one_decode([(ONE, 0), (0, ONE)] * 10)
    assert not hopeless(policy(5000, 1), rows)
    assert hopeless(policy(5000, 1), [row_of(SCREEN, 0, (None,), (0,)), *rows[1:]])


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=6, max_size=30)
ALPHAS = st.sampled_from([500, 2000, 4000, 5000, 6000, 8000, 9500])


@given(st.integers(0, 2**32), st.integers(60, 90), ALPHAS)
@settings(max_examples=100, deadline=None)
def test_where_values_vary_the_rule_is_the_one_sided_t_test(seed: int, items: int, alpha: int) -> None:
    pairs = [(int(new), int(old)) for new, old in np.random.default_rng(seed).integers(0, 7, (items, 2))]
    gains = np.array([(new - old) / 6 for new, old in pairs])
    assume(gains.std() > 0.35)
    p = stats.ttest_1samp(gains, 0, alternative="greater").pvalue
    assume(abs(p - alpha / 10_000) > 1e-6)
    rows = one_decode([(new * ONE // 6, old * ONE // 6) for new, old in pairs])
    assert hopeless(policy(alpha, 1), rows) is bool(p > alpha / 10_000)


@given(PAIRS, ALPHAS, st.data())
@example([(1, 0)] * 5 + [(6, 0)], 100, None)
@example([(0, 0)] * 15, 9500, None)
@settings(max_examples=200, deadline=None)
def test_a_worse_answer_never_makes_a_candidate_less_hopeless(pairs: list[tuple[int, int]], alpha: int, data: st.DataObject | None) -> None:
    index = data.draw(st.integers(0, len(pairs) - 1)) if data else len(pairs) - 1
    new, old = pairs[index]
    worse = data.draw(st.integers(0, new)) if data else 1 if new else 0
    worsened = [*pairs[:index], (worse, old), *pairs[index + 1 :]]
    before, after = (hopeless(policy(alpha, 1), one_decode([(a * ONE // 6, b * ONE // 6) for a, b in some])) for some in (pairs, worsened))
    assert after or not before


Stages = dict[str, tuple[Callable[[], list[PairRow]], str, Verdict, list[tuple[Outcome, Finding]]]]
JUDGED: Stages = {
    "a hopeless screen ends the test": (lambda: screen_rows(0), "Screen", Verdict.REJECTED, [(Outcome.FAIL, Finding.HOPELESS)]),
    "a screen that is not hopeless does not end a test": (
        lambda: screen_rows(12),
        "Screen",
        Verdict.REJECTED,
        [(Outcome.INSUFFICIENT, Finding.SCREEN_ONLY)],
    ),
    "a hopeless screen is not outweighed by a whole test": (
        lambda: [*good_rows(), *screen_rows(0)],
        "Full",
        Verdict.REJECTED,
        [(Outcome.FAIL, Finding.HOPELESS)],
    ),
    "a screen with a prospect lets the test decide": (
        lambda: [*good_rows(), *screen_rows(12)],
        "Full",
        Verdict.ACCEPTED,
        [(Outcome.PASS, Finding.OK)],
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_the_screen_can_refuse_and_never_accept(case: str) -> None:
    rows, stage, verdict, expected = JUDGED[case]
    judgement = judge(policy(), *case_of(policy(), rows(), "Screen" if stage == "Screen" else "Full"))
    told = [(result.outcome, result.finding) for result in judgement.results if result.check is Check.FUTILITY]
    assert (judgement.verdict, told) == (verdict, expected)
    assert judgement.reason is (EntryReason.GATE_PASSED if verdict is Verdict.ACCEPTED else EntryReason.PRIMARY_NOT_PASSED)


def test_a_test_that_ended_with_its_screen_is_measured_by_nothing_else() -> None:
    judgement = judge(policy(), *case_of(policy(), screen_rows(0), "Screen"))
    assert {result.check for result in judgement.results} == {Check.EVIDENCE, Check.FUTILITY, Check.AUTHORITY}


def test_the_screen_states_gain_p_and_size() -> None:
    judgement = judge(policy(), *case_of(policy(), [*good_rows(), *screen_rows(12)]))
    (result,) = (result for result in judgement.results if result.check is Check.FUTILITY)
    assert (result.statistic, result.n, float(result.bound or 1) < 0.001) == ("0.300000000", 20, True)
    assert result.sentence.startswith("On the screen the candidate gains 30.00 points on the incumbent over 20 clusters (p = 0.0000).")


def test_without_a_screen_there_is_no_look() -> None:
    judgement = judge(policy_of(), *case_of(policy_of(), good_rows()))
    assert Check.FUTILITY not in {result.check for result in judgement.results}
