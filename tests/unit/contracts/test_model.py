"""The shared field types, where a pattern alone says too little."""

import pytest
from pydantic import TypeAdapter, ValidationError

from gatevalve.contracts.model import Timestamp

INSTANTS = ["2026-11-29T18:00:00Z", "2026-11-29T18:00:00.5Z", "2024-02-29T23:59:59.999999Z", "0001-01-01T00:00:00Z"]
NONE = ["2026-99-99T99:99:99Z", "2026-02-29T00:00:00Z", "2026-01-01T25:00:00Z", "2026-01-01T00:00:60Z", "0000-01-01T00:00:00Z"]


@pytest.mark.parametrize("text", INSTANTS)
def test_an_instant_of_the_calendar_is_taken_as_it_is(text: str) -> None:
    assert TypeAdapter(Timestamp).validate_python(text) == text


@pytest.mark.parametrize("text", NONE)
def test_digits_that_are_no_instant_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="no instant of the calendar"):
        TypeAdapter(Timestamp).validate_python(text)
