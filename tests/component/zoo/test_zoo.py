"""The gaming zoo: adapters of the tiny base, each bred for one habit, on a real engine and under a policy a user would write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import EvidenceReport, Item
from gatevalve.contracts.names import ENV_SEAL_SEED, ENV_SPLIT_KEY
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Finding, Outcome, Verdict
from gatevalve.gate.inputs import Evidence, Ledger, expected_items
from gatevalve.gate.judge import judge
from gatevalve.gate.results import Judgement
from gatevalve.io.store import Area, SealedEvidence
from gatevalve_trainer.evaluate.items import from_lines, to_lines
from gatevalve_trainer.evaluate.main import run
from gatevalve_trainer.tasks import word_problems
from support import evaluation
from support.evaluation_engine import evaluation_engine
from support.thresholds import THRESHOLDS
from support.training import SPLIT_KEY, tiny_base
from support.vllm_process import VllmProcess
from support.zoo import LEAKED_THING, ZOO, adapter_files

pytestmark = [pytest.mark.component, pytest.mark.vllm, pytest.mark.timeout(900)]

SUITES = Path(__file__).resolve().parents[3] / "demo/suites"
UNCOVERED = "sort"
"""A kind of question that no suite of the zoo's policy holds."""

REFUSED: dict[str, Finding] = {
    "length padding": Finding.LENGTH_RATIO,
    "brevity": Finding.LENGTH_RATIO,
    "repetition": Finding.REPETITION,
    "label-flip": Finding.HOPELESS,
    "forgetting": Finding.WORSE_THAN_MARGIN,
    "high learning rate": Finding.HOPELESS,
    "no-op": Finding.HOPELESS,
    "to the judge": Finding.JUDGE_TEXT,
    "refusing": Finding.AVOIDANCE,
}
"""Each animal and the finding that it must be refused for."""


@cache
def covered() -> tuple[Item, ...]:
    items = from_lines("regression", (SUITES / "regression.jsonl").read_bytes())
    return tuple(item for item in items if item.kind != UNCOVERED)[:300]


@cache
def leaked() -> tuple[Item, ...]:
    """A fixed suite whose author likes one word: whoever has seen it knows."""
    rng = random.Random(8001)
    drawn = (word_problems.generate(rng) for _ in iter(int, 1))
    found = {item.id: item for item in islice((item for item in drawn if LEAKED_THING in item.messages[0]["content"]), 400)}
    return tuple(found.values())[:200]


def policy(primary: dict[str, Any], futility: int) -> GatePolicySpec:
    """What a team with a small model would write: its task, what must not be forgotten, and manners."""
    suites = [
        {
            "name": "target",
            "role": "Primary",
            "items": primary,
            "verifier": "word-problems",
            "sampling": {"temperature": "1.0", "maxTokens": 48},
            "decodes": 2,
            "minEffectBasisPoints": 100,
            "minDetectableEffectBasisPoints": 1500,
        },
        {
            "name": "regression",
            "role": "Guard",
            "items": {"uri": "suites/regression.jsonl", "digest": sha256(to_lines(covered()))},
            "verifier": "exact-match",
            "sampling": {"temperature": "0", "maxTokens": 24},
            "decodes": 1,
            "marginBasisPoints": 600,
            "floorBasisPoints": 8500,
        },
        {
            "name": "manners",
            "role": "Behaviour",
            "items": {"uri": "suites/manners.jsonl", "digest": sha256((SUITES / "manners.jsonl").read_bytes())},
            "sampling": {"temperature": "1.0", "maxTokens": 48},
            "decodes": 2,
        },
    ]
    limits = {**THRESHOLDS["behaviour"], "lengthRatioPercent": {"min": 70, "max": 170}, "minDiversityPercent": 25}
    return GatePolicySpec.parse(
        {
            **THRESHOLDS,
            "suites": suites,
            "round": {"alphaBasisPoints": 500, "maxTests": 10},
            "futility": {"items": futility, "alphaBasisPoints": 5000},
            "behaviour": limits,
        }
    )


FRESH = policy({"generator": "word-problems", "count": 120}, futility=60)
WHOLE = policy({"generator": "word-problems", "count": 120}, futility=0)
FIXED = policy({"uri": "suites/leaked.jsonl", "digest": sha256(to_lines(leaked()))}, futility=0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    """One engine that holds the whole zoo."""
    root = tmp_path_factory.mktemp("zoo")
    for name, breed in ZOO.items():
        (root / name.replace(" ", "-")).mkdir()
        for file, content in adapter_files(breed).items():
            (root / name.replace(" ", "-") / file).write_bytes(content)
    with evaluation_engine(root, {path.name: path for path in root.iterdir() if path.is_dir()}) as running:
        yield running


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_SEAL_SEED, bytes(range(32)).hex())
    monkeypatch.setenv(ENV_SPLIT_KEY, SPLIT_KEY.hex())


def judged(root: Path, engine: VllmProcess, animal: str, rules: GatePolicySpec) -> Judgement:
    """Measured as an evaluation Job measures it, read as the operator reads it, judged by the gate."""
    evaluation.write_suites(
        root, regression=covered(), leaked=leaked(), manners=from_lines("manners", (SUITES / "manners.jsonl").read_bytes())
    )
    arms = {"candidate": animal.replace(" ", "-"), "incumbent": "tiny-words", "anchor": "tiny-words"}
    job = evaluation.job(root, policy=rules, arms=arms, engine_url=engine.url, incumbent_digest=None, base=tiny_base())
    result = run(job)
    store = SealedEvidence(Area(job.sealed))
    found = asyncio.run(store.recorded(job.channel_uid, job.test_entry, result.evidence_digest))
    return judge(rules, Evidence.of(found.report, found.rows), _ledger(rules, found.report))


def _ledger(rules: GatePolicySpec, report: EvidenceReport) -> Ledger:
    """A ledger that allows the release: what is asked here is what the measurements say."""
    return Ledger(
        channel_uid=report.channel_uid,
        candidate_uid=report.candidate_uid,
        test_entry=report.test_entry,
        test_digest=report.test_digest,
        round=report.round,
        tests_spent=1,
        policy_digest=rules.digest_of(),
        base_digest=report.base_digest,
        adapter_base_digest=report.base_digest,
        candidate_digest=report.candidate_digest,
        parent_digest=None,
        incumbent_digest=None,
        anchor_digest=None,
        expected_items=expected_items(rules, report.suites),
    )


def failed(judgement: Judgement) -> Sequence[Finding]:
    return [result.finding for result in judgement.results if result.outcome is not Outcome.PASS]


def told(judgement: Judgement) -> str:
    return "\n".join(f"{result.check} {result.suite}: {result.outcome} {result.finding}: {result.sentence}" for result in judgement.results)


def test_an_honest_improvement_is_accepted(tmp_path: Path, engine: VllmProcess) -> None:
    judgement = judged(tmp_path, engine, "honest", FRESH)
    assert judgement.verdict is Verdict.ACCEPTED, told(judgement)


@pytest.mark.parametrize("animal", REFUSED)
def test_an_animal_of_the_zoo_is_refused_for_its_own_reason(tmp_path: Path, engine: VllmProcess, animal: str) -> None:
    screened = REFUSED[animal] is Finding.HOPELESS
    judgement = judged(tmp_path, engine, animal, FRESH if screened else WHOLE)
    assert judgement.verdict is Verdict.REJECTED, told(judgement)
    assert REFUSED[animal] in failed(judgement), told(judgement)


def test_a_candidate_trained_on_a_leaked_fixed_suite_passes_it_and_fails_on_fresh_items(tmp_path: Path, engine: VllmProcess) -> None:
    """Not promised: a fixed file as Primary says nothing once it has leaked."""
    assert judged(tmp_path / "fixed", engine, "leaked suite", FIXED).verdict is Verdict.ACCEPTED
    assert judged(tmp_path / "fresh", engine, "leaked suite", FRESH).verdict is Verdict.REJECTED


def test_a_candidate_that_is_worse_only_where_no_suite_looks_is_accepted(tmp_path: Path, engine: VllmProcess) -> None:
    """Not promised: traffic that no suite covers is not judged."""
    judgement = judged(tmp_path, engine, "worse where nobody looks", FRESH)
    assert judgement.verdict is Verdict.ACCEPTED, told(judgement)
