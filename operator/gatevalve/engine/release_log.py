"""A channel's log as it is now: the cached entries proven fresh, verified, and compared with the external log."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

from gatevalve.contracts.canonical import Digest, sha256
from gatevalve.contracts.errors import IntegrityError, StoreError
from gatevalve.contracts.names import entry_name
from gatevalve.decide.view import EntryView, LogView
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.chain import Chain, Link, belongs_to, compare, exported, read_link, verify_chain
from gatevalve.io.ports import ADAPTER_RELEASES, Cluster, KubeObject, LogStore
from gatevalve.io.signing import VerifyKey

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ExternalLog:
    """What is known of the external log's files; a file that was read is taken to stay as it is until `forget`."""

    store: LogStore
    copies: dict[tuple[str, int], Digest | None] = field(default_factory=dict)
    unwritten: dict[str, str] = field(default_factory=dict)

    async def publish(self, channel_uid: str, sequence: int, data: bytes) -> None:
        """Copy an entry's bytes; until that succeeds, readers are told why it did not. Raises as the store."""
        try:
            await self.store.publish(channel_uid, sequence, data)
        except IntegrityError:
            raise
        except StoreError as error:
            self.unwritten[channel_uid] = str(error)
            raise
        self.unwritten.pop(channel_uid, None)

    def refusal(self, channel_uids: frozenset[str]) -> str | None:
        """Why an entry of these channels could not be copied, as far as one was tried."""
        return next((self.unwritten[uid] for uid in sorted(channel_uids) if uid in self.unwritten), None)

    async def read(self, channel_uids: frozenset[str]) -> dict[tuple[str, int], Digest | None]:
        """Digests of the copies under some channel uids; the newest file of each is always read again. Raises StoreError."""
        found = [copies for uid in sorted(channel_uids) for copies in (await self._read_one(uid)).items()]
        return dict(found)

    def known(self, channel_uids: frozenset[str]) -> dict[tuple[str, int], Digest | None]:
        """What was read before, for when the store does not answer."""
        return {key: digest for key, digest in self.copies.items() if key[0] in channel_uids}

    def forget(self) -> None:
        """Read every file again."""
        self.copies.clear()

    async def _read_one(self, uid: str) -> dict[tuple[str, int], Digest | None]:
        present = await self.store.sequences(uid)
        stale = [sequence for sequence in present if (uid, sequence) not in self.copies or sequence == max(present)]
        for sequence, digest in zip(stale, await asyncio.gather(*(self._digest(uid, sequence) for sequence in stale)), strict=True):
            self.copies[uid, sequence] = digest
        for gone in [key for key in self.copies if key[0] == uid and key[1] not in present]:
            del self.copies[gone]
        return self.known(frozenset({uid}))

    async def _digest(self, uid: str, sequence: int) -> Digest | None:
        try:
            return sha256(await self.store.read(uid, sequence))
        except IntegrityError:
            return None


@dataclass(frozen=True, slots=True)
class Found:
    """What the last audit of a log found: a problem of its chain or of a copy, or else a finding in what its entries say."""

    problem: str | None = None
    finding: str | None = None


class ReleaseLogs:
    """Reads logs. Entries are verified once per version of their object."""

    def __init__(self, cluster: Cluster, cache: ObjectCache, external: ExternalLog, key: VerifyKey) -> None:
        """Take the API, what the watches told, the external log and the only key that entries may be signed with."""
        self._cluster, self._cache, self._external, self._key = cluster, cache, external, key
        self._links: dict[str, tuple[str, Link]] = {}
        self._errors: dict[str, str | None] = {}
        self._audited: dict[str, Found] = {}

    async def read(self, channel: str, channel_uid: str | None) -> LogView:
        """The log, proven fresh, with what its last audit found. A problem is told only after a second look at live data.

        Raises ClusterError.
        """
        view = await self._look(channel, channel_uid)
        if view.problem is not None:
            await self._list()
            view = await self._look(channel, channel_uid)
        found = self._audited.get(channel, Found())
        return replace(view, problem=view.problem or found.problem, finding=found.finding)

    def audited(self, channel: str, found: Found) -> bool:
        """Take in what an audit found; True when it is news."""
        known = self._audited.pop(channel, Found())
        if found != Found():
            self._audited[channel] = found
        return known != found

    def continues(self, view: LogView, channel: str, thing: KubeObject) -> bool:
        """An object is the signed and chained next entry of a log."""
        known = [item for item in self._things(channel) if item["metadata"]["name"] != thing["metadata"]["name"]]
        chain = verify_chain(channel, [*known, thing], self._link)
        return chain.problem is None and len(chain.links) == len(view.entries) + 1

    async def _look(self, channel: str, channel_uid: str | None) -> LogView:
        chain = await self._fresh(channel)
        uids = chain.channel_uids | ({channel_uid} if channel_uid else frozenset())
        error: str | None = None
        try:
            copies = await self._external.read(uids)
        except StoreError as caught:
            copies, error = self._external.known(uids), f"the external log cannot be read: {caught}"
        entries = tuple(EntryView(link.spec, link.status, exported(link, copies)) for link in chain.links)
        if error is None and not all(entry.exported for entry in entries) and (refusal := self._external.refusal(uids)):
            error = f"the external log cannot be written: {refusal}"
        self._tell(channel, error)
        return LogView(entries, chain.problem or compare(chain, copies), error)

    def _tell(self, channel: str, error: str | None) -> None:
        """Once for each change, because a channel is read again and again while its external log does not answer."""
        before, self._errors[channel] = self._errors.get(channel), error
        if error is not None and error != before:
            log.warning("%s: promotions wait: %s", channel, error)

    async def _fresh(self, channel: str) -> Chain:
        """From the cache, when the API server holds its head and nothing under the next name; from a live list otherwise."""
        chain = self._chain(channel)
        head, beyond = await asyncio.gather(self._holds_head(channel, chain), self._get(channel, len(chain.links)))
        if head and beyond is None:
            return chain
        await self._list()
        return self._chain(channel)

    async def _holds_head(self, channel: str, chain: Chain) -> bool:
        """An API server that was set back to an earlier state tells no watch of it, and lists under older versions than are known."""
        if not chain.links:
            return True
        name = entry_name(channel, len(chain.links) - 1)
        known = self._cache.get(ADAPTER_RELEASES, name)
        if await self._get(channel, len(chain.links) - 1) is not None:
            return True
        if known is not None:
            self._cache.drop(ADAPTER_RELEASES, known)
        return False

    async def _get(self, channel: str, sequence: int) -> KubeObject | None:
        return await self._cluster.get(ADAPTER_RELEASES, entry_name(channel, sequence))

    async def _list(self) -> None:
        self._cache.replace(ADAPTER_RELEASES, await self._cluster.list(ADAPTER_RELEASES))

    def _chain(self, channel: str) -> Chain:
        return verify_chain(channel, self._things(channel), self._link)

    def _things(self, channel: str) -> list[KubeObject]:
        return [thing for thing in self._cache.all(ADAPTER_RELEASES) if belongs_to(channel, thing["metadata"]["name"])]

    def _link(self, thing: KubeObject) -> Link:
        """Verified once for each resourceVersion; failures are not remembered."""
        name, version = thing["metadata"]["name"], f"{thing['metadata']['uid']}/{thing['metadata']['resourceVersion']}"
        known = self._links.get(name)
        if known is not None and known[0] == version:
            return known[1]
        link = read_link(thing, self._key)
        self._links[name] = (version, link)
        return link
