"""Jobs, items and areas for tests of the evaluation."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import EvidenceReport, Item, PairRow
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.names import evidence_dir
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve_trainer.evaluate.items import to_lines
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.tasks.plugin import single_turn
from support.thresholds import THRESHOLDS

SEAL, SPLIT = bytes(range(32)), bytes(range(32, 64))
CANDIDATE, INCUMBENT, BASE, TEST = (f"sha256:{digit * 64}" for digit in "cbad")
MODELS = ("tiny-words", "support-bbbbbbbb", "support-cccccccc")
"""What the engine of `job` serves."""
SOON = Patience(engine=0.5, poll=0.05, request=5, tries=3, first_pause=0.01)
REGRESSION = tuple(single_turn(f"Last of: Ann Ben{number}", f"Ben{number}", "last") for number in range(30))
MANNERS = tuple(single_turn(f"Ben has {number} coins and buys 3 more. How many?", None, "buy") for number in range(5, 15))


def policy(**changes: Any) -> GatePolicySpec:
    """A policy with one suite of each role; `changes` replace top-level fields."""
    regression, manners = sha256(to_lines(REGRESSION)), sha256(to_lines(MANNERS))
    greedy = {"temperature": "0", "maxTokens": 48}
    spec: dict[str, Any] = {
        "suites": [
            {
                "name": "target",
                "role": "Primary",
                "items": {"generator": "word-problems", "count": 40},
                "verifier": "word-problems",
                "sampling": {"temperature": "1.0", "maxTokens": 48},
                "decodes": 3,
                "minEffectBasisPoints": 50,
                "minDetectableEffectBasisPoints": 1000,
            },
            {
                "name": "regression",
                "role": "Guard",
                "items": {"uri": "suites/regression.jsonl", "digest": regression},
                "verifier": "exact-match",
                "sampling": greedy,
                "decodes": 1,
                "marginBasisPoints": 400,
                "floorBasisPoints": 9000,
            },
            {
                "name": "manners",
                "role": "Behaviour",
                "items": {"uri": "suites/manners.jsonl", "digest": manners},
                "sampling": greedy,
                "decodes": 1,
            },
        ],
        "round": {"alphaBasisPoints": 500, "maxTests": 10},
        **THRESHOLDS,
    }
    return GatePolicySpec.parse(spec | changes)


def job(root: Path, **changes: Any) -> EvaluateInput:
    """An evaluation of support-0412 against an adapter, with the base as anchor; areas below `root`."""
    spec = changes.pop("policy", policy())
    fields: dict[str, Any] = {
        "channel": "support",
        "channel_uid": "channel-uid",
        "candidate": "support-0412",
        "candidate_uid": "candidate-uid",
        "attempt": "evaluate-1",
        "data": f"file://{root}/data",
        "sealed": f"file://{root}/sealed",
        "engine_url": "http://127.0.0.1:9",
        "test_entry": "support-000007",
        "test_digest": TEST,
        "round": 3,
        "test": 2,
        "policy": spec,
        "policy_digest": spec.digest_of(),
        "base": {"name": "tiny-words", "uri": "file:///models/tiny-words", "digest": BASE},
        "candidate_digest": CANDIDATE,
        "incumbent_digest": INCUMBENT,
        "arms": {"candidate": "support-cccccccc", "incumbent": "support-bbbbbbbb", "anchor": "tiny-words"},
    }
    return EvaluateInput.model_validate(fields | changes)


def write_suites(root: Path, **files: tuple[Item, ...]) -> None:
    """The fixed suites in the data area below `root`."""
    folder = root / "data" / "suites"
    folder.mkdir(parents=True, exist_ok=True)
    for name, items in ({"regression": REGRESSION, "manners": MANNERS} | files).items():
        (folder / f"{name}.jsonl").write_bytes(to_lines(items))


def evidence(root: Path, entry: str = "support-000007") -> Path:
    """The evidence directory of a test below `root`."""
    return root / "sealed" / evidence_dir("channel-uid", entry)


def rows_of(root: Path, entry: str = "support-000007") -> list[PairRow]:
    """The published table of a test."""
    return [PairRow.parse_json(line) for line in gzip.decompress((evidence(root, entry) / "pairs.jsonl.gz").read_bytes()).splitlines()]


def report_of(root: Path, entry: str = "support-000007") -> EvidenceReport:
    """The published report of a test."""
    return EvidenceReport.parse_json((evidence(root, entry) / "report.json").read_bytes())
