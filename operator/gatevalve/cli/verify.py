"""`verify`: a log re-hashed, its signatures, chain and gaps checked, compared with the external log, and its verdicts judged anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gatevalve.cli.copies import Copies, read_copies
from gatevalve.cli.sealed import sealed_evidence
from gatevalve.contracts.canonical import Digest, sha256
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import entry_sequence, log_file
from gatevalve.decide.log import LogState
from gatevalve.decide.view import EntryView
from gatevalve.engine.audit import Findings, examine
from gatevalve.engine.chain import copy_of, differences, every_problem, read_link, verify_chain
from gatevalve.io.ports import KubeObject
from gatevalve.io.signing import VerifyKey


@dataclass(frozen=True, slots=True)
class Question:
    """What a log is verified from: the API server's entries (None: only the external log is at hand), certificates, and directories.

    `expected_key` is the digest of the key that the reader trusts; without it the key is the one that the Open entry names.
    """

    channel: str
    things: list[KubeObject] | None
    certificates: Sequence[bytes]
    expected_key: str | None = None
    log_dir: Path | None = None
    sealed_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found: a log is sound when it has no problem and all of it was read.

    `entries` counts the sound start, `compared` the external copies, `judged` the verdicts judged anew; `lost` names evidence from before
    an adoption that is gone.
    """

    channel: str
    entries: int = 0
    key_id: str | None = None
    compared: int | None = None
    judged: int | None = None
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As JSON: the fields by name."""
        return {"sound": not self.problems and not self.unread, **asdict(self)}


async def verify(question: Question) -> Verification:
    """Verify a channel's log. Raises ContractError when there is nothing to verify, StoreError when a directory cannot be read."""
    copies = _copies(question)
    things = copies.entries(question.channel) if question.things is None else question.things
    if not things and not copies.files and not copies.problems and not copies.unread:
        raise ContractError("channel", f"nothing at hand is of channel {question.channel}", "check its name and the directory")
    outside = [*copies.problems, *(_compared(question, copies) if question.things is not None and question.log_dir else ())]
    found = Verification(question.channel, unread=tuple(copies.unread), compared=len(copies.files) if question.log_dir else None)
    try:
        key = _key(things, question.certificates, question.expected_key)
    except ContractError as error:
        return replace(found, problems=(str(error), *outside))
    chain = verify_chain(question.channel, things, lambda thing: read_link(thing, key))
    broken = every_problem(question.channel, things, lambda thing: read_link(thing, key)) if chain.problem else ()
    said = await _examined(question, LogState(tuple(EntryView(link.spec, link.status, exported=False) for link in chain.links)))
    return replace(
        found,
        entries=len(chain.links),
        key_id=key.key_id,
        judged=said.judged if question.sealed_dir else None,
        problems=(*broken, *outside, *said.problems),
        unread=(*found.unread, *said.unread),
        lost=said.lost,
    )


def sound_log(question: Question) -> LogState:
    """The log of a channel, every entry's contract, hash, signature and place in the chain checked; what it says is not examined.

    Raises ContractError when there is none or it is broken, StoreError when a directory cannot be read.
    """
    copies = _copies(question)
    things = copies.entries(question.channel) if question.things is None else question.things
    if not things:
        raise ContractError("channel", f"nothing at hand is of channel {question.channel}", "check its name and the directory")
    key = _key(things, question.certificates, question.expected_key)
    chain = verify_chain(question.channel, things, lambda thing: read_link(thing, key))
    if chain.problem is not None:
        raise ContractError("log", chain.problem, "kubectl gatevalve verify names everything that is wrong")
    return LogState(tuple(EntryView(link.spec, link.status, exported=False) for link in chain.links))


async def _examined(question: Question, state: LogState) -> Findings:
    store = sealed_evidence(question.sealed_dir) if question.sealed_dir is not None else None
    return await examine(state, store, version("gatevalve"))


def _copies(question: Question) -> Copies:
    if question.log_dir is None:
        return Copies()
    return read_copies(question.log_dir, question.channel, frozenset(uid for uid, _ in _held(question.things or ())))


def _compared(question: Question, copies: Copies) -> list[str]:
    """What differs between the API server's entries, sound or not, and the external log's files."""
    held = _held(question.things or ())
    lacking = [f"the external log lacks {log_file(*place)}" for place in held if place not in copies.files]
    return [*differences(held, {place: sha256(data) for place, data in copies.files.items() if data is not None}), *lacking]


def _held(things: Iterable[KubeObject]) -> dict[tuple[str, int], Digest]:
    """Digests of the bytes that the external log should hold, by channel uid and sequence; an entry without either is broken anyway."""
    found = {}
    for thing in things:
        try:
            spec = thing["spec"]
            found[str(spec["channel"]["uid"]), entry_sequence(thing["metadata"]["name"])] = sha256(copy_of(spec))
        except (KeyError, TypeError, ContractError):
            continue
    return found


def _key(things: list[KubeObject], certificates: Sequence[bytes], expected: str | None) -> VerifyKey:
    if not things:
        raise ContractError("log", "there is no entry to verify", "restore the entries from the external log, or verify it --offline")
    wanted = expected or str((things[0].get("spec") or {}).get("keyId"))
    keys = {key.key_id: key for key in map(VerifyKey.from_certificate, certificates)}
    if wanted not in keys:
        raise ContractError(
            "keyId",
            f"no certificate at hand has digest {wanted}",
            "restore the certificate in gatevalve-keys; if you gave --key-sha256, this log is not signed by that key",
        )
    return keys[wanted]
