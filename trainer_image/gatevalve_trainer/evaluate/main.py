"""`gatevalve-trainer evaluate`: draw, ask, score, publish. It measures and never judges."""

from __future__ import annotations

import asyncio

import aiohttp

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import EvaluateInput, EvidenceResult
from gatevalve.contracts.names import evidence_dir
from gatevalve_trainer.evaluate.answers import Answer, answer_of
from gatevalve_trainer.evaluate.asking import ask_all
from gatevalve_trainer.evaluate.engine import Engine, Replies
from gatevalve_trainer.evaluate.evidence import JOURNAL, pair_rows, publish_evidence, published_evidence, table_bytes
from gatevalve_trainer.evaluate.journal import Journal, journal_head
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.evaluate.progress import Progress
from gatevalve_trainer.evaluate.schedule import Question, arm_models, questions
from gatevalve_trainer.evaluate.seeds import seal_seed_from_environment
from gatevalve_trainer.evaluate.suites import Keys, LoadedSuite, load_suites
from gatevalve_trainer.phases import log
from gatevalve_trainer.split import split_key_from_environment
from gatevalve_trainer.stopping import STOP
from gatevalve_trainer.store import Area
from gatevalve_trainer.tasks.plugin import Task, load


def run(job: EvaluateInput, patience: Patience | None = None) -> EvidenceResult:
    """Measure a candidate and publish the evidence; a test that has its evidence already is only verified.

    Raises ContractError when an input or earlier evidence is not what the job names, BackendUnavailable when the engine does not answer.
    """
    _check(job)
    sealed, keys = Area(job.sealed), Keys(seal_seed_from_environment(), split_key_from_environment())
    if (known := published_evidence(sealed, job, keys.seal)) is not None:
        log("evidence verified", test=job.test_entry)
        return known
    suites = load_suites(job, Area(job.data), sealed, keys)
    path = sealed.path(f"{evidence_dir(job.channel_uid, job.test_entry)}/{JOURNAL}")
    with Journal(path, journal_head(job, suites), keys.seal) as journal, STOP.deferred():
        engine = asyncio.run(_measure(job, suites, journal, patience or Patience()))
        pairs = table_bytes(pair_rows(job, suites, journal.answers))
    result = publish_evidence(sealed, job, suites, pairs, engine, keys.seal)
    path.unlink(missing_ok=True)
    return result


async def _measure(job: EvaluateInput, suites: tuple[LoadedSuite, ...], journal: Journal, patience: Patience) -> str:
    tasks = _verifiers(job)
    asked = list(questions(job, suites))

    def score(question: Question, replies: Replies) -> Answer:
        return answer_of(question, replies, tasks[question.suite.name])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        log("waiting for the engine", seconds_at_most=patience.engine)
        engine = Engine(session, job.engine_url, patience)
        await engine.wait_until_healthy()
        _check_models(job, await engine.models())
        progress = Progress(len(asked), len(journal.answers))
        await ask_all(asked, engine, journal, score, progress)
        progress.report()
        return await engine.name()


def _check(job: EvaluateInput) -> None:
    arm_models(job.arms)
    if (actual := job.policy.digest_of()) != job.policy_digest:
        raise ContractError(
            "policy", f"has digest {actual}, the job names {job.policy_digest}", "give the policy that the test was opened with"
        )


def _verifiers(job: EvaluateInput) -> dict[str, Task | None]:
    return {suite.name: load(suite.verifier) if suite.verifier else None for suite in job.policy.suites}


def _check_models(job: EvaluateInput, served: frozenset[str]) -> None:
    for arm, model in arm_models(job.arms).items():
        if model not in served:
            raise ContractError(
                f"arms.{arm}", f"the engine does not serve {model}", f"start it with one of: {', '.join(sorted(served)) or 'none'}"
            )
