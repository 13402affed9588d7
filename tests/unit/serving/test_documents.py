"""Which documents a pod takes: signed by the key in its own spec, for itself, and never older than what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import AdapterOnPod, AdapterRole, ChannelDocument, Route, SignedDocument
from gatevalve_serving.documents import Shelf, Trust, check_addressee, check_names, check_order
from gatevalve_serving.problem import Problem
from support.serving import SigningKey

DIGEST = "sha256:" + "1" * 64
KEY, OTHER_KEY = SigningKey(), SigningKey()


def document(revision: tuple[int, int] = (3, 1), **changes: Any) -> ChannelDocument:
    made = ChannelDocument(
        namespace="shop",
        pool="pool-a",
        channel="support",
        uid="u",
        base_name="tiny",
        base_digest=DIGEST,
        key_id=KEY.key_id,
        revision=revision,
        alias="support",
        routes=(Route(entry="support-000003"),),
    )
    return made.model_copy(update=changes)


def adapter(name: str) -> AdapterOnPod:
    return AdapterOnPod(name=name, digest=DIGEST, uri="u/adapters/1", role=AdapterRole.LIVE)


def reason(problem: Problem | None) -> PodReason | None:
    return problem.reason if problem else None


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    (tmp_path / "tls.crt").write_bytes(OTHER_KEY.certificate)
    (tmp_path / "new.crt").write_bytes(KEY.certificate)
    return Trust(tmp_path, KEY.key_id)


SIGNATURES: dict[str, tuple[SignedDocument, PodReason | None]] = {
    "signed by the trusted key": (KEY.sign(document()), None),
    "signed by another key of the same ConfigMap": (OTHER_KEY.sign(document(key_id=OTHER_KEY.key_id)), PodReason.KEY_UNKNOWN),
    "signed by another key in the trusted one's name": (OTHER_KEY.sign(document()), PodReason.UNSIGNED),
    "changed after it was signed": (
        SignedDocument(document=document(alias="other"), signature=KEY.sign(document()).signature),
        PodReason.UNSIGNED,
    ),
    "no signature": (SignedDocument(document=document(), signature=""), PodReason.UNSIGNED),
    "no base64": (SignedDocument(document=document(), signature="~~~"), PodReason.UNSIGNED),
}


@pytest.mark.parametrize(("signed", "expected"), SIGNATURES.values(), ids=SIGNATURES.keys())
def test_only_the_key_in_the_pods_own_spec_signs(trust: Trust, signed: SignedDocument, expected: PodReason | None) -> None:
    assert reason(trust.verify(signed)) is expected


def test_a_key_that_arrives_later_is_found(tmp_path: Path) -> None:
    trust = Trust(tmp_path, KEY.key_id)
    assert reason(trust.verify(KEY.sign(document()))) is PodReason.KEY_UNKNOWN
    (tmp_path / "tls.crt").write_bytes(KEY.certificate)
    assert trust.verify(KEY.sign(document())) is None


def test_a_certificate_with_other_bytes_is_another_key(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(KEY.certificate + b"\n")
    assert reason(Trust(tmp_path, KEY.key_id).verify(KEY.sign(document()))) is PodReason.KEY_UNKNOWN


ORDER: dict[str, tuple[ChannelDocument | None, ChannelDocument, PodReason | None]] = {
    "the first": (None, document((0, 0)), None),
    "a later step": (document((3, 1)), document((3, 2)), None),
    "a later sequence with an earlier step": (document((3, 9)), document((4, 0)), None),
    "the same once more": (document((3, 1)), document((3, 1)), None),
    "an earlier step": (document((3, 1)), document((3, 0)), PodReason.REVISION_OLD),
    "an earlier sequence": (document((3, 1)), document((2, 7)), PodReason.REVISION_OLD),
    "the same revision with other content": (document((3, 1)), document((3, 1), drain_seconds=1), PodReason.REVISION_CONFLICT),
    "a recreated channel, whose log starts again": (document((3, 1)), document((0, 0), uid="other"), PodReason.REVISION_OLD),
    "an adopted channel, whose log goes on": (document((3, 1)), document((4, 0), uid="other"), None),
}


@pytest.mark.parametrize(("held", "offered", "expected"), ORDER.values(), ids=ORDER.keys())
def test_a_revision_never_goes_back(held: ChannelDocument | None, offered: ChannelDocument, expected: PodReason | None) -> None:
    assert reason(check_order(held, offered)) is expected


@pytest.mark.parametrize("change", [{"namespace": "other"}, {"pool": "other"}, {"channel": "other"}], ids=["namespace", "pool", "channel"])
def test_a_document_for_somebody_else_is_foreign(change: dict[str, Any]) -> None:
    assert check_addressee(document(), "shop", "pool-a", "support") is None
    assert reason(check_addressee(document(**change), "shop", "pool-a", "support")) is PodReason.FOREIGN_DOCUMENT


NEIGHBOUR = document(channel="sales", alias="sales", adapters=(adapter("sales-11111111"),))
NAMES: dict[str, tuple[ChannelDocument, bool]] = {
    "free names": (document(adapters=(adapter("support-11111111"),)), True),
    "the base's name as alias": (document(alias="tiny"), False),
    "another channel's alias": (document(alias="sales"), False),
    "another channel's adapter as alias": (document(alias="sales-11111111"), False),
    "another channel's adapter as adapter": (document(adapters=(adapter("sales-11111111"),)), False),
    "the base's name as adapter": (document(adapters=(adapter("tiny"),)), False),
    "its own adapter as alias": (document(adapters=(adapter("support"),)), False),
}


@pytest.mark.parametrize(("offered", "free"), NAMES.values(), ids=NAMES.keys())
def test_every_name_has_one_owner(offered: ChannelDocument, free: bool) -> None:
    assert reason(check_names(offered, ("tiny",), [NEIGHBOUR])) is (None if free else PodReason.ALIAS_CONFLICT)


def test_the_shelf_gives_back_what_was_put_on_it_and_leaves_out_what_it_cannot_read(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "documents")
    assert shelf.read() == {}
    shelf.save(KEY.sign(document()))
    (tmp_path / "documents" / "broken.json").write_text("{")
    assert shelf.read() == {"support": KEY.sign(document())}


def test_a_full_disk_costs_the_copy_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "documents").write_text("a file where the directory should be")
    Shelf(tmp_path / "documents").save(KEY.sign(document()))
