"""The evidence of a test: the paired table and the report that names it, written once and never overwritten."""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Arm, EvidenceReport, FileFact, Item, JudgeFact, PairRow, Stage
from gatevalve.contracts.jobs import EvaluateInput, EvidenceResult
from gatevalve.contracts.names import evidence_dir
from gatevalve_trainer.durable import sync_directory, write_through
from gatevalve_trainer.evaluate.answers import Answer
from gatevalve_trainer.evaluate.marks import check_mark, mark_of
from gatevalve_trainer.evaluate.rounds import LoadedSuite
from gatevalve_trainer.evaluate.schedule import answering_arms, arm_models, arms_of
from gatevalve_trainer.store import TEMPORARY, Area, sweep_stale

REPORT, PAIRS, JOURNAL = "report.json", "pairs.jsonl.gz", "partial.jsonl"


@dataclass(frozen=True, slots=True)
class Measured:
    """How a measurement went: how far, on which suites, by which engine and judges."""

    stage: Stage
    suites: tuple[LoadedSuite, ...]
    engine: str
    judges: tuple[JudgeFact, ...] = ()


GZIP_WINDOW = 31
"""zlib's window bits for a gzip container; its header then holds no time and no name, so equal rows give equal bytes."""

Answers = Mapping[tuple[str, str, Arm], Answer]


def pair_rows(job: EvaluateInput, suites: Sequence[LoadedSuite], answers: Answers) -> Iterator[PairRow]:
    """One row an item, in the order of the suites and then by item id."""
    sources = answering_arms(arm_models(job.arms))
    for loaded in suites:
        name = loaded.suite.name
        for item in sorted(loaded.items, key=lambda item: item.id):
            yield _pair_row(name, item, {arm: answers[name, item.id, sources[arm]] for arm in arms_of(name)})


def _pair_row(suite: str, item: Item, given: Mapping[Arm, Answer]) -> PairRow:
    styles = {arm: answer.styles for arm, answer in given.items() if answer.styles is not None}
    return PairRow(
        suite=suite,
        item=item.id,
        cluster=item.cluster,
        scores={arm: answer.scores for arm, answer in given.items()},
        tokens={arm: answer.tokens for arm, answer in given.items()},
        finishes={arm: answer.finishes for arm, answer in given.items()},
        texts={arm: answer.texts for arm, answer in given.items()},
        failures={arm: answer.failures for arm, answer in given.items()},
        styles=styles or None,
        likelihoods=given["candidate"].likelihoods,
    )


def table_bytes(rows: Iterator[PairRow]) -> bytes:
    """The rows as gzip of canonical JSON lines."""
    return zlib.compress(b"".join(row.canonical() + b"\n" for row in rows), wbits=GZIP_WINDOW)


def publish_evidence(sealed: Area, job: EvaluateInput, measured: Measured, pairs: bytes, seal: bytes) -> EvidenceResult:
    """Write the table, then the report; raises ContractError when other bytes are there already."""
    directory = sealed.path(evidence_dir(job.channel_uid, job.test_entry))
    fact = FileFact(path=PAIRS, size=len(pairs), sha256=sha256(pairs))
    unmarked = _report(job, measured, fact)
    report = unmarked.model_copy(update={"mark": mark_of(seal, REPORT, unmarked.canonical())}).canonical()
    publish_file(directory / PAIRS, pairs)
    publish_file(directory / REPORT, report)
    return EvidenceResult(evidence_digest=sha256(report), pairs_digest=fact.sha256)


def published_evidence(sealed: Area, job: EvaluateInput, seal: bytes) -> EvidenceResult | None:
    """The complete evidence of this very test, verified, or None; raises ContractError when it was planted or made for something else."""
    directory = evidence_dir(job.channel_uid, job.test_entry)
    if not sealed.exists(f"{directory}/{REPORT}"):
        return None
    raw = sealed.read(f"{directory}/{REPORT}")
    marked = EvidenceReport.parse_json(raw)
    report = marked.model_copy(update={"mark": None})
    check_mark(seal, REPORT, report.canonical(), marked.mark, f"{directory}/{REPORT}")
    same = _report(job, Measured(report.stage, (), report.engine, report.judges), report.pairs)
    if report != same.model_copy(update={"suites": report.suites}):
        raise ContractError(f"{directory}/{REPORT}", "was made for another test", "evidence is never overwritten; open a new test")
    sealed.read_named(directory, report.pairs)
    return EvidenceResult(evidence_digest=sha256(raw), pairs_digest=report.pairs.sha256)


def publish_file(path: Path, data: bytes) -> None:
    """Make a file appear whole; equal bytes count as done, other bytes raise ContractError and stay as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_stale(path.parent)
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    write_through(temporary, data)
    try:
        os.link(temporary, path)  # fails when the name is taken, where a rename would replace it
    except FileExistsError as error:
        if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
            raise ContractError(str(path), "holds other evidence", "two attempts measured differently; open a new test") from error
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def _report(job: EvaluateInput, measured: Measured, pairs: FileFact) -> EvidenceReport:
    return EvidenceReport(
        test_entry=job.test_entry,
        test_digest=job.test_digest,
        channel_uid=job.channel_uid,
        candidate_uid=job.candidate_uid,
        round=job.round,
        policy_digest=job.policy_digest,
        base_digest=job.base.digest,
        candidate_digest=job.candidate_digest,
        incumbent_digest=job.incumbent_digest,
        anchor_digest=job.anchor_digest,
        stage=measured.stage,
        suites=tuple(loaded.fact for loaded in measured.suites),
        judges=measured.judges,
        pairs=pairs,
        engine=measured.engine,
        arms=arm_models(job.arms),
    )
