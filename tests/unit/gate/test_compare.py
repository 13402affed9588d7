"""Policies compared: every field has an order, and nothing looser passes for strict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.policy import GatePolicySpec, Suite
from gatevalve.gate.compare import POLICY, SUITE, Relation, compare, differences
from support.gate_cases import policy_of

OLD = policy_of()
OPPOSITE = {Relation.STRICTER: Relation.LOOSER, Relation.LOOSER: Relation.STRICTER}

Path = tuple[str | int, ...]
PRIMARY, GUARD, MANNERS = (("suites", index) for index in range(3))


def changed(*changes: tuple[Path, Any]) -> GatePolicySpec:
    """The policy with values at some paths replaced; None removes."""
    spec = OLD.wire()
    for path, value in changes:
        parent: Any = spec
        for step in path[:-1]:
            parent = parent[step]
        if value is None:
            del parent[path[-1]]
        else:
            parent[path[-1]] = value
    return GatePolicySpec.parse(spec)


EXTRA = {**OLD.suites[1].wire(), "name": "extra"}
ROUND, EVIDENCE, LENGTHS = ("round",), ("evidence",), ("behaviour", "lengthRatioPercent")

STRICTER: dict[str, tuple[tuple[Path, Any], ...]] = {
    "more items": (((*PRIMARY, "items", "count"), 41),),
    "a greater least gain": (((*PRIMARY, "minEffectBasisPoints"), 51),),
    "a smaller margin": (((*GUARD, "marginBasisPoints"), 399),),
    "a higher floor": (((*GUARD, "floorBasisPoints"), 9001),),
    "a smaller error rate of a round": (((*ROUND, "alphaBasisPoints"), 499),),
    "more tests that share the error rate": (((*ROUND, "maxTests"), 11),),
    "a smaller error rate of guards": ((("guardAlphaBasisPoints",), 99),),
    "longer replies at least": (((*LENGTHS, "min"), 71),),
    "shorter replies at most": (((*LENGTHS, "max"), 134),),
    "fewer answers missing": (((*EVIDENCE, "maxMissingBasisPoints"), 99),),
    "more clusters": (((*EVIDENCE, "minClusters"), 31),),
    "one suite more": ((("suites",), [*OLD.wire()["suites"], EXTRA]),),
    "two things at once": (((*ROUND, "maxTests"), 20), ((*EVIDENCE, "minClusters"), 35)),
}

INCOMPARABLE: dict[str, tuple[tuple[Path, Any], ...]] = {
    "another generator": (((*PRIMARY, "items", "generator"), "riddles"),),
    "another file": (((*GUARD, "items", "digest"), sha256(b"others")),),
    "another path of the file": (((*GUARD, "items", "uri"), "suites/others.jsonl"),),
    "a file instead of a generator": (((*PRIMARY, "items"), {"uri": "suites/a.jsonl", "digest": sha256(b"a")}),),
    "another verifier": (((*GUARD, "verifier"), "contains"),),
    "another temperature": (((*PRIMARY, "sampling", "temperature"), "0.7"),),
    "longer replies": (((*PRIMARY, "sampling", "maxTokens"), 96),),
    "more decodes": (((*PRIMARY, "decodes"), 3),),
    "the guard under another name": (((*GUARD, "name"), "renamed"),),
    "a guard that only has to behave": ((GUARD, {**OLD.suites[2].wire(), "name": "regression"}),),
    "stricter here and looser there": (((*ROUND, "alphaBasisPoints"), 400), ((*ROUND, "maxTests"), 4)),
    "the suites in another order": ((("suites",), OLD.wire()["suites"][::-1]),),
}


@pytest.mark.parametrize("sentence", STRICTER)
def test_a_policy_is_stricter_with(sentence: str) -> None:
    assert compare(OLD, changed(*STRICTER[sentence])) is Relation.STRICTER


@pytest.mark.parametrize("sentence", STRICTER)
def test_a_policy_is_looser_without(sentence: str) -> None:
    assert compare(changed(*STRICTER[sentence]), OLD) is Relation.LOOSER


@pytest.mark.parametrize("sentence", INCOMPARABLE)
def test_a_policy_cannot_be_compared_with(sentence: str) -> None:
    assert compare(OLD, changed(*INCOMPARABLE[sentence])) is Relation.INCOMPARABLE


@pytest.mark.parametrize("suite", [1, 2], ids=["a guard", "a behaviour suite"])
def test_a_policy_is_looser_when_it_lacks(suite: int) -> None:
    suites = OLD.wire()["suites"]
    assert compare(OLD, changed((("suites",), suites[:suite] + suites[suite + 1 :]))) is Relation.LOOSER


def test_one_looser_field_outweighs_any_number_of_stricter_ones() -> None:
    stricter = [change for changes in list(STRICTER.values())[:4] for change in changes]
    new = changed(*stricter, (("guardAlphaBasisPoints",), 101))
    assert compare(OLD, new) is Relation.INCOMPARABLE


def test_what_is_looser_is_named_as_people_write_it() -> None:
    found = differences(OLD, changed(((*GUARD, "marginBasisPoints"), 500), ((*LENGTHS, "min"), 60)))
    assert [(item.field, item.relation) for item in found] == [
        ("suite regression marginBasisPoints", Relation.LOOSER),
        ("behaviour.lengthRatioPercent.min", Relation.LOOSER),
    ]


# ---- every field has an order


def leaves(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The fields of a contract and of the contracts in it, as they are written."""
    for name, field in model.model_fields.items():
        where = before + (field.alias or name)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from leaves(inner, f"{where}.")
        else:
            yield where


def test_every_field_of_a_suite_but_the_name_that_matches_it_has_an_order() -> None:
    assert sorted(leaves(Suite)) == sorted(["name", *(line.field for line in SUITE)])


def test_every_field_of_a_policy_but_the_suites_has_an_order() -> None:
    assert sorted(leaves(GatePolicySpec)) == sorted(["suites", *(line.field for line in POLICY)])


# ---- properties


@st.composite
def policies(draw: st.DrawFn) -> GatePolicySpec:
    """The policy with some of the changes above, in either direction, with or without the other suites."""
    spec = OLD.wire()
    number = st.integers(-1, 1)
    primary, guard, manners = spec["suites"]
    primary["minEffectBasisPoints"] += draw(number)
    primary["items"]["count"] += draw(number)
    primary["decodes"] += draw(number)
    guard["marginBasisPoints"] += draw(number)
    guard["floorBasisPoints"] += draw(number)
    spec["round"] = {"alphaBasisPoints": 500 + 100 * draw(number), "maxTests": 10 + 2 * draw(number)}
    spec["evidence"]["minClusters"] += draw(number)
    spec["behaviour"]["lengthRatioPercent"]["min"] += draw(number)
    spec["suites"] = draw(st.permutations([primary, *draw(st.sampled_from([[], [guard], [manners], [guard, manners]]))]))
    return GatePolicySpec.parse(spec)


@given(policies(), policies())
@settings(max_examples=300, deadline=None)
def test_seen_from_the_other_side_the_relation_is_the_opposite(one: GatePolicySpec, other: GatePolicySpec) -> None:
    relation = compare(one, other)
    assert compare(other, one) is OPPOSITE.get(relation, relation)


@given(policies(), policies())
@settings(max_examples=300, deadline=None)
def test_only_one_policy_is_equal_to_itself(one: GatePolicySpec, other: GatePolicySpec) -> None:
    assert (compare(one, other) is Relation.EQUAL) == (one.digest_of() == other.digest_of())


@given(policies(), policies(), policies())
@settings(max_examples=300, deadline=None)
def test_stricter_than_the_stricter_one_is_stricter(one: GatePolicySpec, two: GatePolicySpec, three: GatePolicySpec) -> None:
    if compare(one, two) is compare(two, three) is Relation.STRICTER:
        assert compare(one, three) is Relation.STRICTER
