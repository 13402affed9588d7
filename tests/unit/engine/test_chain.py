"""The chain: a log that was edited, cut, forged or taken over is told apart from one that was not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.kinds import AdapterReleaseSpec, Opening
from gatevalve.contracts.reasons import Action
from gatevalve.engine.chain import Chain, belongs_to, compare, copy_of, every_problem, exported, read_link, verify_chain
from gatevalve.io.ports import KubeObject
from gatevalve.io.signing import Signer
from support.engine_world import CHANNEL_UID, DIGEST, draft, release_object, sealed_log, signer


@pytest.fixture
def key(tmp_path: Path) -> Signer:
    return signer(tmp_path)


def things(key: Signer, count: int = 4) -> list[KubeObject]:
    return [release_object(entry) for entry in sealed_log(key, *(draft(n) for n in range(count)))]


def chain_of(key: Signer, objects: list[KubeObject]) -> Chain:
    return verify_chain("support", objects, lambda thing: read_link(thing, key.verify_key))


def copies_of(objects: list[KubeObject]) -> dict[tuple[str, int], Any]:
    return {(o["spec"]["channel"]["uid"], o["spec"]["sequence"]): sha256(copy_of(o["spec"])) for o in objects}


def test_a_signed_gapless_log_is_sound_in_whatever_order_it_is_listed(key: Signer) -> None:
    objects = things(key)
    chain = chain_of(key, [objects[2], objects[0], objects[3], objects[1]])
    assert chain.problem is None
    assert [link.spec.sequence for link in chain.links] == [0, 1, 2, 3]


def test_a_log_without_entries_is_sound(key: Signer) -> None:
    assert chain_of(key, []) == Chain(())


def _edit(objects: list[KubeObject], key: Signer) -> None:
    objects[2]["spec"]["message"] = "edited"


def _gap(objects: list[KubeObject], key: Signer) -> None:
    del objects[2]


def _start(objects: list[KubeObject], key: Signer) -> None:
    del objects[0]


def _replaced(objects: list[KubeObject], index: int, entry: AdapterReleaseSpec) -> None:
    objects[index] = release_object(entry)


def _relink(objects: list[KubeObject], key: Signer) -> None:
    _replaced(objects, 2, key.seal(draft(2, actor="other"), DIGEST))


def _rewrite(objects: list[KubeObject], key: Signer) -> None:
    """An entry in the middle signed anew: itself sound, but its follower names the old one."""
    _replaced(objects, 2, key.seal(draft(2, actor="other"), objects[1]["spec"]["digest"]))


def _foreign_uid(objects: list[KubeObject], key: Signer) -> None:
    _replaced(objects, 3, key.seal(draft(3, uid="another"), objects[2]["spec"]["digest"]))


def _second_open(objects: list[KubeObject], key: Signer) -> None:
    opening = Opening.parse({"base": {"name": "tiny", "uri": "file:///m", "digest": DIGEST}})
    _replaced(objects, 3, key.seal(draft(3, Action.OPEN, uid="another", opening=opening), objects[2]["spec"]["digest"]))


def _moved(objects: list[KubeObject], key: Signer) -> None:
    _replaced(objects, 3, key.seal(draft(7), objects[2]["spec"]["digest"]))
    objects[3]["metadata"]["name"] = "support-000003"


def _other_channel(objects: list[KubeObject], key: Signer) -> None:
    _replaced(objects, 3, key.seal(draft(3, channel="other"), objects[2]["spec"]["digest"]))
    objects[3]["metadata"]["name"] = "support-000003"


def _unknown_field(objects: list[KubeObject], key: Signer) -> None:
    objects[3]["spec"]["surprise"] = 1


def _no_spec(objects: list[KubeObject], key: Signer) -> None:
    del objects[3]["spec"]


BREAKS: dict[str, tuple[Callable[[list[KubeObject], Signer], None], int, str]] = {
    "an entry was edited": (_edit, 2, "support-000002: its digest"),
    "an entry is missing": (_gap, 2, "support-000002 is missing, but support-000003 exists"),
    "the first entry is missing": (_start, 0, "support-000000 is missing"),
    "an entry names another one as the one before": (_relink, 2, "support-000002: it follows"),
    "an entry in the middle was written anew": (_rewrite, 3, "support-000003: it follows"),
    "an entry belongs to another channel uid": (_foreign_uid, 3, "support-000003: it belongs to channel uid another"),
    "the log is opened again without adopting it": (_second_open, 3, "without adopting"),
    "an entry stands in another place than it was written for": (_moved, 3, "it was written as support 7"),
    "an entry was written for another channel": (_other_channel, 3, "it was written as other 3"),
    "an entry has a field that nobody knows": (_unknown_field, 3, "surprise"),
    "an object has no spec": (_no_spec, 3, "support-000003"),
}


@pytest.mark.parametrize("sentence", BREAKS)
def test_the_log_is_sound_only_up_to_the_place_where(sentence: str, key: Signer) -> None:
    spoil, sound, complaint = BREAKS[sentence]
    objects = things(key)
    spoil(objects, key)
    chain = chain_of(key, objects)
    assert len(chain.links) == sound
    assert complaint in (chain.problem or "")


def test_every_problem_is_told_and_not_only_the_first(key: Signer) -> None:
    objects = things(key, 8)
    objects[1]["spec"]["message"] = objects[2]["spec"]["message"] = "edited"
    del objects[4]
    _replaced(objects, 5, key.seal(draft(6), DIGEST))
    problems = every_problem("support", objects, lambda thing: read_link(thing, key.verify_key))
    told = ["support-000001: its digest", "support-000002: its digest", "support-000004 is missing", "support-000006: it follows"]
    assert [problem[: len(start)] for problem, start in zip(problems, told, strict=True)] == told
    assert chain_of(key, objects).problem == problems[0]


def test_an_entry_signed_with_another_key_breaks_the_log(key: Signer, tmp_path: Path) -> None:
    objects = things(key, 2)
    forger = signer(tmp_path, "forger")
    objects.append(release_object(forger.seal(draft(2), objects[1]["spec"]["digest"])))
    assert "key" in (chain_of(key, objects).problem or "")


def test_an_adopted_log_goes_on_under_the_new_uid(key: Signer) -> None:
    opening = Opening.parse({"base": {"name": "tiny", "uri": "file:///m", "digest": DIGEST}, "adoptedUid": CHANNEL_UID})
    entries = sealed_log(key, draft(0), draft(1), draft(2, Action.OPEN, uid="new", opening=opening), draft(3, uid="new"))
    chain = chain_of(key, [release_object(entry) for entry in entries])
    assert chain.problem is None
    assert chain.channel_uids == {CHANNEL_UID, "new"}


def test_a_log_starts_with_open(key: Signer) -> None:
    entry = key.seal(draft(0, opening=None), None)
    assert "starts with Open" in (chain_of(key, [release_object(entry)]).problem or "")


@settings(deadline=None)
@given(st.integers(0, 3), st.sampled_from(["actor", "message", "decidedAt", "operatorVersion", "reason", "action"]), st.text(max_size=5))
def test_no_edit_of_any_field_goes_unnoticed(index: int, name: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        key = signer(Path(directory))
    objects = things(key)
    if objects[index]["spec"][name] == text:
        return
    objects[index]["spec"][name] = text
    chain = chain_of(key, objects)
    assert chain.problem is not None
    assert len(chain.links) == index


def test_entries_that_the_external_log_lacks_are_merely_not_exported(key: Signer) -> None:
    objects = things(key)
    chain, copies = chain_of(key, objects), copies_of(objects[:2])
    assert compare(chain, copies) is None
    assert [exported(link, copies) for link in chain.links] == [True, True, False, False]


def test_an_external_log_beyond_the_api_servers_is_a_problem(key: Signer) -> None:
    objects = things(key)
    assert "beyond" in (compare(chain_of(key, objects[:3]), copies_of(objects)) or "")


def test_a_whole_log_deleted_from_the_api_server_is_a_problem(key: Signer) -> None:
    assert "beyond" in (compare(Chain(()), copies_of(things(key))) or "")


def test_an_external_copy_with_other_bytes_is_a_problem(key: Signer) -> None:
    objects = things(key)
    copies = copies_of(objects) | {(CHANNEL_UID, 1): sha256(b"other")}
    assert "000001.json differs" in (compare(chain_of(key, objects), copies) or "")


def test_what_can_be_no_entrys_copy_differs_and_counts_as_no_copy(key: Signer) -> None:
    objects = things(key)
    chain, copies = chain_of(key, objects), copies_of(objects) | {(CHANNEL_UID, 1): None}
    assert "000001.json differs" in (compare(chain, copies) or "")
    assert [exported(link, copies) for link in chain.links] == [True, False, True, True]


@pytest.mark.parametrize(
    ("name", "belongs"),
    [("support-000001", True), ("support-1", False), ("support-b-000001", False), ("support-0000011", False), ("support", False)],
)
def test_names_of_entries_are_told_from_other_names(name: str, belongs: bool) -> None:
    assert belongs_to("support", name) is belongs
