import itertools
import random
import shutil
from pathlib import Path

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import ARMS, Item, RoundManifest
from gatevalve.contracts.kinds import SentinelRef
from gatevalve_trainer.errors import ItemSupply
from gatevalve_trainer.evaluate import items, rounds
from gatevalve_trainer.evaluate.items import draw, from_lines, to_lines
from gatevalve_trainer.evaluate.marks import mark_of
from gatevalve_trainer.evaluate.rounds import Areas, Keys
from gatevalve_trainer.evaluate.seeds import drawing_seed, request_seed, seal_seed_from_environment
from gatevalve_trainer.evaluate.suites import load_suites
from gatevalve_trainer.split import normalised, split_side
from gatevalve_trainer.tasks import exact_match, word_problems
from gatevalve_trainer.tasks.plugin import Task, first_user_message, single_turn
from support import evaluation
from support.evaluation import SEAL, SPLIT, job, policy, write_suites


def drawn(seal: bytes = SEAL, channel: str = "channel-uid", number: int = 3, suite: str = "target") -> tuple[Item, ...]:
    return draw(word_problems.TASK, 40, random.Random(drawing_seed(seal, channel, number, suite)), SPLIT)


def test_the_same_round_draws_the_same_items() -> None:
    assert drawn() == drawn()


OTHERS = {
    "another round": drawn(number=4),
    "another channel": drawn(channel="other-uid"),
    "another suite": drawn(suite="second"),
    "another sealed seed": drawn(seal=bytes(32)),
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_anything_else_draws_other_items(others: tuple[Item, ...]) -> None:
    assert len({item.id for item in others} & {item.id for item in drawn()}) <= 1


def test_items_are_distinct_and_on_the_sealed_side_only() -> None:
    found = drawn()
    assert len({first_user_message(item) for item in found}) == len({item.id for item in found}) == 40
    assert {split_side(SPLIT, first_user_message(item)) for item in found} == {"sealed"}


def test_a_generator_that_repeats_itself_runs_dry_with_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "BARREN_DRAWS", 500)
    sealed = first_user_message(drawn()[0])
    with pytest.raises(ContractError, match="task parrot: supplies only 1 sealed items, 2 are needed: 500 more draws"):
        draw(Task("parrot", exact_match.verify, lambda rng: single_turn(sealed, "1")), 2, random.Random(1), SPLIT)


def test_a_task_without_a_generator_cannot_supply_a_round() -> None:
    with pytest.raises(ContractError, match="task exact-match: generates no items"):
        draw(exact_match.TASK, 1, random.Random(1), SPLIT)


FILES = {
    "no lines": (b"", "holds no items"),
    "a line that is no item": (b'{"id":"a"}\n', "suite x line 1: Item"),
    "a line that is no JSON": (to_lines(evaluation.REGRESSION[:1]) + b"{\n", "suite x line 2"),
    "an item twice": (to_lines(evaluation.REGRESSION[:1] * 2), "line 2 repeats the id of an earlier item"),
}


@pytest.mark.parametrize(("raw", "says"), FILES.values(), ids=FILES)
def test_a_bad_item_file_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        from_lines("suite x", raw)


def test_items_are_read_as_they_were_written() -> None:
    assert from_lines("suite x", to_lines(evaluation.REGRESSION)) == evaluation.REGRESSION


def test_request_seeds_differ_by_round_test_suite_item_and_arm_and_by_nothing_else() -> None:
    seeds = {
        request_seed(number, test, suite, item, arm)
        for number in (1, 2)
        for test in (1, 2)
        for suite in ("a", "b")
        for item in ("i", "j")
        for arm in ("candidate", "incumbent", "anchor")
    }
    assert len(seeds) == 40  # the anchor's eight are the same in both tests
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert request_seed(1, 2, "a", "i", "candidate") == request_seed(1, 2, "a", "i", "candidate")


def test_only_the_anchors_request_seeds_are_the_same_in_every_test_of_a_round() -> None:
    same = {arm: request_seed(1, 1, "a", "i", arm) == request_seed(1, 2, "a", "i", arm) for arm in ARMS}
    assert same == {"candidate": False, "incumbent": False, "anchor": True}


SEALS = {"absent": (None, "holds 0 bytes"), "short": ("00ff", "holds 2 bytes"), "not hex": ("secret!", "not hexadecimal")}


@pytest.mark.parametrize(("value", "says"), SEALS.values(), ids=SEALS)
def test_a_bad_sealed_seed_is_refused_without_showing_it(value: str | None, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEVALVE_SEAL_SEED", raising=False)
    if value is not None:
        monkeypatch.setenv("GATEVALVE_SEAL_SEED", value)
    with pytest.raises(ContractError, match=says) as caught:
        seal_seed_from_environment()
    assert value is None or value not in str(caught.value)


def load(root: Path, **changes: object) -> dict[str, tuple[Item, ...]]:
    work = job(root, **changes)
    return {suite.suite.name: suite.items for suite in load_suites(work, Areas.of(work), Keys(SEAL, SPLIT))}


def test_suites_come_in_the_order_of_the_policy_with_drawn_and_fixed_items(tmp_path: Path) -> None:
    write_suites(tmp_path)
    assert load(tmp_path) == {"target": drawn(), "regression": evaluation.REGRESSION, "manners": evaluation.MANNERS}


def test_a_round_that_exists_is_reused_and_not_drawn_again(tmp_path: Path) -> None:
    write_suites(tmp_path)
    first = load(tmp_path)
    work = job(tmp_path)
    again = load_suites(work, Areas.of(work), Keys(SEAL, bytes(32)))  # another split would draw other items
    assert again[0].items == first["target"]


SCREENED = policy(futility={"items": 20, "alphaBasisPoints": 5000})


def test_the_screen_comes_first_with_items_of_its_own(tmp_path: Path) -> None:
    write_suites(tmp_path)
    found = load(tmp_path, policy=SCREENED)
    assert [(name, len(items)) for name, items in found.items()] == [("screen", 20), ("target", 40), ("regression", 30), ("manners", 10)]
    assert not {item.id for item in found["screen"]} & {item.id for item in found["target"]}


def test_the_screen_is_drawn_around_the_primary_which_does_not_depend_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator of sixty sealed prompts has to give the twenty that the Primary leaves."""
    write_suites(tmp_path)
    assert load(tmp_path, policy=SCREENED)["target"] == drawn()
    sealed = sorted(first_user_message(item) for item in draw(word_problems.TASK, 60, random.Random(1), SPLIT))
    few = Task("few", exact_match.verify, lambda rng: single_turn(rng.choice(sealed), "1"))
    monkeypatch.setattr(rounds, "load", lambda name: few)
    found = load(tmp_path, policy=SCREENED, round=4)
    assert sorted(first_user_message(item) for item in (*found["screen"], *found["target"])) == sealed


NINETY = tuple(sorted(first_user_message(item) for item in draw(word_problems.TASK, 90, random.Random(1), SPLIT)))
TEN_MORE = tuple(f"  {prompt.upper()} " for prompt in NINETY[:10])
"""The same conversations in other letters."""


def generator(monkeypatch: pytest.MonkeyPatch, *prompts: str) -> None:
    """Every task generates these prompts and no others, under ids that tell nothing of them."""
    monkeypatch.setattr(items, "BARREN_DRAWS", 3000)
    counter = itertools.count()

    def generate(rng: random.Random) -> Item:
        return single_turn(rng.choice(prompts), "1").model_copy(update={"id": f"item-{next(counter)}"})

    monkeypatch.setattr(rounds, "load", lambda name: Task("few", exact_match.verify, generate))


def generated(root: Path, number: int = 1, count: int = 30, **changes: object) -> set[str]:
    """Conversations of the generated items of a round, drawn as a round is."""
    rules = policy(suites=[policy().wire()["suites"][0] | {"items": {"generator": "few", "count": count}}])
    work = job(root, policy=rules, round=number, **changes)
    (items,) = (suite.items for suite in rounds.open_round(work, Areas.of(work), Keys(SEAL, SPLIT)).values())
    found = {normalised(first_user_message(item)) for item in items}
    assert len(found) == len(items) == count
    return found


def test_no_generated_item_is_asked_in_two_rounds_and_when_all_were_used_the_round_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator(monkeypatch, *NINETY, *TEN_MORE)
    assert set().union(*(generated(tmp_path, number) for number in (1, 2, 3))) == {normalised(prompt) for prompt in NINETY}
    with pytest.raises(
        ItemSupply, match="task few: supplies 0 fresh sealed items, 30 are needed: earlier rounds and sentinels hold 90 more"
    ):
        generated(tmp_path, 4)
    assert sorted(path.name for path in (tmp_path / "sealed/channel-uid/rounds").iterdir()) == ["000001", "000002", "000003"]


def test_a_generator_that_could_not_supply_a_first_round_is_told_so_also_in_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator(monkeypatch, *NINETY, *TEN_MORE)
    generated(tmp_path, 1)
    with pytest.raises(ContractError, match="task few: supplies only 90 sealed items, 91 are needed"):
        generated(tmp_path, 2, count=91)


def test_what_a_sentinel_was_asked_no_round_and_no_later_sentinel_generates_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator(monkeypatch, *NINETY)
    asked = [
        generated(tmp_path, 1, sentinel=SentinelRef(kind="Same", number=1)),
        generated(tmp_path, 1),
        generated(tmp_path, 2, sentinel=SentinelRef(kind="Bad", number=2)),
    ]
    assert len(set().union(*asked)) == 90
    with pytest.raises(ItemSupply):
        generated(tmp_path, 3, sentinel=SentinelRef(kind="Same", number=3))


def test_generated_rounds_of_the_same_past_are_the_same_and_a_drawn_one_stays_whatever_becomes_of_its_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root in (tmp_path / "a", tmp_path / "b"):
        generator(monkeypatch, *NINETY)
        generated(root, 1)
    drawn = generated(tmp_path / "a", 2)
    assert generated(tmp_path / "b", 2) == drawn
    (tmp_path / "a/sealed/channel-uid/rounds/000001/MANIFEST.json").write_text("planted")
    assert generated(tmp_path / "a", 2) == drawn
    shutil.rmtree(tmp_path / "a/sealed/channel-uid/rounds/000001")
    assert generated(tmp_path / "a", 2) == drawn


def test_two_suites_of_a_round_share_no_generated_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator(monkeypatch, *NINETY)
    target, regression, manners = policy().wire()["suites"]
    suites = [target | {"items": {"generator": "few", "count": 50}}, regression | {"items": {"generator": "few", "count": 40}}, manners]
    work = job(tmp_path, policy=policy(suites=suites))
    drawn = rounds.open_round(work, Areas.of(work), Keys(SEAL, SPLIT))
    assert {first_user_message(item) for suite in drawn.values() for item in suite.items} == set(NINETY)


def test_another_round_is_another_directory(tmp_path: Path) -> None:
    write_suites(tmp_path)
    load(tmp_path)
    load(tmp_path, round=4)
    assert sorted(path.name for path in (tmp_path / "sealed/channel-uid/rounds").iterdir()) == ["000003", "000004"]


def test_a_round_drawn_under_another_policy_is_not_reused(tmp_path: Path) -> None:
    write_suites(tmp_path)
    load(tmp_path)
    with pytest.raises(ContractError, match="round 3: was drawn for another channel or policy"):
        load(tmp_path, policy=policy(guardAlphaBasisPoints=50))


def test_sealed_items_that_were_changed_are_refused(tmp_path: Path) -> None:
    write_suites(tmp_path)
    load(tmp_path)
    path = tmp_path / "sealed/channel-uid/rounds/000003/items-target.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"kind":"buy"', b'"kind":"bye"'))
    with pytest.raises(IntegrityError, match=r"items-target\.jsonl"):
        load(tmp_path)


def planted(root: Path, seal: bytes | None) -> None:
    """A round with easy items, right in every name and digest, as somebody without the seal leaves it."""
    write_suites(root)
    load(root)
    directory = root / "sealed/channel-uid/rounds/000003"
    raw = to_lines(tuple(single_turn(f"Say 1, please ({number})", "1") for number in range(40)))
    manifest = RoundManifest.parse_json((directory / "MANIFEST.json").read_bytes())
    facts = tuple(fact.model_copy(update={"sha256": sha256(raw)}) for fact in manifest.suites)
    unmarked = manifest.model_copy(update={"suites": facts, "mark": None})
    mark = None if seal is None else mark_of(seal, "round", unmarked.canonical())
    (directory / "items-target.jsonl").write_bytes(raw)
    (directory / "MANIFEST.json").write_bytes(unmarked.model_copy(update={"mark": mark}).canonical())


@pytest.mark.parametrize("seal", [None, bytes(32)], ids=["without a mark", "with a mark of another seal"])
def test_items_that_no_evaluation_drew_are_refused(seal: bytes | None, tmp_path: Path) -> None:
    planted(tmp_path, seal)
    with pytest.raises(ContractError, match=r"MANIFEST\.json: was not written by an evaluation"):
        load(tmp_path)


def test_a_round_that_is_a_link_to_another_is_refused(tmp_path: Path) -> None:
    write_suites(tmp_path)
    load(tmp_path)
    (tmp_path / "sealed/channel-uid/rounds/000004").symlink_to("000003")
    with pytest.raises(ContractError, match="round 4: was drawn for another channel or policy"):
        load(tmp_path, round=4)


def test_a_fixed_suite_with_other_bytes_names_the_suite(tmp_path: Path) -> None:
    write_suites(tmp_path, regression=evaluation.REGRESSION[1:])
    with pytest.raises(ContractError, match=r"suite regression\.items\.digest: suites/regression\.jsonl has digest"):
        load(tmp_path)


def test_a_fixed_suite_that_is_absent_names_the_suite(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"suite regression\.items\.uri: suites/regression\.jsonl: does not exist"):
        load(tmp_path)


@pytest.mark.parametrize("uri", ["../sealed/x.jsonl", "/etc/passwd", "suites/../../x"])
def test_a_fixed_suite_stays_in_the_data_area(uri: str, tmp_path: Path) -> None:
    spec = policy().wire()
    spec["suites"][1]["items"] = {"uri": uri, "digest": sha256(b"")}
    with pytest.raises(ContractError, match="leaves the data area"):
        load(tmp_path, policy=policy(suites=spec["suites"]))
