"""An adapter's directory: two files that its digest covers, and the manifest that makes them readable."""

from __future__ import annotations

from collections.abc import Mapping

from gatevalve.contracts.canonical import Digest, sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import AdapterManifest, FileFact
from gatevalve.contracts.hashing import digest_of_facts
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST
from gatevalve_trainer.store import Area

COVERED = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
"""The files that an adapter's digest covers."""


def file_facts(files: Mapping[str, bytes]) -> tuple[FileFact, ...]:
    """Facts of an adapter's covered files, sorted by path."""
    return tuple(FileFact(path=name, size=len(files[name]), sha256=sha256(files[name])) for name in COVERED)


def adapter_digest(files: Mapping[str, bytes]) -> Digest:
    """The digest of an adapter's covered files."""
    return digest_of_facts(file_facts(files))


def read_adapter(area: Area, directory: str, digest: str) -> tuple[AdapterManifest, dict[str, bytes]]:
    """A finished adapter's manifest and covered files; raises IntegrityError when bytes, manifest and digest do not agree."""
    manifest = AdapterManifest.parse_json(area.read(f"{directory}/{MANIFEST}"))
    if manifest.digest != digest or manifest.files_digest() != digest:
        raise IntegrityError(f"{directory}/{MANIFEST}: names {manifest.digest}, expected {digest}; make the adapter anew")
    if tuple(fact.path for fact in manifest.files) != COVERED:
        raise ContractError(f"{directory}/{MANIFEST}", "lists other files than an adapter has", f"list exactly {' and '.join(COVERED)}")
    return manifest, {fact.path: area.read_named(directory, fact) for fact in manifest.files}


def check_base(manifest: AdapterManifest, base_digest: str) -> None:
    """Raises ContractError when an adapter was made for another base."""
    if manifest.base_digest != base_digest:
        raise ContractError(
            "baseDigest", f"the adapter was made on {manifest.base_digest}, the channel's base is {base_digest}", "train on this base"
        )
