"""Evidence that is kept with its verdict, byte by byte. `python tests/support/golden_verdicts.py` writes it anew, where a verdict was
meant to change; the differences then belong into the changelog."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gatevalve.contracts.canonical import canonical_json
from gatevalve.contracts.files import EvidenceReport, PairRow
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.judge import judge
from support.gate_cases import case_of, guard_rows, manners_rows, must_pass_policy, must_rows, screen_rows, target_rows

GOLDEN = Path(__file__).resolve().parents[1] / "unit/gate/golden"
JUDGEMENT = "judgement.json"

POLICY = must_pass_policy(guard={"marginBasisPoints": 2000, "floorBasisPoints": 0}, futility={"items": 20, "alphaBasisPoints": 5000})
OTHERS = (*screen_rows(), *guard_rows(1, 40), *must_rows(()), *manners_rows(22))
CASES: dict[str, Sequence[PairRow]] = {
    "accepted": (*target_rows(24), *OTHERS),
    "primary-not-passed": (*target_rows(9), *OTHERS),
    "inconclusive": (*target_rows(24), *OTHERS[:-1]),
}


def judgement_bytes(folder: Path) -> bytes:
    """The verdict on the evidence of a folder, with everything it rests on, as canonical JSON."""
    policy = GatePolicySpec.parse_json((folder / "policy.json").read_bytes())
    report = EvidenceReport.parse_json((folder / "report.json").read_bytes())
    rows = [PairRow.parse_json(line) for line in gzip.decompress((folder / "pairs.jsonl.gz").read_bytes()).splitlines()]
    told: dict[str, Any] = json.loads((folder / "ledger.json").read_bytes())
    ledger = Ledger(**{**told, "quarantined": frozenset(told["quarantined"])})
    return canonical_json(asdict(judge(policy, Evidence.of(report, rows), ledger))) + b"\n"


def write(folder: Path, rows: Sequence[PairRow]) -> None:
    """The files of one case."""
    evidence, ledger = case_of(POLICY, CASES["accepted"])
    assert evidence.report is not None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.json").write_bytes(POLICY.canonical() + b"\n")
    (folder / "report.json").write_bytes(evidence.report.canonical() + b"\n")
    (folder / "ledger.json").write_bytes(canonical_json({**asdict(ledger), "quarantined": sorted(ledger.quarantined)}) + b"\n")
    (folder / "pairs.jsonl.gz").write_bytes(gzip.compress(b"".join(row.canonical() + b"\n" for row in rows), mtime=0))
    (folder / JUDGEMENT).write_bytes(judgement_bytes(folder))


if __name__ == "__main__":
    for name, rows in CASES.items():
        write(GOLDEN / name, rows)
