"""What no evidence and no policy can do to the gate, over evidence drawn near every threshold and over the bytes that the store holds."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.canonical import canonical_json, sha256
from gatevalve.contracts.errors import ContractError, GatevalveError
from gatevalve.contracts.files import SCORE_ONE, Arm, EvidenceReport, PairRow
from gatevalve.contracts.names import evidence_dir
from gatevalve.contracts.policy import SCREEN, GatePolicySpec
from gatevalve.contracts.reasons import Verdict
from gatevalve.gate.compare import POLICY, SUITE, Relation, compare
from gatevalve.gate.inputs import Evidence, expected_items
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Check, Judgement
from gatevalve.gate.samples import candidate_rate, paired_gain
from gatevalve.gate.statistics import ClusteredMean
from gatevalve.io.store import Area, SealedEvidence
from support.drawn_cases import drawn_case, drawn_policy
from support.gate_cases import (
    case_of,
    guard_rows,
    manners_rows,
    must_pass_policy,
    must_rows,
    screen_rows,
    target_rows,
    without_answer,
)

SCREENED, UNSCREENED = drawn_policy(), drawn_policy(screen=0)
SEEDS = 24
CASES = st.integers(0, SEEDS - 1)


def judged(rows: Sequence[PairRow], policy: GatePolicySpec = SCREENED) -> Judgement:
    evidence, ledger = case_of(policy, rows)
    return judge(
        policy, evidence, replace(ledger, expected_items=expected_items(policy, evidence.report.suites if evidence.report else ()))
    )


@cache
def verdict(seed: int, policy: GatePolicySpec = SCREENED) -> Verdict:
    return judged(measured_under(policy, seed), policy).verdict


def measured_under(policy: GatePolicySpec, seed: int) -> list[PairRow]:
    return [row for row in drawn_case(seed) if row.suite != SCREEN or policy.screen is not None]


def judgement_bytes(judgement: Judgement) -> bytes:
    return canonical_json(asdict(judgement))


@pytest.mark.parametrize("policy", [SCREENED, UNSCREENED], ids=["with a screen", "without a screen"])
def test_drawn_cases_are_accepted_and_rejected_both_often_enough_to_say_something(policy: GatePolicySpec) -> None:
    verdicts = [verdict(seed, policy) for seed in range(SEEDS)]
    assert 6 <= verdicts.count(Verdict.ACCEPTED) <= 18
    assert set(verdicts) == {Verdict.ACCEPTED, Verdict.REJECTED}


# ---- the same evidence, told otherwise

MEANS = GatePolicySpec.parse({**SCREENED.wire(), "suites": [suite for suite in SCREENED.wire()["suites"] if suite["name"] != "regression"]})
"""Without the suite whose losses are counted: items that share a cluster are no independent counts, so it would be read as a mean."""


def repeated(row: PairRow, times: int = 5) -> Iterator[PairRow]:
    for copy in range(times):
        yield row.model_copy(update={"item": f"{row.item}-{copy}"})


def facts(mean: ClusteredMean) -> list[float]:
    bounds = [bound(alpha) for bound in (mean.lower_bound, mean.cautious_lower_bound) for alpha in (0.0005, 0.005, 0.01, 0.3)]
    return [mean.mean, mean.standard_error, mean.p_greater(0.0), *bounds]


@given(CASES)
@settings(max_examples=15, deadline=None)
def test_every_item_five_times_over_in_its_cluster_moves_no_mean_no_error_no_p_and_no_bound(seed: int) -> None:
    rows = [row for row in drawn_case(seed) if row.suite in ("target", "dialogue")]
    once, often = (Evidence.of(None, given) for given in (rows, [copy for row in rows for copy in repeated(row)]))
    for suite in (SCREENED.suite("target"), SCREENED.suite("dialogue")):
        for measure in (lambda e, s: paired_gain(e, s, "incumbent"), lambda e, s: paired_gain(e, s, "anchor"), candidate_rate):
            assert facts(measure(often, suite)) == pytest.approx(facts(measure(once, suite)), abs=2e-9)


@given(CASES)
@settings(max_examples=15, deadline=None)
def test_every_item_five_times_over_in_its_cluster_moves_no_verdict_and_no_finding(seed: int) -> None:
    rows = [row for row in drawn_case(seed) if row.suite != "regression"]
    once, often = (judge(MEANS, *case_of(MEANS, given)) for given in (rows, [copy for row in rows for copy in repeated(row)]))
    assert (often.verdict, often.reason) == (once.verdict, once.reason)
    assert [(r.check, r.suite, r.finding) for r in often.results] == [(r.check, r.suite, r.finding) for r in once.results]


def swapped(row: PairRow) -> PairRow:
    other: dict[Arm, Arm] = {"candidate": "incumbent", "incumbent": "candidate", "anchor": "anchor"}
    fields = ("scores", "tokens", "finishes", "texts", "failures")
    return row.model_copy(update={field: {other[arm]: given for arm, given in getattr(row, field).items()} for field in fields})


def complete(row: PairRow) -> bool:
    return not any(failure for failures in row.failures.values() for failure in failures)


COMPLETE = [seed for seed in range(SEEDS) if all(map(complete, drawn_case(seed)))]
"""A missing answer is the worst for whoever is the candidate, so that it cannot change sides."""


@given(st.sampled_from(COMPLETE))
@settings(max_examples=15, deadline=None)
def test_arms_that_change_places_negate_the_effect_and_are_never_both_accepted(seed: int) -> None:
    rows = drawn_case(seed)
    there, back = judged(rows), judged([swapped(row) for row in rows])
    effect, opposite = (next(r for r in judgement.results if r.check is Check.SUPERIORITY).statistic for judgement in (there, back))
    assert float(effect or "nan") == -float(opposite or "nan") != 0
    assert Verdict.ACCEPTED not in (there.verdict, back.verdict) or there.verdict is not back.verdict


@given(CASES, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_rows_in_another_order_give_the_same_bytes(seed: int, order: random.Random) -> None:
    shuffled = list(drawn_case(seed))
    order.shuffle(shuffled)
    assert judgement_bytes(judged(shuffled)) == judgement_bytes(judged(drawn_case(seed)))


# ---- nothing for the worse helps

SCORED = [index for index, row in enumerate(drawn_case(0)) if row.suite != "manners"]
WORSE = st.tuples(st.sampled_from(SCORED), st.integers(0, 1), st.sampled_from([0, SCORE_ONE // 3, None]))


def worsened(row: PairRow, decode: int, score: int | None) -> PairRow:
    given = list(row.scores["candidate"])
    decode = min(decode, len(given) - 1)
    if given[decode] is None:
        return row
    if score is None:
        return without_answer(row, "candidate", decode, "Verifier")
    given[decode] = min(given[decode] or 0, score)
    return row.model_copy(update={"scores": {**row.scores, "candidate": tuple(given)}})


@given(CASES, st.lists(WORSE, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_worse_answers_of_the_candidate_never_make_it_accepted(seed: int, changes: list[tuple[int, int, int | None]]) -> None:
    rows = list(drawn_case(seed))
    for index, decode, score in changes:
        rows[index] = worsened(rows[index], decode, score)
    assert judged(rows, SCREENED).verdict is not Verdict.ACCEPTED or verdict(seed, SCREENED) is Verdict.ACCEPTED


def lost_instead_of_wrong(rows: Sequence[PairRow], suite: str, most: int) -> Iterator[PairRow]:
    """The first few wrong answers of the candidate to a suite are missing instead."""
    left = most
    for row in rows:
        wrong = [decode for decode, score in enumerate(row.scores["candidate"]) if score == 0 and row.suite == suite]
        for decode in wrong[:left]:
            row = without_answer(row, "candidate", decode)
        left -= len(wrong[:left])
        yield row


@pytest.mark.parametrize(("suite", "most"), [("target", 5), ("dialogue", 5), (SCREEN, 2), ("regression", 6)])
def test_a_wrong_answer_that_goes_missing_instead_helps_nobody(suite: str, most: int) -> None:
    for seed in range(SEEDS):
        rows = list(lost_instead_of_wrong(drawn_case(seed), suite, most))
        assert judged(rows, SCREENED).verdict is not Verdict.ACCEPTED or verdict(seed, SCREENED) is Verdict.ACCEPTED


@dataclass(frozen=True)
class Threshold:
    """One ordered field of a policy, or of one of its suites."""

    field: str
    suite: str | None

    def __str__(self) -> str:
        return f"{self.suite or 'policy'} {self.field}"


NO_VERDICT = {"sentinels.everyCandidates"}
"""Moves no verdict: it says when the gate itself is probed."""
THRESHOLDS = [Threshold(line.field, None) for line in POLICY if line.rank and line.field not in NO_VERDICT] + [
    Threshold(line.field, suite.name) for suite in SCREENED.suites for line in SUITE if line.rank and line.value(suite) is not None
]
VALUES = (*range(12), 20, 25, 36, 50, 60, 61, 90, 99, 100, 101, 105, 200, 400, 900, 1_000, 1_001, 3_000, 9_000, 9_950, 10_000, 999_999)
TRIED = range(12)


def changed(policy: GatePolicySpec, threshold: Threshold, value: int) -> GatePolicySpec | None:
    """The policy with another value; None when there is no such policy."""
    wire = policy.wire()
    place: dict[str, Any] = next((suite for suite in wire["suites"] if suite["name"] == threshold.suite), wire)
    *path, last = threshold.field.split(".")
    for part in path:
        place = place[part]
    if last not in place:
        raise LookupError(f"{threshold} is written otherwise in a policy")
    place[last] = value
    try:
        return GatePolicySpec.parse(wire)
    except ContractError:
        return None


def tightened(policy: GatePolicySpec, threshold: Threshold) -> list[GatePolicySpec]:
    """Every stricter policy that differs in one threshold."""
    tried = (changed(policy, threshold, value) for value in VALUES)
    return [found for found in tried if found is not None and compare(policy, found) is Relation.STRICTER]


def test_every_ordered_field_of_a_suite_is_tried_on_some_suite() -> None:
    assert {threshold.field for threshold in THRESHOLDS if threshold.suite} == {line.field for line in SUITE if line.rank}


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=str)
def test_a_tighter_threshold_accepts_less_and_never_more(threshold: Threshold) -> None:
    policies = [(policy, found) for policy in (SCREENED, UNSCREENED) if (found := tightened(policy, threshold))]
    assert policies, "no stricter policy was found: VALUES has none for this threshold"
    bites = False
    for policy, stricter in policies[:1]:
        for seed in TRIED:
            for tighter in {stricter[0], stricter[-1]}:
                after = judged(measured_under(policy, seed), tighter).verdict is Verdict.ACCEPTED
                before = verdict(seed, policy) is Verdict.ACCEPTED
                assert before or not after
                bites = bites or (before and not after)
    assert bites


# ---- nothing that is gone is a pass

SMALL = must_pass_policy(
    items=32,
    guard={"marginBasisPoints": 2000, "floorBasisPoints": 0},
    futility={"items": 6, "alphaBasisPoints": 5000},
)
ROWS = (*target_rows(count=32), *screen_rows(4, 6), *guard_rows(0, 32), *must_rows((), 3), *manners_rows(count=2))
Place = tuple[str | int, ...]


class Stored:
    """Evidence in the sealed area, as an evaluation leaves it and the operator reads it."""

    def __init__(self, root: Path) -> None:
        evidence, self._ledger = case_of(SMALL, ROWS)
        assert evidence.report is not None
        self.report: dict[str, Any] = evidence.report.wire()
        self.rows: list[dict[str, Any]] = [json.loads(row.canonical()) for row in ROWS]
        self._root = root
        self.folder = root / evidence_dir(self._ledger.channel_uid, self._ledger.test_entry)

    def write(self, report: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        """Both files, the report naming the table's bytes as they are; a report that names no file keeps to that."""
        packed = gzip.compress(b"".join(canonical_json(row) + b"\n" for row in rows), mtime=0)
        if "sha256" in report.get("pairs", {}):
            report = {**report, "pairs": {**report["pairs"], "sha256": sha256(packed)}}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "pairs.jsonl.gz").write_bytes(packed)
        (self.folder / "report.json").write_bytes(canonical_json(report))
        self.digest = sha256(canonical_json(report))

    def accepted(self) -> bool:
        """Whether what lies there is read and accepted."""
        store = SealedEvidence(Area(f"file://{self._root}"))
        try:
            found = asyncio.run(store.recorded(self._ledger.channel_uid, self._ledger.test_entry, self.digest))
        except GatevalveError:
            return False
        ledger = replace(self._ledger, expected_items=expected_items(SMALL, found.report.suites))
        return judge(SMALL, Evidence.of(found.report, found.rows), ledger).verdict is Verdict.ACCEPTED


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    made = Stored(tmp_path)
    made.write(made.report, made.rows)
    assert made.accepted()
    return made


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every key and every element, however deep."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*at, key)
        yield from places(part, (*at, key))


def without(value: Any, place: Place) -> Any:
    copy = json.loads(json.dumps(value))
    *path, last = place
    inside = copy
    for part in path:
        inside = inside[part]
    del inside[last]
    return copy


@pytest.mark.parametrize("name", ["report.json", "pairs.jsonl.gz"])
def test_without_a_file_nothing_is_accepted(stored: Stored, name: str) -> None:
    (stored.folder / name).unlink()
    assert not stored.accepted()


def test_without_a_row_nothing_is_accepted(stored: Stored) -> None:
    for index in range(0, len(stored.rows), 5):
        stored.write(stored.report, [*stored.rows[:index], *stored.rows[index + 1 :]])
        assert not stored.accepted(), stored.rows[index]["item"]


@pytest.mark.parametrize("suite", ["target", SCREEN, "regression", "safety", "manners"])
def test_without_any_one_field_of_a_row_nothing_is_accepted(stored: Stored, suite: str) -> None:
    index = next(index for index, row in enumerate(stored.rows) if row["suite"] == suite)
    for place in places(stored.rows[index]):
        stored.write(stored.report, [*stored.rows[:index], without(stored.rows[index], place), *stored.rows[index + 1 :]])
        assert not stored.accepted(), place


def test_without_any_one_field_of_the_report_nothing_is_accepted(stored: Stored) -> None:
    for place in places(stored.report):
        report = without(stored.report, place)
        stored.write(report, stored.rows)
        assert says_the_same(report, stored.report) or not stored.accepted(), place


def says_the_same(report: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether what is gone was what its absence means: the version that all files have, no judges where no suite is judged."""
    try:
        return EvidenceReport.parse(report) == EvidenceReport.parse(before)
    except ContractError:
        return False
