"""Canonical JSON: one value has one byte string and one name, on every machine."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.canonical import SAFE_INTEGER, Digest, canonical_json, digest_of_files, digest_of_json, sha256
from gatevalve.contracts.errors import ContractError

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

RFC_8785 = {
    "3.2.2: literals and the string with escapes": (
        '{"string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/", "literals": [null, true, false]}',
        '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    ),
    "3.2.3: keys sorted as UTF-16": (
        '{"\\u20ac": "Euro Sign", "\\r": "Carriage Return", "\\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",'
        ' "\\ud83d\\ude00": "Emoji: Grinning Face", "\\u0080": "Control", "\\u00f6": "Latin Small Letter O With Diaeresis"}',
        '{"\\r":"Carriage Return","1":"One","\x80":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign",'
        '"😀":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}',
    ),
    "appendix F of RFC 8785's test data: arrays keep their order": (
        '[56, {"d": true, "10": null, "1": []}]',
        '[56,{"1":[],"10":null,"d":true}]',
    ),
    "integers keep every digit": (f"[0, -1, {SAFE_INTEGER}]", f"[0,-1,{SAFE_INTEGER}]"),
}

REFUSED = {
    "a float": ({"a": [1, 0.5]}, "$.a[1]"),
    "a whole float": ({"a": 1.0}, "$.a"),
    "not a number": ([float("nan")], "$[0]"),
    "an integer that not every reader keeps": ({"n": SAFE_INTEGER + 1}, "$.n"),
    "a key that is no string": ({1: "x"}, "1"),
    "bytes": ({"b": b"x"}, "$.b"),
    "a lone surrogate in a value": ({"s": "\ud800"}, "$"),
    "a lone surrogate in a key": ({"\ud800": 1}, "$"),
}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(("given_text", "expected"), RFC_8785.values(), ids=RFC_8785)
def test_the_vectors_of_rfc_8785_without_floats(given_text: str, expected: str) -> None:
    assert canonical_json(json.loads(given_text)) == expected.encode()


@pytest.mark.parametrize(("value", "field"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_canonical_form_is_refused_with_its_place(value: object, field: str) -> None:
    with pytest.raises(ContractError) as refusal:
        canonical_json(value)
    assert refusal.value.field == field


@settings(max_examples=50)
@given(values)
def test_canonical_bytes_read_back_as_the_same_value(value: object) -> None:
    assert json.loads(canonical_json(value)) == value
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


@settings(max_examples=50)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_keys_were_written_does_not_change_the_name(value: dict[str, object], chance: random.Random) -> None:
    keys = list(value)
    chance.shuffle(keys)
    assert digest_of_json({key: value[key] for key in keys}) == digest_of_json(value)


@settings(max_examples=50)
@given(values, values)
def test_different_values_have_different_names(one: object, other: object) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest_of_json(one) == digest_of_json(other)) == same


@given(st.dictionaries(st.text("abc/.", min_size=1), st.tuples(st.integers(0, 10**9), st.binary().map(sha256)), max_size=5))
def test_a_set_of_files_has_one_name_however_it_is_listed(files: dict[str, tuple[int, Digest]]) -> None:
    rows = [(path, size, digest) for path, (size, digest) in files.items()]
    assert digest_of_files(rows) == digest_of_files(list(reversed(rows))) == digest_of_files(files)


def test_the_digest_of_nothing_is_the_known_one() -> None:
    assert sha256(b"") == EMPTY
