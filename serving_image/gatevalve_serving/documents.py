"""Channel documents on this pod: who signed them, which is newer, and the copy that survives a container restart."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import KEYS_CONFIGMAP
from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import SIGNATURE_CONTEXT_DOCUMENT, ChannelDocument, SignedDocument
from gatevalve_serving.files import write_atomically
from gatevalve_serving.problem import Problem

LOG = logging.getLogger("gatevalve.serving")


class Trust:
    """The one certificate this pod trusts: the file in the keys mount whose sha256 the Pod's own spec names."""

    def __init__(self, keys_path: Path, key_digest: str) -> None:
        self._keys_path, self.key_digest = keys_path, key_digest
        self._key: Ed25519PublicKey | None = None

    def verify(self, signed: SignedDocument) -> Problem | None:
        """Why the document's signature does not hold; None when it does."""
        document = signed.document
        if document.key_id != self.key_digest:
            return Problem(PodReason.KEY_UNKNOWN, f"signed with key {document.key_id}, but this pod's spec trusts {self.key_digest}")
        key = self._trusted_key()
        if isinstance(key, Problem):
            return key
        try:
            key.verify(base64.b64decode(signed.signature, validate=True), SIGNATURE_CONTEXT_DOCUMENT + document.canonical())
        except (InvalidSignature, binascii.Error, ValueError, ContractError):  # a number beyond canonical JSON was never signed
            return Problem(PodReason.UNSIGNED, f"the signature does not fit document {document.channel} {_dotted(document)}")
        return None

    def _trusted_key(self) -> Ed25519PublicKey | Problem:
        if self._key is None:
            found = self._find()
            if isinstance(found, Problem):
                return found
            self._key = found
        return self._key

    def _find(self) -> Ed25519PublicKey | Problem:
        for path in sorted(self._keys_path.glob("*.crt")):
            pem = path.read_bytes()
            if sha256(pem) == self.key_digest:
                return _ed25519(pem, path)
        return Problem(PodReason.KEY_UNKNOWN, f"no certificate in ConfigMap {KEYS_CONFIGMAP} has the digest {self.key_digest}")


def _ed25519(pem: bytes, path: Path) -> Ed25519PublicKey | Problem:
    try:
        key = x509.load_pem_x509_certificate(pem).public_key()
    except ValueError as error:
        return Problem(PodReason.KEY_UNKNOWN, f"{path.name} is not a PEM certificate: {error}")
    if not isinstance(key, Ed25519PublicKey):
        return Problem(PodReason.KEY_UNKNOWN, f"{path.name} does not hold an ed25519 key")
    return key


def check_addressee(document: ChannelDocument, namespace: str, pool: str, channel: str) -> Problem | None:
    """The document is for this namespace, pool and channel."""
    wanted, got = (namespace, pool, channel), (document.namespace, document.pool, document.channel)
    if wanted == got:
        return None
    return Problem(PodReason.FOREIGN_DOCUMENT, f"the document is for {'/'.join(got)}, this is {'/'.join(wanted)}")


def check_order(held: ChannelDocument | None, offered: ChannelDocument) -> Problem | None:
    """The offered document is newer than the held one, or the same.

    A new channel uid needs no rule of its own: a recreated channel starts at sequence 0 and is old; an adopted one goes on counting.
    """
    if held is None or offered.revision > held.revision:
        return None
    if offered.revision < held.revision:
        return Problem(PodReason.REVISION_OLD, f"revision {_dotted(offered)} is older than {_dotted(held)}, which this pod holds")
    if offered.digest_of() != held.digest_of():
        return Problem(PodReason.REVISION_CONFLICT, f"another document with revision {_dotted(held)} is held")
    return None


def check_names(document: ChannelDocument, base_names: Iterable[str], others: Iterable[ChannelDocument]) -> Problem | None:
    """The alias and the adapters' names are free: neither the base's, nor another channel's alias or adapters, nor each other's."""
    own = [document.alias, *(adapter.name for adapter in document.adapters)]
    taken = dict.fromkeys(base_names, "the base")
    for other in others:
        taken |= dict.fromkeys((other.alias, *(adapter.name for adapter in other.adapters)), f"channel {other.channel}")
    for name in own:
        if name in taken:
            return Problem(PodReason.ALIAS_CONFLICT, f"name {name} belongs to {taken[name]} on this pod")
    if document.alias in own[1:]:
        return Problem(PodReason.ALIAS_CONFLICT, f"alias {document.alias} is also the name of an adapter")
    return None


def _dotted(document: ChannelDocument) -> str:
    return ".".join(str(part) for part in document.revision)


class Shelf:
    """Copies of the held documents in the Pod's emptyDir, for a boot without ConfigMap or operator."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, signed: SignedDocument) -> None:
        """Keep a document; a full disk costs the copy, not the document."""
        try:
            write_atomically(self._path / f"{signed.document.channel}.json", signed.model_dump_json(by_alias=True).encode())
        except OSError:
            LOG.warning("cannot keep a copy of the document of %s", signed.document.channel, exc_info=True)

    def read(self) -> dict[str, SignedDocument]:
        """Every readable copy by channel; not yet verified."""
        copies = {}
        for path in sorted(self._path.glob("*.json")):
            try:
                copies[path.stem] = SignedDocument.parse_json(path.read_bytes())
            except (OSError, ContractError):
                LOG.warning("the copy %s cannot be read; it is left out", path, exc_info=True)
        return copies
