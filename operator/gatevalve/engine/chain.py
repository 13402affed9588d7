"""The log's chain: every entry keeps its contract, digest and signature, and names the one before; the external copy agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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


ExternalCopies = Mapping[tuple[str, int], Digest | None]
"""Digest of the external copy's bytes, by (channel uid, sequence); None where what lies there can be no entry's copy."""


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
    for found in _walk(channel, things, read):
        if isinstance(found, str):
            return Chain(tuple(links), found)
        links.append(found)
    return Chain(tuple(links))


def every_problem(channel: str, things: Iterable[KubeObject], read: Callable[[KubeObject], Link]) -> tuple[str, ...]:
    """All that breaks a log, where `verify_chain` stops at the first."""
    return tuple(found for found in _walk(channel, things, read) if isinstance(found, str))


def compare(chain: Chain, copies: ExternalCopies) -> str | None:
    """What the external log holds beyond the API's log, or different from it; entries that it lacks are merely not exported."""
    held = {(link.spec.channel.uid, link.spec.sequence): link.copy_digest for link in chain.links}
    return next(iter(differences(held, copies)), None)


def differences(held: Mapping[tuple[str, int], Digest], copies: ExternalCopies) -> tuple[str, ...]:
    """All that the external log holds beyond what the API server holds, given as digests of the same bytes, or different from it."""
    length = max((sequence for _, sequence in held), default=-1) + 1
    return tuple(
        f"the external log holds {log_file(*key)}, which is beyond the API server's log of {length} entries"
        if key[1] >= length
        else f"the external log's {log_file(*key)} differs from the API server's entry"
        for key, digest in sorted(copies.items(), key=lambda item: item[0])
        if digest is None or held.get(key) != digest
    )


def exported(link: Link, copies: ExternalCopies) -> bool:
    """The entry's exact bytes are in the external log."""
    return copies.get((link.spec.channel.uid, link.spec.sequence)) == link.copy_digest


def _walk(channel: str, things: Iterable[KubeObject], read: Callable[[KubeObject], Link]) -> Iterator[Link | str]:
    """The entries in order, each as a link or as what is wrong with it; one that is missing is told before its follower."""
    wanted, before = 0, None
    for thing in sorted(things, key=lambda thing: entry_sequence(thing["metadata"]["name"])):
        sequence = entry_sequence(thing["metadata"]["name"])
        if sequence != wanted:
            yield f"{entry_name(channel, wanted)} is missing, but {entry_name(channel, sequence)} exists"
            before = None
        found = _next(channel, sequence, before, thing, read)
        yield found
        wanted, before = sequence + 1, found.spec if isinstance(found, Link) else None


def _next(
    channel: str, sequence: int, before: AdapterReleaseSpec | None, thing: KubeObject, read: Callable[[KubeObject], Link]
) -> Link | str:
    try:
        link = read(thing)
    except (ContractError, IntegrityError) as error:
        return f"{entry_name(channel, sequence)}: {error}"
    problem = _breaks(channel, sequence, before, link.spec)
    return link if problem is None else f"{entry_name(channel, sequence)}: {problem}"


def _breaks(channel: str, sequence: int, before: AdapterReleaseSpec | None, spec: AdapterReleaseSpec) -> str | None:
    """`before` is None for the first entry, and behind one that is missing or broken: then nothing is known of what it should follow."""
    if (spec.channel.name, spec.sequence) != (channel, sequence):
        return f"it was written as {spec.channel.name} {spec.sequence}"
    if sequence > 0 and before is None:
        return None
    if spec.previous_digest != (before.digest if before else None):
        return f"it follows {spec.previous_digest}, which is not the entry before it"
    return _breaks_identity(before, spec)


def _breaks_identity(before: AdapterReleaseSpec | None, spec: AdapterReleaseSpec) -> str | None:
    """The channel's uid changes only where an Open entry adopts the log."""
    if before is None:
        return None if spec.action is Action.OPEN else f"a log starts with Open, not {spec.action}"
    if spec.action is Action.OPEN and (spec.opening is None or spec.opening.adopted_uid != before.channel.uid):
        return f"it opens the log again without adopting channel uid {before.channel.uid}"
    if spec.action is not Action.OPEN and spec.channel.uid != before.channel.uid:
        return f"it belongs to channel uid {spec.channel.uid}, the entry before it to {before.channel.uid}"
    return None
