"""Every state, reason, finding and exit code has one sentence of its own."""

import inspect

import pytest

from gatevalve.contracts import reasons
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.reasons import Explained

ENUMS = [thing for _, thing in inspect.getmembers(reasons, inspect.isclass) if issubclass(thing, Explained) and thing is not Explained]


@pytest.mark.parametrize("enum", ENUMS)
def test_every_member_has_a_sentence(enum: type[Explained]) -> None:
    for member in enum:
        assert member.sentence.endswith("."), f"{enum.__name__}.{member.name} has no sentence"


@pytest.mark.parametrize("enum", ENUMS)
def test_values_are_words_of_their_own(enum: type[Explained]) -> None:
    assert all(value.isascii() and value.isalnum() for value in enum)
    assert len({member.sentence for member in enum}) == len(list(enum))


def test_every_exit_code_has_a_sentence_and_is_one_that_a_process_can_return() -> None:
    for code in ExitCode:
        assert code.sentence.endswith(".")
        assert 0 <= code <= 255
