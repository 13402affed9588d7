"""What a hopeless candidate costs on real vLLM against three full runs of one arm each. Only the ratio is told: times are a machine's.

Both sides ask one engine, one after the other, with the demo's policy and suites; items are drawn before any clock starts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import aiohttp

from demo.objects import SUITES, manifest
from gatevalve.contracts.files import ARMS, Arm, EvidenceReport
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.names import ENV_SEAL_SEED, ENV_SPLIT_KEY
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve_trainer.evaluate.answering import Answering
from gatevalve_trainer.evaluate.asking import ask_all
from gatevalve_trainer.evaluate.engine import Engine
from gatevalve_trainer.evaluate.journal import Journal, journal_head
from gatevalve_trainer.evaluate.main import run
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.evaluate.progress import Pace
from gatevalve_trainer.evaluate.rounds import Areas, Keys, LoadedSuite
from gatevalve_trainer.evaluate.schedule import Unit, arm_models, units
from gatevalve_trainer.evaluate.seeds import seal_seed_from_environment
from gatevalve_trainer.evaluate.suites import load_suites, verifiers
from gatevalve_trainer.split import split_key_from_environment
from support import evaluation
from support.bad_adapters import peft_directory
from support.evaluation_engine import evaluation_engine
from support.training import SPLIT_KEY, tiny_base
from support.vllm_process import VllmProcess
from support.zoo import ZOO, adapter_files

SCREENED = GatePolicySpec.parse(manifest("policy")["spec"])
WHOLE = GatePolicySpec.parse({**SCREENED.wire(), "futility": {"items": 0, "alphaBasisPoints": 5000}})
MODELS = {"candidate": "noise", "incumbent": "honest", "anchor": "tiny-words"}


def job_of(root: Path, engine: VllmProcess, policy: GatePolicySpec) -> EvaluateInput:
    """An evaluation with the demo's suites in an area of its own."""
    (root / "data").mkdir(parents=True)
    shutil.copytree(SUITES, root / "data" / "suites")
    return evaluation.job(root, policy=policy, arms=MODELS, engine_url=engine.url, base=tiny_base())


def drawn(job: EvaluateInput) -> tuple[LoadedSuite, ...]:
    """The round's items, drawn now if they are not there."""
    return load_suites(job, Areas.of(job), keys())


def keys() -> Keys:
    """The keys of the environment."""
    return Keys(seal_seed_from_environment(), split_key_from_environment())


def seconds_of_evaluation(job: EvaluateInput) -> tuple[float, EvidenceReport]:
    """A whole evaluation as its Job does it."""
    drawn(job)
    began = time.monotonic()
    run(job)
    seconds = time.monotonic() - began
    return seconds, evaluation.report_of(Path(job.sealed.removeprefix("file://")).parent)


def seconds_of_arm(job: EvaluateInput, arm: Arm, journal: Path) -> float:
    """One arm alone over every item of every suite."""
    suites = drawn(job)
    asked = list(units_of(job, suites, arm))
    began = time.monotonic()
    with Journal(journal, journal_head(job, suites), seal_seed_from_environment()) as kept:
        asyncio.run(ask(job, asked, kept))
    return time.monotonic() - began


def units_of(job: EvaluateInput, suites: Sequence[LoadedSuite], arm: Arm) -> Iterator[Unit]:
    """The questions to one arm."""
    return (unit for unit in units(job, suites) if unit[0].arm == arm)


async def ask(job: EvaluateInput, asked: Sequence[Unit], journal: Journal) -> None:
    """Ask some units with the evaluation's own client."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        answering = Answering(Engine(session, job.engine_url, Patience()), verifiers(job.policy), {}, arm_models(job.arms))
        await ask_all(asked, answering.answers, journal, Pace(len(asked), 0, lambda progress: None))


def started(root: Path) -> AbstractContextManager[VllmProcess]:
    """An engine with an adapter of noise as candidate and one that learnt the task as incumbent."""
    peft_directory(root / "noise")
    (root / "honest").mkdir()
    for name, content in adapter_files(ZOO["honest"]).items():
        (root / "honest" / name).write_bytes(content)
    return evaluation_engine(root, {"noise": root / "noise", "honest": root / "honest"})


def evaluation_figures(times: int) -> dict[str, Any]:
    """Seconds of so many evaluations of a hopeless candidate over seconds of as many three full runs, in turn."""
    os.environ |= {ENV_SEAL_SEED: bytes(range(32)).hex(), ENV_SPLIT_KEY: SPLIT_KEY.hex()}
    ours = separate = 0.0
    with tempfile.TemporaryDirectory(prefix="gatevalve-bench-") as folder, started(Path(folder)) as engine:
        warm = job_of(Path(folder) / "warm", engine, WHOLE)
        for arm in ARMS:
            seconds_of_arm(warm, arm, Path(folder) / f"warm-{arm}.jsonl")
        for time_ in range(times):
            whole = job_of(Path(folder) / f"whole-{time_}", engine, WHOLE)
            separate += sum(seconds_of_arm(whole, arm, Path(folder) / f"{time_}-{arm}.jsonl") for arm in ARMS)
            seconds, report = seconds_of_evaluation(job_of(Path(folder) / f"screened-{time_}", engine, SCREENED))
            ours += seconds
            assert report.stage == "Screen", "the candidate was not found hopeless"
    return {"eval_cost_ratio": round(ours / separate, 3)}
