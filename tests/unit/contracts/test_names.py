"""Names that parts agree on stay within what Kubernetes and the engine allow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatevalve.contracts import names
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.reasons import Step

short_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@given(short_names, st.integers(0, 999_999))
def test_an_entry_name_gives_its_sequence_back(channel: str, sequence: int) -> None:
    name = names.entry_name(channel, sequence)
    assert names.entry_sequence(name) == sequence
    assert name.removesuffix(f"-{sequence:06d}") == channel


@pytest.mark.parametrize("sequence", [-1, 1_000_000])
def test_a_sequence_that_does_not_fit_six_digits_is_refused(sequence: int) -> None:
    with pytest.raises(ContractError, match="sequence"):
        names.entry_name("support", sequence)


@given(short_names, st.uuids(), st.sampled_from(Step), st.integers(0, 999))
def test_the_longest_job_name_is_a_dns_label(candidate: str, uid: object, step: Step, attempt: int) -> None:
    name = names.job_name(candidate, str(uid), step, attempt)
    assert DNS_LABEL.fullmatch(name)
    assert len(name) <= 63


def test_an_entry_and_an_adapter_are_never_confused() -> None:
    assert names.entry_name("support", 7) == "support-000007"
    assert names.adapter_name("support", "sha256:3f2a9c1d" + "0" * 56) == "support-3f2a9c1d"
