"""`gatevalve-trainer evaluate`: draw, ask, score, publish. It measures and never judges."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Progress
from gatevalve.contracts.jobs import EvaluateInput, EvidenceResult
from gatevalve.contracts.names import evidence_dir, progress_file
from gatevalve_trainer.evaluate.answering import Answering
from gatevalve_trainer.evaluate.engine import Engine
from gatevalve_trainer.evaluate.evidence import JOURNAL, Measured, pair_rows, publish_evidence, published_evidence, table_bytes
from gatevalve_trainer.evaluate.journal import Journal, journal_head
from gatevalve_trainer.evaluate.judge import open_judges
from gatevalve_trainer.evaluate.measuring import Measuring
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.evaluate.rounds import Areas, Keys, LoadedSuite
from gatevalve_trainer.evaluate.schedule import arm_models
from gatevalve_trainer.evaluate.seeds import seal_seed_from_environment
from gatevalve_trainer.evaluate.suites import load_suites, verifiers
from gatevalve_trainer.phases import log
from gatevalve_trainer.split import split_key_from_environment
from gatevalve_trainer.stopping import STOP


def run(job: EvaluateInput, patience: Patience | None = None) -> EvidenceResult:
    """Measure a candidate and publish the evidence; a test that has its evidence already is only verified.

    Raises ContractError when an input or earlier evidence is not what the job names, BackendUnavailable when the engine does not answer.
    """
    _check(job)
    areas, keys = Areas.of(job), Keys(seal_seed_from_environment(), split_key_from_environment())
    if (known := published_evidence(areas.sealed, job, keys.seal)) is not None:
        log("evidence verified", test=job.test_entry)
        return known
    suites = load_suites(job, areas, keys)
    path = areas.sealed.path(f"{evidence_dir(job.channel_uid, job.test_entry)}/{JOURNAL}")
    with Journal(path, journal_head(job, suites), keys.seal) as journal, STOP.deferred():
        measured = asyncio.run(_measure(job, areas, keys, suites, journal, patience or Patience()))
        pairs = table_bytes(pair_rows(job, measured.suites, journal.answers))
    result = publish_evidence(areas.sealed, job, measured, pairs, keys.seal)
    for done in (path, areas.sealed.path(progress_file(job.channel_uid, job.test_entry))):
        done.unlink(missing_ok=True)
    return result


async def _measure(
    job: EvaluateInput, areas: Areas, keys: Keys, suites: tuple[LoadedSuite, ...], journal: Journal, patience: Patience
) -> Measured:
    def tell(progress: Progress) -> None:
        areas.sealed.write(progress_file(job.channel_uid, job.test_entry), progress.canonical())

    tasks = verifiers(job.policy)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        log("waiting for the engine", seconds_at_most=patience.engine)
        engine = Engine(session, job.engine_url, patience)
        await engine.wait_until_healthy()
        _check_models(job, await engine.models())
        judges = await open_judges(job, session, patience, areas.data)
        answering = Answering(engine, tasks, judges.by_suite, arm_models(job.arms))
        measuring = Measuring(job, suites, journal, answering.answers, tell)
        measured = await measuring.measured(areas.sealed, keys.seal, await engine.name())
        return replace(measured, judges=judges.facts(loaded.suite.name for loaded in measured.suites))


def _check(job: EvaluateInput) -> None:
    arm_models(job.arms)
    if (actual := job.policy.digest_of()) != job.policy_digest:
        raise ContractError(
            "policy", f"has digest {actual}, the job names {job.policy_digest}", "give the policy that the test was opened with"
        )


def _check_models(job: EvaluateInput, served: frozenset[str]) -> None:
    for arm, model in arm_models(job.arms).items():
        if model not in served:
            raise ContractError(
                f"arms.{arm}", f"the engine does not serve {model}", f"start it with one of: {', '.join(sorted(served)) or 'none'}"
            )
