"""Asking the real vLLM: replies are weighed as Hugging Face and PEFT weigh them, and much at once does not end the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from gatevalve.contracts.files import Arm, Likelihood
from gatevalve.contracts.policy import Sampling, Suite
from gatevalve_trainer.evaluate.engine import Engine, Reply
from gatevalve_trainer.evaluate.likelihoods import MICRONATS, likelihoods_of
from gatevalve_trainer.evaluate.patience import Patience
from gatevalve_trainer.evaluate.schedule import Question
from gatevalve_trainer.tasks.word_problems import stream
from support.evaluation import policy
from support.evaluation_engine import evaluation_engine
from support.training import BASE_DIRECTORY
from support.vllm_process import VllmProcess
from support.zoo import Breed, adapter_files, answering, misread, right

pytestmark = [pytest.mark.component, pytest.mark.vllm, pytest.mark.timeout(600)]

T = TypeVar("T")
PATIENCE = Patience(engine=30)
ADAPTERS = {"right": Breed(answering(right), lessons=200, epochs="1"), "misread": Breed(answering(misread), lessons=200, epochs="1")}
ARMS: dict[Arm, str] = {"candidate": "right", "incumbent": "misread", "anchor": "tiny-words"}
MANNERS = policy().suites[2]
TARGET = policy().suites[0]
NUMERICS = 1e-3
"""Nats of a whole reply by which two float32 engines may differ."""


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two trained adapters, and a copy of the first under another name."""
    root = tmp_path_factory.mktemp("adapters")
    files = {name: adapter_files(breed) for name, breed in ADAPTERS.items()}
    for name, content in {**files, "twin": files["right"]}.items():
        (root / name).mkdir()
        for file, data in content.items():
            (root / name / file).write_bytes(data)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="module")
def engine(adapters: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    with evaluation_engine(tmp_path_factory.mktemp("engine"), adapters) as running:
        yield running


def with_engine(engine: VllmProcess, work: Callable[[Engine], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await work(Engine(session, engine.url, PATIENCE))

    return asyncio.run(connected())


def questions(count: int, suite: Suite = MANNERS, model: str = "right") -> list[Question]:
    return [Question(suite, item, "candidate", model, seed) for seed, item in enumerate(stream(count, seed=7))]


class Reference:
    """Hugging Face and PEFT on the weights of each arm."""

    def __init__(self, adapters: dict[str, Path]) -> None:
        self._models = {arm: self._model(adapters.get(name)) for arm, name in ARMS.items()}

    @staticmethod
    def _model(adapter: Path | None) -> Any:
        base = AutoModelForCausalLM.from_pretrained(BASE_DIRECTORY, dtype=torch.float32)
        return (PeftModel.from_pretrained(base, adapter) if adapter else base).eval()

    @torch.no_grad()
    def sums(self, reply: Reply) -> dict[str, float]:
        """The log-probability of a whole reply under each arm."""
        ids = torch.tensor([[*reply.prompt_token_ids, *reply.token_ids]])
        return {arm: self._sum(model(ids, use_cache=False).logits[0, :-1], ids[0, 1:], reply.tokens) for arm, model in self._models.items()}

    @staticmethod
    def _sum(logits: torch.Tensor, targets: torch.Tensor, tokens: int) -> float:
        return float(logits.float().log_softmax(-1).gather(1, targets[:, None])[-tokens:].sum())


def test_replies_are_weighed_as_the_reference_weighs_them_while_others_are_sampled(engine: VllmProcess, adapters: dict[str, Path]) -> None:
    """Weighing and sampling meet in one batch of the engine, the base and both adapters among them."""

    async def work(client: Engine) -> list[tuple[Reply, Likelihood]]:
        others = [client.ask(question) for model in ARMS.values() for question in questions(20, TARGET, model)]
        sampled = [asyncio.ensure_future(other) for other in others]
        weighed = [await weighed_reply(client, question, ARMS) for question in questions(4)]
        assert all(None not in replies for replies in await asyncio.gather(*sampled))
        return weighed

    reference = Reference(adapters)
    for reply, likelihood in with_engine(engine, work):
        sums = {name: value / MICRONATS for name, value in likelihood.model_dump().items()}
        assert {arm: sums[arm] for arm in ARMS} == pytest.approx(reference.sums(reply), abs=NUMERICS)
        assert min(sums["k3_incumbent"], sums["k3_anchor"]) > 0.001


def test_a_copy_of_an_adapter_is_nothing_apart_from_it(engine: VllmProcess) -> None:
    arms: dict[Arm, str] = {"candidate": "right", "incumbent": "twin", "anchor": "misread"}

    async def work(client: Engine) -> list[tuple[Reply, Likelihood]]:
        return [await weighed_reply(client, question, arms) for question in questions(4)]

    assert max(likelihood.k3_incumbent for _, likelihood in with_engine(engine, work)) < 0.00001 * MICRONATS


async def weighed_reply(client: Engine, question: Question, arms: Mapping[Arm, str]) -> tuple[Reply, Likelihood]:
    (reply,) = await client.ask(question)
    (likelihood,) = await likelihoods_of((reply,), arms, client)
    assert reply is not None
    assert likelihood is not None
    return reply, likelihood


def test_hundreds_of_seeded_requests_at_once_do_not_end_the_engine(engine: VllmProcess) -> None:
    """An engine on CPUs that splits the prompt of a seeded request dies; the demo's channel gives it no reason to."""

    async def work(client: Engine) -> bool:
        suite = TARGET.model_copy(update={"sampling": Sampling(temperature="1.0", max_tokens=4)})
        asked = [client.ask(question) for model in ARMS.values() for question in questions(120, suite, model)]
        return all(None not in replies for replies in await asyncio.gather(*asked))

    assert with_engine(engine, work)
