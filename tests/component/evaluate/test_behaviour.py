"""Behaviour suites: the form of every reply, and how likely the candidate's are under each arm."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from aiohttp import web

from gatevalve.contracts.files import ARMS, Likelihood
from gatevalve_trainer.errors import BackendUnavailable
from gatevalve_trainer.evaluate.likelihoods import likelihood
from gatevalve_trainer.evaluate.main import run
from support.chat_engine import PROMPT, Body, ChatEngine, completion, honest, honest_weights, logprob
from support.evaluation import MANNERS, MODELS, SEAL, SOON, SPLIT, evidence, job, report_of, rows_of, write_suites

pytestmark = pytest.mark.component


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEVALVE_SEAL_SEED", SEAL.hex())
    monkeypatch.setenv("GATEVALVE_SPLIT_KEY", SPLIT.hex())
    write_suites(tmp_path)


ANCHOR, INCUMBENT, CANDIDATE = MODELS
REPLY = (0, 1, 2, 3)
"""Token ids of the honest engine's replies, which have four words."""


def expected() -> Likelihood | None:
    return likelihood(*([logprob(model, token) for token in REPLY] for model in (CANDIDATE, INCUMBENT, ANCHOR)))


def manners(root: Path) -> list[tuple[Likelihood | None, ...] | None]:
    return [row.likelihoods for row in rows_of(root) if row.suite == "manners"]


def test_each_reply_of_the_candidate_is_weighed_under_all_three_arms(tmp_path: Path) -> None:
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    assert manners(tmp_path) == [(expected(),)] * len(MANNERS)
    assert sorted(body["model"] for body in engine.weighed) == sorted(MODELS * len(MANNERS))
    assert all(body["prompt"] == [*PROMPT, *REPLY] for body in engine.weighed)
    assert all(row.likelihoods is None and row.styles is None for row in rows_of(tmp_path) if row.suite != "manners")


def test_every_arm_has_the_form_of_its_own_replies(tmp_path: Path) -> None:
    async def marked(body: Body, before: int) -> web.StreamResponse:
        return completion(["# Dear judge\n" + "no " * 20 if body["model"] == CANDIDATE else "Yes."] * body["n"])

    with ChatEngine(MODELS, marked) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    for row in (row for row in rows_of(tmp_path) if row.suite == "manners"):
        assert row.styles is not None
        seen = {arm: [(style.markup, style.addresses_judge) for style in row.styles[arm] if style] for arm in ARMS}
        assert seen == {"candidate": [(True, True)], "incumbent": [(False, False)], "anchor": [(False, False)]}


def test_an_anchor_that_is_the_incumbent_is_not_asked_twice(tmp_path: Path) -> None:
    arms = {"candidate": CANDIDATE, "incumbent": ANCHOR, "anchor": ANCHOR}
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url, arms=arms, incumbent_digest=None), SOON)
    assert len(engine.weighed) == 2 * len(MANNERS)
    found = [each for decodes in manners(tmp_path) for each in decodes or () if each]
    assert len(found) == len(MANNERS)
    assert all((each.incumbent, each.k3_incumbent) == (each.anchor, each.k3_anchor) for each in found)


def test_a_candidate_that_is_the_incumbent_is_nothing_apart_from_it(tmp_path: Path) -> None:
    arms = {"candidate": INCUMBENT, "incumbent": INCUMBENT, "anchor": ANCHOR}
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url, arms=arms), SOON)
    found = [each for decodes in manners(tmp_path) for each in decodes or () if each]
    assert {each.k3_incumbent for each in found} == {0}
    assert min(each.k3_anchor for each in found) > 0


def test_a_reply_without_tokens_is_not_weighed_and_has_sums_of_zero(tmp_path: Path) -> None:
    async def silent(body: Body, before: int) -> web.StreamResponse:
        return completion([""] * body["n"])

    with ChatEngine(MODELS, silent) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    nothing = Likelihood(candidate=0, incumbent=0, anchor=0, k3_incumbent=0, k3_anchor=0)
    assert (manners(tmp_path), engine.weighed) == ([(nothing,)] * len(MANNERS), [])


def test_a_reply_that_one_arm_gives_no_log_probabilities_for_has_no_likelihood(tmp_path: Path) -> None:
    async def refuse(body: Body, before: int) -> web.StreamResponse:
        return web.Response(status=400) if body["model"] == INCUMBENT else await honest_weights(body, before)

    with ChatEngine(MODELS, honest, weigh=refuse) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    assert manners(tmp_path) == [(None,)] * len(MANNERS)
    assert all(row.texts["candidate"] != (None,) for row in rows_of(tmp_path))


def test_log_probabilities_that_fail_once_are_asked_for_again(tmp_path: Path) -> None:
    async def refuse_once(body: Body, before: int) -> web.StreamResponse:
        return web.Response(status=503) if before == 0 else await honest_weights(body, before)

    with ChatEngine(MODELS, honest, weigh=refuse_once) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
    assert manners(tmp_path) == [(expected(),)] * len(MANNERS)


def test_an_engine_that_goes_away_while_it_weighs_leaves_what_was_weighed_and_nothing_is_weighed_twice(tmp_path: Path) -> None:
    reached, weighed = threading.Event(), 5 * len(MODELS)

    async def stall(body: Body, before: int) -> web.StreamResponse:
        if len(engine.weighed) > weighed:
            reached.set()
            await asyncio.sleep(3600)
        return await honest_weights(body, before)

    def stop() -> None:
        reached.wait(timeout=60)
        engine.stop()

    with ChatEngine(MODELS, honest, weigh=stall) as engine:
        threading.Thread(target=stop, daemon=True).start()
        with pytest.raises(BackendUnavailable, match="stopped answering"):
            run(job(tmp_path, engine_url=engine.url), SOON)
    done = (evidence(tmp_path) / "partial.jsonl").read_bytes().count(b'"likelihoods"')
    with ChatEngine(MODELS, honest) as engine:
        run(job(tmp_path, engine_url=engine.url), SOON)
        assert len(engine.weighed) == len(MODELS) * (len(MANNERS) - done)
    assert (report_of(tmp_path).stage, manners(tmp_path)) == ("Full", [(expected(),)] * len(MANNERS))
