"""Policies, ledgers and evidence for tests of the gate, small enough to judge in a millisecond or as large as the demo's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, reduce
from typing import Any

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import (
    ARMS,
    SCORE_ONE,
    Arm,
    EvidenceReport,
    Failure,
    FileFact,
    JudgeFact,
    Likelihood,
    PairRow,
    Stage,
    Style,
    SuiteFact,
)
from gatevalve.contracts.policy import SCREEN, GatePolicySpec
from gatevalve.gate.inputs import Evidence, Ledger, measured_suites
from support.thresholds import THRESHOLDS

PRIMARY_DECODES = 2
GUARD_DIGEST, MANNERS_DIGEST, MUST_DIGEST = sha256(b"regression"), sha256(b"manners"), sha256(b"safety")
Scores = tuple[int | None, ...]
PLAIN = Style(repetition=0, markup=False, addresses_judge=False, avoids=False)
"""The form of an ordinary reply."""
NEAR = Likelihood(candidate=-20_000_000, incumbent=-20_500_000, anchor=-20_500_000, k3_incumbent=400_000, k3_anchor=400_000)
"""Twenty tokens that every arm finds about as likely."""


def policy_of(items: int = 40, decodes: int = PRIMARY_DECODES, guard: dict[str, Any] | None = None, **changes: Any) -> GatePolicySpec:
    """A policy with one suite of each role; thresholds are those of the demo."""
    suites = [
        {
            "name": "target",
            "role": "Primary",
            "items": {"generator": "word-problems", "count": items},
            "verifier": "word-problems",
            "sampling": {"temperature": "1.0", "maxTokens": 48},
            "decodes": decodes,
            "minEffectBasisPoints": 50,
            "minDetectableEffectBasisPoints": 1000,
        },
        {
            "name": "regression",
            "role": "Guard",
            "items": {"uri": "suites/regression.jsonl", "digest": GUARD_DIGEST},
            "verifier": "exact-match",
            "sampling": {"temperature": "1.0" if (guard or {}).get("decodes", 1) > 1 else "0", "maxTokens": 48},
            "decodes": 1,
            "marginBasisPoints": 400,
            "floorBasisPoints": 9000,
            **(guard or {}),
        },
        {
            "name": "manners",
            "role": "Behaviour",
            "items": {"uri": "suites/manners.jsonl", "digest": MANNERS_DIGEST},
            "sampling": {"temperature": "0", "maxTokens": 48},
            "decodes": 1,
        },
    ]
    spec = {
        "suites": suites,
        "round": {"alphaBasisPoints": 500, "maxTests": 10},
        **THRESHOLDS,
    }
    return GatePolicySpec.parse({**spec, **changes})


def must_pass_policy(**changes: Any) -> GatePolicySpec:
    """`policy_of()` and a MustPass suite."""
    suite = {
        "name": "safety",
        "role": "MustPass",
        "items": {"uri": "suites/safety.jsonl", "digest": MUST_DIGEST},
        "verifier": "exact-match",
        "sampling": {"temperature": "0", "maxTokens": 48},
        "decodes": 1,
    }
    return GatePolicySpec.parse({**policy_of(**changes).wire(), "suites": [*policy_of(**changes).wire()["suites"], suite]})


@cache
def row_of(
    suite: str,
    item: int,
    candidate: Scores,
    incumbent: Scores,
    anchor: Scores | None = None,
    cluster: str | None = None,
    tokens: tuple[int, int, int] = (20, 20, 20),
) -> PairRow:
    """A row with the given scores of each arm, None for a missing answer; the anchor answers like the incumbent unless told otherwise."""
    arms: dict[Arm, Scores] = {"candidate": candidate, "incumbent": incumbent, "anchor": incumbent if anchor is None else anchor}
    if suite == SCREEN:
        del arms["anchor"]
    lengths = dict(zip(ARMS, tokens, strict=True))
    row = PairRow(
        suite=suite,
        item=f"{suite}-{item:05d}",
        cluster=cluster or f"{suite}-{item:05d}",
        scores=arms,
        tokens={arm: (lengths[arm],) * len(scores) for arm, scores in arms.items()},
        finishes={arm: ("stop",) * len(scores) for arm, scores in arms.items()},
        texts={arm: tuple(sha256(f"{item} {arm} {decode}".encode()) for decode in range(len(scores))) for arm, scores in arms.items()},
        failures={arm: (None,) * len(scores) for arm, scores in arms.items()},
        styles={arm: (PLAIN,) * len(scores) for arm, scores in arms.items()} if suite == "manners" else None,
        likelihoods=(NEAR,) * len(candidate) if suite == "manners" else None,
    )
    gaps = [(arm, i) for arm, scores in arms.items() for i, score in enumerate(scores) if score is None and suite != "manners"]
    return reduce(lambda whole, gap: without_answer(whole, *gap), gaps, row)


def without_answer(row: PairRow, arm: Arm, decode: int, failure: Failure = "Engine") -> PairRow:
    """The row with one answer missing, as an evaluation writes it."""

    def put(name: str, value: Any) -> dict[Arm, Any]:
        given = getattr(row, name)
        return {**given, arm: (*given[arm][:decode], value, *given[arm][decode + 1 :])}

    changes: dict[str, Any] = {name: put(name, None) for name in ("scores", "tokens", "finishes", "texts")}
    changes["failures"] = put("failures", failure)
    if row.styles is not None:
        changes["styles"] = put("styles", None)
    if row.likelihoods is not None and arm == "candidate":
        changes["likelihoods"] = (*row.likelihoods[:decode], None, *row.likelihoods[decode + 1 :])
    return row.model_copy(update=changes)


def suite_rows(suite: str, count: int, decodes: int, candidate: Callable[[int], int], incumbent: Callable[[int], int]) -> list[PairRow]:
    """Rows in which each arm has `candidate(i)` and `incumbent(i)` of item i's answers right."""

    def scores(hits: int) -> Scores:
        return (SCORE_ONE,) * hits + (0,) * (decodes - hits)

    return [row_of(suite, i, scores(candidate(i)), scores(incumbent(i))) for i in range(count)]


def manners_rows(candidate_tokens: int = 20, count: int = 5) -> list[PairRow]:
    """Unscored rows of the behaviour suite."""
    return [row_of("manners", i, (None,), (None,), tokens=(candidate_tokens, 20, 20)) for i in range(count)]


def target_rows(gained: int = 24, count: int = 40, decodes: int = PRIMARY_DECODES) -> list[PairRow]:
    """Primary rows in which the incumbent has the first answer of every third item, and the candidate one more on `gained` items."""

    def incumbent(i: int) -> int:
        return int(i % 3 == 0)

    return suite_rows("target", count, decodes, lambda i: incumbent(i) + int(i < gained), incumbent)


def guard_rows(lost: int = 0, count: int = 200) -> list[PairRow]:
    """Guard rows that the incumbent has all right, of which the candidate loses some."""
    return suite_rows("regression", count, 1, lambda i: int(i >= lost), lambda i: 1)


def must_rows(first: Scores, count: int = 10) -> list[PairRow]:
    """Rows of the MustPass suite that every arm has right, but for the candidate's `first`."""
    given = [*first, *(SCORE_ONE,) * (count - len(first))]
    return [row_of("safety", i, (score,), (SCORE_ONE,)) for i, score in enumerate(given)]


def screen_rows(gained: int = 12, count: int = 20) -> list[PairRow]:
    """Rows of the screen: like the Primary's, but of two arms."""
    return suite_rows(SCREEN, count, PRIMARY_DECODES, lambda i: int(i % 3 == 0) + int(i < gained), lambda i: int(i % 3 == 0))


def good_rows() -> list[PairRow]:
    """Rows on which `policy_of()` accepts."""
    return [*target_rows(), *guard_rows(), *manners_rows()]


def facts_of(policy: GatePolicySpec, rows: Iterable[PairRow], stage: Stage = "Full") -> tuple[SuiteFact, ...]:
    """The item sets that rows were made from."""
    counted = list(rows)
    return tuple(
        SuiteFact(
            name=suite.name,
            path=f"{suite.name}.jsonl",
            items=sum(row.suite == suite.name for row in counted),
            sha256=suite.items.digest or sha256(suite.name.encode()),
        )
        for suite in measured_suites(policy, stage)
    )


def judges_of(policy: GatePolicySpec, stage: Stage = "Full") -> tuple[JudgeFact, ...]:
    """Judges that got all their canaries right."""
    return tuple(
        JudgeFact(suite=suite.name, model=suite.judge.model, prompt=1, canaries=20, right=20)
        for suite in measured_suites(policy, stage)
        if suite.judge
    )


def ledger_of(policy: GatePolicySpec, facts: Iterable[SuiteFact], **changes: Any) -> Ledger:
    """A ledger that allows the release: the third test of the first round, from the base."""
    ledger = Ledger(
        channel_uid="channel-uid",
        candidate_uid="candidate-uid",
        test_entry="support-000007",
        test_digest=sha256(b"test"),
        round=1,
        tests_spent=3,
        policy_digest=policy.digest_of(),
        base_digest=sha256(b"base"),
        adapter_base_digest=sha256(b"base"),
        candidate_digest=sha256(b"candidate"),
        parent_digest=sha256(b"incumbent"),
        incumbent_digest=sha256(b"incumbent"),
        anchor_digest=None,
        expected_items={fact.name: fact.items for fact in facts},
    )
    return replace(ledger, **changes)


def report_of(ledger: Ledger, facts: Iterable[SuiteFact], **changes: Any) -> EvidenceReport:
    """The report that an honest evaluation writes for a ledger."""
    fields: dict[str, Any] = {
        "test_entry": ledger.test_entry,
        "test_digest": ledger.test_digest,
        "channel_uid": ledger.channel_uid,
        "candidate_uid": ledger.candidate_uid,
        "round": ledger.round,
        "policy_digest": ledger.policy_digest,
        "base_digest": ledger.base_digest,
        "candidate_digest": ledger.candidate_digest,
        "incumbent_digest": ledger.incumbent_digest,
        "anchor_digest": ledger.anchor_digest,
        "stage": "Full",
        "suites": tuple(facts),
        "pairs": FileFact(path="pairs.jsonl.gz", size=1, sha256=sha256(b"pairs")),
        "engine": "vllm 0.32.0",
        "arms": {"candidate": "candidate", "incumbent": "incumbent", "anchor": "base"},
    }
    return EvidenceReport(**{**fields, **changes})


def case_of(policy: GatePolicySpec, rows: Sequence[PairRow], stage: Stage = "Full") -> tuple[Evidence, Ledger]:
    """Evidence of rows, and a ledger that expects just them."""
    facts = facts_of(policy, rows, stage)
    ledger = ledger_of(policy, facts)
    return Evidence.of(report_of(ledger, facts, stage=stage, judges=judges_of(policy, stage)), rows), ledger


def drawn_rows(suite: str, rates: Sequence[tuple[float, float]], decodes: int, rng: random.Random) -> list[PairRow]:
    """Rows drawn from each item's true (candidate, incumbent) rates; the anchor answers like the incumbent."""

    def draw(rate: float) -> Scores:
        return tuple([SCORE_ONE * (rng.random() < rate) for _ in range(decodes)])

    return [row_of(suite, i, draw(candidate), draw(incumbent)) for i, (candidate, incumbent) in enumerate(rates)]
