"""The operator's ed25519 key: signs log entries and channel documents, and verifies both."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from gatevalve.contracts.canonical import canonical_json, sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.names import CERTIFICATE_FILE, SIGNING_KEY_FILE
from gatevalve.contracts.serving import SIGNATURE_CONTEXT_DOCUMENT, SIGNATURE_CONTEXT_ENTRY, ChannelDocument, SignedDocument

UNSEALED = frozenset({"digest", "signature"})


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A certificate's public key; `key_id` is the sha256 of the certificate file's bytes (PEM), `certificate`."""

    key_id: str
    public: Ed25519PublicKey
    certificate: bytes

    @classmethod
    def from_certificate(cls, pem: bytes) -> VerifyKey:
        """The key in a PEM certificate; raises ContractError when it is none, or its key is not ed25519."""
        try:
            public = load_pem_x509_certificate(pem).public_key()
        except ValueError as error:
            raise ContractError(
                CERTIFICATE_FILE, f"is not a PEM certificate: {error}", "give the certificate of the signing key"
            ) from error
        if not isinstance(public, Ed25519PublicKey):
            raise ContractError(CERTIFICATE_FILE, "its key is not ed25519", 'make the key with genPrivateKey "ed25519"')
        return cls(sha256(pem), public, pem)

    def verify_entry(self, spec: dict[str, object]) -> None:
        """Check digest, key and signature of an entry as the API server holds it; raises IntegrityError."""
        sealed = canonical_json({key: value for key, value in spec.items() if key not in UNSEALED})
        if spec.get("digest") != sha256(sealed):
            raise IntegrityError(f"its digest is {spec.get('digest')} but its content has {sha256(sealed)}")
        self._verify(str(spec.get("keyId")), str(spec.get("signature")), SIGNATURE_CONTEXT_ENTRY + sealed)

    def verify_document(self, signed: SignedDocument) -> None:
        """Check key and signature of a channel document; raises IntegrityError."""
        self._verify(signed.document.key_id, signed.signature, SIGNATURE_CONTEXT_DOCUMENT + signed.document.canonical())

    def _verify(self, key_id: str, signature: str, data: bytes) -> None:
        if key_id != self.key_id:
            raise IntegrityError(f"it names key {key_id}, the known key is {self.key_id}")
        try:
            self.public.verify(base64.b64decode(signature, validate=True), data)
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise IntegrityError("its signature does not verify") from error


@dataclass(frozen=True, slots=True)
class Signer:
    """The private key with its certificate."""

    private: Ed25519PrivateKey
    verify_key: VerifyKey

    @classmethod
    def from_directory(cls, directory: Path) -> Signer:
        """Read tls.key and tls.crt; raises ContractError when one is missing, not ed25519, or they do not belong together."""
        verify_key = VerifyKey.from_certificate(_read(directory / CERTIFICATE_FILE))
        private = _private_key(_read(directory / SIGNING_KEY_FILE))
        if private.public_key() != verify_key.public:
            raise ContractError(str(directory), "key and certificate do not belong together", "make both anew, or restore the Secret")
        return cls(private, verify_key)

    @property
    def key_id(self) -> str:
        """The name of the key: sha256 of the certificate file."""
        return self.verify_key.key_id

    def seal(self, entry: AdapterReleaseSpec, previous_digest: str | None) -> AdapterReleaseSpec:
        """The entry chained to the one before, with key, digest and signature."""
        chained = entry.model_copy(update={"previous_digest": previous_digest, "key_id": self.key_id})
        sealed = chained.sealed_bytes()
        return chained.model_copy(update={"digest": sha256(sealed), "signature": self._sign(SIGNATURE_CONTEXT_ENTRY + sealed)})

    def sign_document(self, document: ChannelDocument) -> SignedDocument:
        """The document with its signature; raises ContractError when it names another key."""
        if document.key_id != self.key_id:
            raise ContractError("keyId", f"the document names {document.key_id}", f"name the operator's key {self.key_id}")
        return SignedDocument(document=document, signature=self._sign(SIGNATURE_CONTEXT_DOCUMENT + document.canonical()))

    def _sign(self, data: bytes) -> str:
        return base64.b64encode(self.private.sign(data)).decode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ContractError(str(path), f"cannot be read: {error.strerror}", "mount the signing Secret") from error


def _private_key(pem: bytes) -> Ed25519PrivateKey:
    try:
        private = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise ContractError(SIGNING_KEY_FILE, "is not an unencrypted PEM private key", "give the signing key as PEM") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise ContractError(SIGNING_KEY_FILE, "is not an ed25519 key", 'make the key with genPrivateKey "ed25519"')
    return private
