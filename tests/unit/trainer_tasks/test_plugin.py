import math
from collections.abc import Callable
from pathlib import Path

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.files import Item
from gatevalve_trainer.tasks import exact_match
from gatevalve_trainer.tasks.plugin import Task, checked_score, first_user_message, load, single_turn

ITEM = single_turn("Last of: Ann Ben", "Ben")


def raises(item: Item, text: str) -> float:
    raise RuntimeError("boom")


SCORES: dict[str, tuple[Callable[[Item, str], float], float | None]] = {
    "a score in range is kept": (lambda item, text: 0.25, 0.25),
    "nought is a score": (lambda item, text: 0, 0.0),
    "one is a score": (lambda item, text: 1, 1.0),
    "a verifier that raises gives no score": (raises, None),
    "not a number gives no score": (lambda item, text: math.nan, None),
    "infinity gives no score": (lambda item, text: math.inf, None),
    "more than one gives no score": (lambda item, text: 1.01, None),
    "less than nought gives no score": (lambda item, text: -0.01, None),
    "a word gives no score": (lambda item, text: "good", None),  # type: ignore[dict-item, return-value]
    "nothing gives no score": (lambda item, text: None, None),  # type: ignore[dict-item, return-value]
}


@pytest.mark.parametrize(("verify", "score"), SCORES.values(), ids=SCORES)
def test_only_a_finite_score_between_nought_and_one_counts(verify: Callable[[Item, str], float], score: float | None) -> None:
    assert checked_score(Task("t", verify), ITEM, "x") == score


MATCHES = {
    "the same text": ("Ben", 1.0),
    "another text": ("Ann", 0.0),
    "a space more": ("Ben ", 0.0),
    "another case": ("ben", 0.0),
    "": ("", 0.0),
}


@pytest.mark.parametrize(("text", "score"), MATCHES.values(), ids=MATCHES)
def test_exact_match_compares_every_character(text: str, score: float) -> None:
    assert exact_match.verify(ITEM, text) == score


def test_exact_match_cannot_score_an_item_without_an_answer() -> None:
    assert checked_score(exact_match.TASK, ITEM.model_copy(update={"answer": None}), "Ben") is None


@pytest.mark.parametrize("name", ["word-problems", "exact-match"])
def test_built_in_tasks_are_found_by_name(name: str) -> None:
    assert load(name).name == name


def test_an_unknown_task_is_refused_with_the_installed_ones() -> None:
    with pytest.raises(ContractError, match=r"task chess: is not installed .* name one of: exact-match, word-problems"):
        load("chess")


BROKEN = {
    "a plug-in that cannot be imported": ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
    "an entry point that is no task": ("TASK = 'word'", "is a str"),
}


@pytest.mark.parametrize(("source", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plug_in_says_what_is_wrong(source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "broken_task", source)
    with pytest.raises(ContractError, match=says):
        load("broken-task")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str) -> None:
    (folder / f"{module}.py").write_text(source)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[gatevalve.tasks]\n{module.replace('_', '-')} = {module}:TASK\n")
    monkeypatch.syspath_prepend(folder)


def test_equal_prompts_have_equal_ids_and_other_prompts_others() -> None:
    assert single_turn("a", "1").id == single_turn("a", "2").id
    assert single_turn("a", "1").id != single_turn("b", "1").id


def test_the_first_user_message_decides_the_side() -> None:
    messages = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "first"}, {"role": "user", "content": "second"})
    assert first_user_message(Item(id="i", cluster="i", messages=messages)) == "first"


def test_an_item_without_a_user_message_is_refused() -> None:
    with pytest.raises(ContractError, match="no user message"):
        first_user_message(Item(id="i", cluster="i", messages=({"role": "system", "content": "be brief"},)))
