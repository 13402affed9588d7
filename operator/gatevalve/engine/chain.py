"""The log's chain: every entry keeps its contract, digest and signature, and names the one before; the external copy agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gatevalve.contracts.canonical import Digest, canonical_json, sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.kinds import AdapterReleaseSpec, AdapterReleaseStatus
from gatevalve.contracts.names import SEQUENCE_DIGITS, entry_name, entry_sequence, log_file
from gatevalve.contracts.reasons import Action
from gatevalve.io.ports import KubeObject
from gatevalve.io.signing import VerifyKey


@dataclass(frozen=True, slots=True)
class Link:
    """An entry that keeps its contract, digest and signature; `copy_digest` is sha256 over the bytes of its external copy."""

    spec: AdapterReleaseSpec
    status: AdapterReleaseStatus
    copy_digest: Digest


@dataclass(frozen=True, slots=True)
class Chain:
    """The sound start of a log; `problem` says what breaks it after that."""

    links: tuple[Link, ...]
    problem: str | None = None

    @property
    def channel_uids(self) -> frozenset[str]:
        """The uids of the channel that the log speaks of: more than one after an adoption."""
        return frozenset(link.spec.channel.uid for link in self.links)


ExternalCopies = Mapping[tuple[str, int], Digest]
"""Digest of the external copy's bytes, by (channel uid, sequence)."""


def belongs_to(channel: str, name: str) -> bool:
    """An object's name is one of the channel's entries."""
    owner, _, sequence = name.rpartition("-")
    return owner == channel and len(sequence) == SEQUENCE_DIGITS and sequence.isdigit()


def copy_of(spec: Mapping[str, object]) -> bytes:
    """The exact bytes of an entry's external copy: canonical JSON of its spec as the API server holds it."""
    return canonical_json(spec)


def read_link(thing: KubeObject, key: VerifyKey) -> Link:
    """An entry of the API server, verified by itself; raises ContractError or IntegrityError."""
    spec = AdapterReleaseSpec.parse(thing.get("spec"))
    key.verify_entry(thing["spec"])
    return Link(spec, read_status(thing), sha256(copy_of(thing["spec"])))


def read_status(thing: KubeObject) -> AdapterReleaseStatus:
    """An entry's status; one that breaks its contract counts as empty, because a status is derived and written anew."""
    try:
        return AdapterReleaseStatus.parse(thing.get("status") or {})
    except ContractError:
        return AdapterReleaseStatus()


def verify_chain(channel: str, things: Iterable[KubeObject], read: Callable[[KubeObject], Link]) -> Chain:
    """The channel's entries in order, up to the first that is missing, broken, foreign or not chained."""
    links: list[Link] = []
    for thing in sorted(things, key=lambda thing: entry_sequence(thing["metadata"]["name"])):
        name, wanted = thing["metadata"]["name"], entry_name(channel, len(links))
        if name != wanted:
            return Chain(tuple(links), f"{wanted} is missing, but {name} exists")
        try:
            link = read(thing)
        except (ContractError, IntegrityError) as error:
            return Chain(tuple(links), f"{name}: {error}")
        problem = _breaks(channel, links, link.spec)
        if problem is not None:
            return Chain(tuple(links), f"{name}: {problem}")
        links.append(link)
    return Chain(tuple(links))


def compare(chain: Chain, copies: ExternalCopies) -> str | None:
    """What the external log holds beyond the API's log, or different from it; entries that it lacks are merely not exported."""
    for (uid, sequence), digest in sorted(copies.items()):
        where = log_file(uid, sequence)
        if sequence >= len(chain.links):
            return f"the external log holds {where}, which is beyond the API server's log of {len(chain.links)} entries"
        link = chain.links[sequence]
        if (link.spec.channel.uid, link.copy_digest) != (uid, digest):
            return f"the external log's {where} differs from the API server's entry"
    return None


def exported(link: Link, copies: ExternalCopies) -> bool:
    """The entry's exact bytes are in the external log."""
    return copies.get((link.spec.channel.uid, link.spec.sequence)) == link.copy_digest


def _breaks(channel: str, before: list[Link], spec: AdapterReleaseSpec) -> str | None:
    if (spec.channel.name, spec.sequence) != (channel, len(before)):
        return f"it was written as {spec.channel.name} {spec.sequence}"
    if spec.previous_digest != (before[-1].spec.digest if before else None):
        return f"it follows {spec.previous_digest}, which is not the entry before it"
    return _breaks_identity(before[-1].spec if before else None, spec)


def _breaks_identity(before: AdapterReleaseSpec | None, spec: AdapterReleaseSpec) -> str | None:
    """The channel's uid changes only where an Open entry adopts the log."""
    if before is None:
        return None if spec.action is Action.OPEN else f"a log starts with Open, not {spec.action}"
    if spec.action is Action.OPEN and (spec.opening is None or spec.opening.adopted_uid != before.channel.uid):
        return f"it opens the log again without adopting channel uid {before.channel.uid}"
    if spec.action is not Action.OPEN and spec.channel.uid != before.channel.uid:
        return f"it belongs to channel uid {spec.channel.uid}, the entry before it to {before.channel.uid}"
    return None
