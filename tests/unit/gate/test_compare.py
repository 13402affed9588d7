"""Policies compared: every field has an order, and nothing looser passes for strict."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, TypeGuard, get_args

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
ROUND, EVIDENCE, BEHAVIOUR, FUTILITY = ("round",), ("evidence",), ("behaviour",), ("futility",)
LENGTHS = (*BEHAVIOUR, "lengthRatioPercent")

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
    "a smaller share of the gain by length": (((*BEHAVIOUR, "maxGainByLengthPercent"), 50),),
    "less repetition": (((*BEHAVIOUR, "maxRepetitionBasisPoints"), 499),),
    "less truncation": (((*BEHAVIOUR, "maxTruncationBasisPoints"), 499),),
    "more distinct replies": (((*BEHAVIOUR, "minDiversityPercent"), 76),),
    "nearer to the incumbent": (((*BEHAVIOUR, "maxKlMillinatsPerToken"), 499),),
    "nearer to the anchor": (((*BEHAVIOUR, "maxAnchorKlMillinatsPerToken"), 1999),),
    "less change of format": (((*BEHAVIOUR, "maxFormatShiftBasisPoints"), 499),),
    "less text for a judge": (((*BEHAVIOUR, "maxJudgeTextBasisPoints"), 49),),
    "less avoidance": (((*BEHAVIOUR, "maxAvoidanceBasisPoints"), 199),),
    "fewer answers lost": (((*BEHAVIOUR, "maxExcessNegativeFlipBasisPoints"), 499),),
    "a screen": (((*FUTILITY, "items"), 20),),
    "a screen that ends more candidates": (((*FUTILITY, "alphaBasisPoints"), 4999),),
    "sentinels": ((("sentinels", "everyCandidates"), 20),),
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


def test_screens_of_two_sizes_cannot_be_compared() -> None:
    small, large = (changed(((*FUTILITY, "items"), items)) for items in (20, 60))
    assert (compare(small, large), compare(large, small)) == (Relation.INCOMPARABLE, Relation.INCOMPARABLE)


@pytest.mark.parametrize(("before", "after"), [(50, 20), (0, 10_000)])
def test_a_gate_that_is_probed_more_often_is_stricter(before: int, after: int) -> None:
    rare, frequent = (changed((("sentinels", "everyCandidates"), every)) for every in (before, after))
    assert (compare(rare, frequent), compare(frequent, rare)) == (Relation.STRICTER, Relation.LOOSER)


@pytest.mark.parametrize(("every", "relation"), [(20, Relation.INCOMPARABLE), (0, Relation.STRICTER)])
def test_traffic_that_no_round_has_asked_yet_puts_sentinels_off_and_is_not_stricter_although_it_asks_for_more(
    every: int, relation: Relation
) -> None:
    probed = changed((("sentinels", "everyCandidates"), every))
    guard = {**EXTRA, "items": {"traffic": {"min": 100}}, "marginBasisPoints": 10_000, "floorBasisPoints": 0}
    on_traffic = GatePolicySpec.parse({**probed.wire(), "suites": [*probed.wire()["suites"], guard]})
    assert compare(probed, on_traffic) is relation


TRAFFIC = {key: value for key, value in OLD.wire()["suites"][0].items() if key != "verifier"} | {
    "items": {"traffic": {"min": 100}},
    "judge": {"url": "http://judge.example", "model": "judge", "canaries": {"uri": "suites/a.jsonl", "digest": sha256(b"a")}},
}


@pytest.mark.parametrize(("every", "relation"), [(20, Relation.INCOMPARABLE), (0, Relation.STRICTER)])
def test_more_tests_in_a_round_on_traffic_put_sentinels_off(every: int, relation: Relation) -> None:
    on_traffic = ((PRIMARY, TRAFFIC), (("sentinels", "everyCandidates"), every))
    assert compare(changed(*on_traffic), changed(*on_traffic, ((*ROUND, "maxTests"), 11))) is relation


def test_sentinels_on_traffic_are_stricter_than_none() -> None:
    off, on = (changed((PRIMARY, TRAFFIC), (("sentinels", "everyCandidates"), every)) for every in (0, 20))
    assert (compare(off, on), compare(on, off)) == (Relation.STRICTER, Relation.LOOSER)


def test_more_traffic_is_stricter() -> None:
    few, many = (changed((PRIMARY, TRAFFIC | {"items": {"traffic": {"min": least}}})) for least in (100, 200))
    assert (compare(few, many), compare(many, few)) == (Relation.STRICTER, Relation.LOOSER)


@pytest.mark.parametrize("field", ["url", "model", "canaries"])
def test_another_judge_cannot_be_compared(field: str) -> None:
    other = {"url": "http://other.example", "model": "other", "canaries": {"uri": "suites/b.jsonl", "digest": sha256(b"b")}}
    judge: Any = TRAFFIC["judge"]
    new = changed((PRIMARY, TRAFFIC | {"judge": judge | {field: other[field]}}))
    assert compare(changed((PRIMARY, TRAFFIC)), new) is Relation.INCOMPARABLE


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


WHOLE = {"judge"}
"""What is the same or another thing, whichever of its fields differ."""


def leaves(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The fields of a contract and of the contracts in it, as they are written."""
    for name, field in model.model_fields.items():
        where = before + (field.alias or name)
        options = get_args(field.annotation)
        inner = next((kind for kind in (options if NoneType in options else (field.annotation,)) if _is_contract(kind)), None)
        if inner is not None and where not in WHOLE:
            yield from leaves(inner, f"{where}.")
        else:
            yield where


def _is_contract(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


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
    spec["futility"]["items"] = draw(st.sampled_from([0, 0, 20, 30]))
    spec["sentinels"]["everyCandidates"] = draw(st.sampled_from([0, 0, 10]))
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
