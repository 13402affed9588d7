"""`verify`: re-hash every entry, check signatures, chain and gaps, and compare with the external log where it is at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import log_file
from gatevalve.engine.chain import Chain, ExternalCopies, compare, exported, read_link, verify_chain
from gatevalve.io.ports import KubeObject
from gatevalve.io.signing import VerifyKey


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found: `problem` is None for a sound log."""

    entries: int
    key_id: str | None
    compared: int | None
    problem: str | None


def verify(
    channel: str, things: list[KubeObject], certificates: list[bytes], expected_key: str | None, log_dir: Path | None
) -> Verification:
    """Verify a channel's log with the key that its Open entry names; `expected_key` is the digest the reader trusts."""
    try:
        key = _key(things, certificates, expected_key)
    except ContractError as error:
        return Verification(0, None, None, str(error))
    chain = verify_chain(channel, things, lambda thing: read_link(thing, key))
    copies = _copies(chain, log_dir) if log_dir is not None else None
    problem = chain.problem or (compare(chain, copies) or _lacks(chain, copies) if copies is not None else None)
    return Verification(len(chain.links), key.key_id, None if copies is None else len(copies), problem)


def _key(things: list[KubeObject], certificates: list[bytes], expected: str | None) -> VerifyKey:
    if not things:
        raise ContractError("log", "holds no entry", "name a channel that has been opened")
    wanted = expected or str(things[0]["spec"].get("keyId"))
    keys = {key.key_id: key for key in map(VerifyKey.from_certificate, certificates)}
    if wanted not in keys:
        raise ContractError(
            "keyId",
            f"no certificate in gatevalve-keys has digest {wanted}",
            "restore the certificate; if you gave --key-sha256, this log is not signed by that key",
        )
    return keys[wanted]


def _copies(chain: Chain, log_dir: Path) -> ExternalCopies:
    found = {}
    for uid in chain.channel_uids:
        for path in sorted((log_dir / uid).glob("*.json")):
            found[uid, int(path.stem)] = sha256(path.read_bytes())
    return found


def _lacks(chain: Chain, copies: ExternalCopies) -> str | None:
    for link in chain.links:
        if not exported(link, copies):
            return f"the external log lacks {log_file(link.spec.channel.uid, link.spec.sequence)}"
    return None
