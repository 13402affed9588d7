"""The keyed split: the same question is on one side for ever, and the sides have their shares."""

from __future__ import annotations

from collections import Counter

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve_trainer.split import normalised, split_key_from_environment, split_side

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("text", "side"),
    [("question 0", "train"), ("question 1", "train"), ("question 20", "sealed"), ("question 139", "drift"), ("", "train")],
)
def test_the_side_of_a_text_never_changes(text: str, side: str) -> None:
    assert split_side(KEY, text) == side


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many apples?", "how MANY apples?"),
        ("How many apples?", "  How\n\tmany   apples? "),
        ("How many ４ apples?", "How many 4 apples?"),
        ("caf\u00e9", "cafe\u0301"),
    ],
)
def test_texts_that_differ_only_in_width_case_or_spacing_are_equal(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


def test_texts_that_differ_in_a_digit_are_not_equal() -> None:
    assert normalised("4 apples") != normalised("5 apples")


def test_the_sides_have_their_shares() -> None:
    count = Counter(split_side(KEY, f"question {number}") for number in range(20_000))
    assert {side: round(count[side] / 200) for side in count} == {"train": 90, "sealed": 8, "drift": 2}


def test_another_key_gives_another_split() -> None:
    texts = [f"question {number}" for number in range(1000)]
    assert [split_side(KEY, text) for text in texts] != [split_side(b"another key, long enough", text) for text in texts]


def test_a_lone_surrogate_has_a_side() -> None:
    assert split_side(KEY, "\ud800") in ("train", "sealed", "drift")


@pytest.mark.parametrize(("value", "problem"), [(None, "0 bytes"), ("00ff", "2 bytes"), ("not hex", "hexadecimal")])
def test_a_key_that_is_no_key_is_refused(monkeypatch: pytest.MonkeyPatch, value: str | None, problem: str) -> None:
    monkeypatch.delenv("GATEVALVE_SPLIT_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("GATEVALVE_SPLIT_KEY", value)
    with pytest.raises(ContractError, match=problem):
        split_key_from_environment()
