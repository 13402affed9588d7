"""Captured conversations as items: sealed side only, each once in a channel's life, in an order that only the seal knows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import Item
from gatevalve.contracts.kinds import SentinelRef
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve_trainer.errors import ItemSupply
from gatevalve_trainer.evaluate import conversations, rounds
from gatevalve_trainer.evaluate.rounds import Areas, Keys, open_round
from gatevalve_trainer.split import split_side
from gatevalve_trainer.tasks import word_problems
from gatevalve_trainer.tasks.plugin import Task, first_user_message, single_turn
from support import evaluation, training
from support.evaluation import SEAL, SPLIT

KEYS = Keys(SEAL, SPLIT)
ITEMS = 30
PROMPTS = tuple(first_user_message(item) for item in word_problems.stream(1500, seed=5))
SEALED = tuple(prompt for prompt in PROMPTS if split_side(SPLIT, prompt) == "sealed")


def rules(screen: int = 0, items: int = ITEMS, **primary: Any) -> GatePolicySpec:
    """A policy whose Primary takes captured conversations."""
    spec = evaluation.policy().wire()
    spec["suites"][0] |= {"items": {"traffic": {"min": items}}, **primary}
    spec["futility"] = {"items": screen, "alphaBasisPoints": 5000}
    return GatePolicySpec.parse(spec)


def capture(root: Path, prompts: tuple[str, ...], name: str = "pod-0-b1-0.jsonl.zst", **fields: Any) -> None:
    told = (training.reply(number, messages=[{"role": "user", "content": prompt}], **fields) for number, prompt in enumerate(prompts))
    training.write_segment(root / "data", told, name=name)


def draw(root: Path, number: int = 1, keys: Keys = KEYS, policy: GatePolicySpec | None = None) -> dict[str, tuple[Item, ...]]:
    job = evaluation.job(root, round=number, policy=policy or rules())
    return {name: suite.items for name, suite in open_round(job, Areas.of(job), keys).items()}


def prompts_of(items: tuple[Item, ...]) -> set[str]:
    return {first_user_message(item) for item in items}


def test_items_are_what_clients_asked_on_the_sealed_side_with_the_answer_that_the_task_works_out(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    (items,) = draw(tmp_path).values()
    assert len(items) == len({item.id for item in items}) == len(prompts_of(items)) == ITEMS
    assert prompts_of(items) <= set(SEALED)
    assert all(item.cluster == item.id for item in items)
    right = {first_user_message(item): item.answer for item in word_problems.stream(1500, seed=5)}
    assert [item.answer for item in items] == [right[first_user_message(item)] for item in items]


def test_no_conversation_is_an_item_of_two_rounds_and_when_all_were_used_the_round_waits(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    seen: set[str] = set()
    rounds_drawn = len(SEALED) // ITEMS
    for number in range(1, rounds_drawn + 1):
        (items,) = draw(tmp_path, number).values()
        assert not seen & prompts_of(items)
        seen |= prompts_of(items)
    left = len(SEALED) - rounds_drawn * ITEMS
    with pytest.raises(ItemSupply, match=rf"suite target: {left} fresh conversations .* answer to {left}, {ITEMS} are needed"):
        draw(tmp_path, rounds_drawn + 1)
    capture(tmp_path, tuple(first_user_message(item) for item in word_problems.stream(1000, seed=6)), name="pod-0-b1-1.jsonl.zst")
    (items,) = draw(tmp_path, rounds_drawn + 1).values()
    assert not seen & prompts_of(items)


def test_a_conversation_that_an_earlier_round_held_in_other_letters_is_used(tmp_path: Path) -> None:
    capture(tmp_path, SEALED[:ITEMS])
    draw(tmp_path)
    capture(tmp_path, tuple(f"  {prompt.upper()} " for prompt in SEALED[:ITEMS]), name="pod-0-b1-1.jsonl.zst")
    with pytest.raises(ItemSupply, match="suite target: 0 fresh"):
        draw(tmp_path, 2)


def test_the_screen_takes_conversations_of_its_own(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    drawn = draw(tmp_path, policy=rules(screen=20))
    assert [(name, len(items)) for name, items in drawn.items()] == [("screen", 20), ("target", ITEMS)]
    assert not prompts_of(drawn["screen"]) & prompts_of(drawn["target"])
    (later,) = draw(tmp_path, 2).values()
    assert not prompts_of(later) & (prompts_of(drawn["screen"]) | prompts_of(drawn["target"]))


def test_a_round_is_short_when_only_its_screen_is_and_then_nothing_is_drawn(tmp_path: Path) -> None:
    capture(tmp_path, SEALED[: ITEMS + 5])
    with pytest.raises(ItemSupply, match=r"suite screen: 5 fresh conversations .* 6 are needed"):
        draw(tmp_path, policy=rules(screen=6))
    assert not (tmp_path / "sealed").exists()


OTHERS = {"another seal": (1, Keys(bytes(32), SPLIT)), "another round": (2, KEYS)}


@pytest.mark.parametrize(("number", "keys"), OTHERS.values(), ids=OTHERS)
def test_which_conversations_come_first_is_known_by_the_seal_and_the_round_alone(number: int, keys: Keys, tmp_path: Path) -> None:
    for root in (tmp_path / "a", tmp_path / "b", tmp_path / "c"):
        capture(root, PROMPTS)
    first, again, other = draw(tmp_path / "a"), draw(tmp_path / "b"), draw(tmp_path / "c", number, keys)
    assert first == again
    assert len(prompts_of(first["target"]) & prompts_of(other["target"])) < ITEMS // 2


def test_the_order_in_which_replies_were_captured_and_how_often_one_was_asked_change_nothing(tmp_path: Path) -> None:
    capture(tmp_path / "a", PROMPTS)
    shuffled = list(PROMPTS) + list(SEALED)
    random.Random(3).shuffle(shuffled)
    half = len(shuffled) // 2
    capture(tmp_path / "b", tuple(shuffled[:half]))
    capture(tmp_path / "b", tuple(shuffled[half:]), name="pod-9-b1-0.jsonl.zst")
    assert draw(tmp_path / "a") == draw(tmp_path / "b")


def test_segments_that_are_still_being_written_are_left_for_later(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS, name="pod-0-b1-0.jsonl.zst.open")
    with pytest.raises(ItemSupply, match="suite target: 0 fresh"):
        draw(tmp_path)


def test_a_round_that_is_drawn_reads_no_traffic_any_more(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    first = draw(tmp_path)
    for segment in (tmp_path / "data").rglob("*.zst"):
        segment.unlink()
    assert draw(tmp_path) == first


PASSED_OVER: dict[str, dict[str, Any]] = {
    "a completion": {"route": "completions", "prompt": SEALED[0]},
    "a request that ends with the assistant": {
        "messages": [{"role": "user", "content": SEALED[0]}, {"role": "assistant", "content": "The"}],
    },
    "a request with a tool's reply": {"messages": [{"role": "user", "content": SEALED[0]}, {"role": "tool", "content": "4"}]},
    "a request with a tool call": {
        "messages": [
            {"role": "user", "content": SEALED[0]},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]},
            {"role": "user", "content": SEALED[0]},
        ],
    },
    "a picture": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": SEALED[0]}, {"type": "image_url", "image_url": {"url": "x"}}]}],
    },
    "no user": {"messages": [{"role": "system", "content": SEALED[0]}]},
    "no messages": {"messages": None},
    "nothing said": {"messages": [{"role": "user", "content": ""}]},
    "a question that the task cannot answer": {"messages": [{"role": "user", "content": SEALED[0]}, {"role": "user", "content": "Why?"}]},
    "the train side": {"messages": [{"role": "user", "content": next(prompt for prompt in PROMPTS if prompt not in SEALED)}]},
}


@pytest.mark.parametrize("sentence", PASSED_OVER)
def test_a_request_is_passed_over_that_is(sentence: str, tmp_path: Path) -> None:
    capture(tmp_path, SEALED[1:ITEMS])
    training.write_segment(tmp_path / "data", [training.reply(999, **PASSED_OVER[sentence])], name="pod-7-b1-0.jsonl.zst", frames=1)
    with pytest.raises(ItemSupply, match=rf"{ITEMS - 1}, {ITEMS} are needed"):
        draw(tmp_path)


def test_a_conversation_of_several_turns_is_asked_as_it_was_asked(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": SEALED[0]}]},
        {"role": "assistant", "content": "The answer is 3."},
        {"role": "user", "content": SEALED[1], "name": "jo"},
    ]
    capture(tmp_path, SEALED[2 : ITEMS + 1])
    training.write_segment(tmp_path / "data", [training.reply(999, messages=turns)], name="pod-7-b1-0.jsonl.zst", frames=1)
    (items,) = draw(tmp_path).values()
    item = next(item for item in items if len(item.messages) > 1)
    assert [message["content"] for message in item.messages] == ["Be brief.", SEALED[0], "The answer is 3.", SEALED[1]]
    assert {key for message in item.messages for key in message} == {"role", "content"}
    assert item.answer == next(each.answer for each in word_problems.stream(1500, seed=5) if first_user_message(each) == SEALED[1])


def test_for_a_judge_no_answer_is_worked_out(tmp_path: Path) -> None:
    canaries = {"uri": "suites/canaries.jsonl", "digest": evaluation.BASE}
    spec = rules().wire()
    spec["suites"][0] |= {"judge": {"url": "https://judge.example/v1", "model": "judge", "canaries": canaries}}
    del spec["suites"][0]["verifier"]
    capture(tmp_path, (*SEALED[: ITEMS - 1], *(f"What is {number}?" for number in range(200))))
    (items,) = draw(tmp_path, policy=GatePolicySpec.parse(spec)).values()
    assert {item.answer for item in items} == {None}


def test_a_task_without_a_reference_cannot_score_what_clients_asked(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    with pytest.raises(ContractError, match=r"suite target\.items\.traffic: task exact-match has no reference"):
        draw(tmp_path, policy=rules(verifier="exact-match"))


def test_a_reference_that_fails_on_what_somebody_wrote_passes_it_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(messages: Any) -> str | None:
        raise RuntimeError(messages)

    monkeypatch.setattr(conversations, "load", lambda name: Task(name, word_problems.verify, refer=fails))
    capture(tmp_path, PROMPTS)
    with pytest.raises(ItemSupply, match=f"{len(SEALED)} fresh .* answer to 0"):
        draw(tmp_path)


def test_of_a_round_that_was_changed_nobody_knows_what_it_used(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    draw(tmp_path)
    manifest = tmp_path / "sealed/channel-uid/rounds/000001/MANIFEST.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"number":1', b'"number":9'))
    with pytest.raises(ContractError, match=r"000001/MANIFEST\.json: was not written by an evaluation"):
        draw(tmp_path, 2)


def probe(root: Path, traffic_round: int | None, number: int = 1, **terms: Any) -> dict[str, tuple[Item, ...]]:
    """What a sentinel is asked."""
    ref = SentinelRef(kind="Same", number=number, traffic_round=traffic_round)
    job = evaluation.job(root, round=number, policy=rules(**terms), sentinel=ref)
    return {name: suite.items for name, suite in open_round(job, Areas.of(job), KEYS).items()}


def test_a_sentinel_is_asked_what_its_round_asked_and_takes_no_conversation_from_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(tmp_path, SEALED[: 2 * (ITEMS + 10)])
    first = draw(tmp_path, 1, policy=rules(screen=10))
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "fresh_requests", lambda *_: pytest.fail("traffic was read"))
        assert [probe(tmp_path, 1, number, screen=10) for number in (1, 2)] == [first, first]
    second = draw(tmp_path, 2, policy=rules(screen=10))
    assert not prompts_of(second["target"]) & prompts_of(first["target"])
    assert probe(tmp_path, 2, 3, screen=10) == second


UNFIT = {
    "no round is named": (None, {}, "sentinel.trafficRound: is missing, and suite target takes traffic; name a round that has ended"),
    "the round is gone": (2, {}, "sentinel.trafficRound: .*000002/MANIFEST.json.*; name a round whose items are in the sealed area"),
    "the round has no such suite": (1, {"screen": 10}, "has no suite screen; name a round that asked the same suites"),
}


@pytest.mark.parametrize(("number", "terms", "text"), UNFIT.values(), ids=UNFIT)
def test_a_sentinel_whose_round_does_not_fit_is_refused(number: int | None, terms: dict[str, Any], text: str, tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    draw(tmp_path)
    with pytest.raises(ContractError, match=text):
        probe(tmp_path, number, **terms)


def test_a_sentinel_is_refused_the_items_of_a_round_that_asked_fewer(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    draw(tmp_path)
    with pytest.raises(IntegrityError, match=rf"holds {ITEMS} items, expected {ITEMS + 1}"):
        probe(tmp_path, 1, items=ITEMS + 1)


def test_a_sentinel_is_asked_nothing_of_a_round_that_somebody_planted(tmp_path: Path) -> None:
    capture(tmp_path, PROMPTS)
    draw(tmp_path, keys=Keys(bytes(32), SPLIT))
    with pytest.raises(ContractError, match="was not written by an evaluation"):
        probe(tmp_path, 1)


@pytest.mark.parametrize("generated_first", [False, True])
def test_a_generated_and_a_captured_suite_of_a_round_share_no_conversation(
    generated_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(tmp_path, SEALED[:60])
    few = Task("few", word_problems.verify, lambda rng: single_turn(rng.choice(SEALED[:60]), "1"))
    monkeypatch.setattr(rounds, "load", lambda name: few)
    suites = evaluation.policy().wire()["suites"]
    sources = [{"traffic": {"min": 30}}, {"generator": "few", "count": 30}]
    for suite, source in zip(suites, reversed(sources) if generated_first else sources, strict=False):
        suite |= {"items": source, "verifier": "word-problems"}
    drawn = draw(tmp_path, policy=evaluation.policy(suites=suites)).values()
    assert sum(len(items) for items in drawn) == 60
    assert {first_user_message(item) for items in drawn for item in items} == set(SEALED[:60])


def test_a_message_about_supply_quotes_nobody(tmp_path: Path) -> None:
    capture(tmp_path, SEALED[:5])
    with pytest.raises(ItemSupply) as caught:
        draw(tmp_path)
    assert not any(prompt in str(caught.value) for prompt in SEALED)


def test_rounds_of_generated_items_read_no_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "fresh_requests", lambda *_: pytest.fail("traffic was read"))
    assert len(draw(tmp_path, policy=evaluation.policy())["target"]) == 40
