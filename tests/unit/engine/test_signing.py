"""Signing: what was signed verifies, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.canonical import digest_of_json, sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.names import CERTIFICATE_FILE, SIGNING_KEY_FILE
from gatevalve.contracts.serving import ChannelDocument, Route, SignedDocument
from gatevalve.io.signing import Signer
from support.engine_world import DIGEST, draft, key_files, signer, write_key


def document(key_id: str) -> ChannelDocument:
    return ChannelDocument(
        namespace="team",
        pool="support",
        channel="support",
        uid="u",
        base_name="tiny",
        base_digest=DIGEST,
        key_id=key_id,
        revision=(3, 0),
        alias="support",
        routes=(Route(entry="support-000003"),),
    )


def test_a_key_is_named_by_the_digest_of_its_certificate_file(tmp_path: Path) -> None:
    assert signer(tmp_path).key_id == sha256(key_files("operator")[1])


def test_a_sealed_entry_verifies_as_the_api_server_holds_it(tmp_path: Path) -> None:
    key = signer(tmp_path)
    entry = key.seal(draft(0), None)
    key.verify_key.verify_entry(entry.wire())
    assert entry.digest == sha256(entry.sealed_bytes())


def _redigested(spec: dict[str, Any]) -> dict[str, Any]:
    """As a forger would leave it: the digest fits, the signature cannot."""
    spec["digest"] = digest_of_json({key: value for key, value in spec.items() if key not in ("digest", "signature")})
    return spec


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "its content was edited": (lambda spec: spec | {"actor": "someone else"}, "digest"),
    "its content was edited and the digest made to fit": (lambda spec: _redigested(spec | {"actor": "someone else"}), "signature"),
    "a field was added": (lambda spec: spec | {"serves": {"base": True, "rank": 8}}, "digest"),
    "its signature is not base64": (lambda spec: spec | {"signature": "!!"}, "signature"),
    "it has no signature": (lambda spec: {key: value for key, value in spec.items() if key != "signature"}, "signature"),
    "it names another key": (lambda spec: _redigested(spec | {"keyId": DIGEST}), "key"),
}


@pytest.mark.parametrize("sentence", FORGERIES)
def test_an_entry_is_refused_when(sentence: str, tmp_path: Path) -> None:
    key = signer(tmp_path)
    forge, complaint = FORGERIES[sentence]
    spec = forge(key.seal(draft(0), None).wire())
    with pytest.raises(IntegrityError, match=complaint):
        key.verify_key.verify_entry(spec)


def test_an_entry_signed_with_another_key_is_refused_although_it_claims_ours(tmp_path: Path) -> None:
    ours, theirs = signer(tmp_path), signer(tmp_path, "forger")
    forged = Signer(theirs.private, ours.verify_key).seal(draft(0), None)
    with pytest.raises(IntegrityError, match="signature"):
        ours.verify_key.verify_entry(forged.wire())


def test_a_signed_document_verifies_after_a_round_trip_and_an_edited_one_does_not(tmp_path: Path) -> None:
    key = signer(tmp_path)
    signed = SignedDocument.parse_json(key.sign_document(document(key.key_id)).canonical())
    key.verify_key.verify_document(signed)
    edited = signed.model_copy(update={"document": signed.document.model_copy(update={"revision": (4, 0)})})
    with pytest.raises(IntegrityError, match="signature"):
        key.verify_key.verify_document(edited)


def test_a_signature_of_an_entry_does_not_fit_a_document_with_the_same_bytes(tmp_path: Path) -> None:
    key = signer(tmp_path)
    text = document(key.key_id)
    entry_like = key._sign(b"gatevalve.dev/entry/v1\n" + text.canonical())
    with pytest.raises(IntegrityError):
        key.verify_key.verify_document(SignedDocument(document=text, signature=entry_like))


def test_a_document_for_another_key_is_not_signed(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="keyId"):
        signer(tmp_path).sign_document(document(DIGEST))


BROKEN_DIRECTORIES: dict[str, tuple[str, bytes | None, str]] = {
    "the key is missing": (SIGNING_KEY_FILE, None, "cannot be read"),
    "the certificate is missing": (CERTIFICATE_FILE, None, "cannot be read"),
    "the key is not PEM": (SIGNING_KEY_FILE, b"secret", "PEM"),
    "the certificate is not PEM": (CERTIFICATE_FILE, b"certificate", "PEM"),
}


@pytest.mark.parametrize("sentence", BROKEN_DIRECTORIES)
def test_the_operator_does_not_start_when(sentence: str, tmp_path: Path) -> None:
    name, data, complaint = BROKEN_DIRECTORIES[sentence]
    directory = write_key(tmp_path)
    (directory / name).unlink()
    if data is not None:
        (directory / name).write_bytes(data)
    with pytest.raises(ContractError, match=complaint):
        Signer.from_directory(directory)


def test_the_operator_does_not_start_with_a_key_that_is_not_the_certificates(tmp_path: Path) -> None:
    directory = write_key(tmp_path)
    (directory / SIGNING_KEY_FILE).write_bytes(key_files("other")[0])
    with pytest.raises(ContractError, match="belong together"):
        Signer.from_directory(directory)
