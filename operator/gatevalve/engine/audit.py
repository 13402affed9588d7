"""The audit: with nothing remembered, a log is read live, verified whole, compared with its external log, and every verdict judged anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gatevalve.contracts.errors import ContractError, GatevalveError, IntegrityError, MissingError, StoreError
from gatevalve.decide.audit import GivenVerdict, given_sentinels, given_verdicts, log_problems, loss_is_told, verdict_problem
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.view import EntryView, EvidenceView
from gatevalve.engine.chain import Chain, belongs_to, compare, exported, read_link, verify_chain
from gatevalve.engine.release_log import ExternalLog, Found
from gatevalve.io.clock import Clock
from gatevalve.io.ports import ADAPTER_RELEASES, Cluster, EvidenceStore, LogStore
from gatevalve.io.signing import VerifyKey

log = logging.getLogger(__name__)

FIRST_AUDIT_SECONDS = 30.0
AUDIT_SECONDS = 3600.0
AUDIT_AGAIN_SECONDS = 300.0
"""After an audit that found a problem, or could not read everything: what a person mends is seen in minutes."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What an audit found: problems of the log, what could not be read, evidence that is known to be lost, and verdicts judged anew.

    `broken`: the problem is one of the chain or of a copy, and nothing can follow it; otherwise problems are about what entries say.
    """

    problems: tuple[str, ...] = ()
    broken: bool = False
    unread: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    judged: int = 0

    @property
    def clean(self) -> bool:
        """Everything was read and nothing is wrong."""
        return not self.problems and not self.unread

    @property
    def told(self) -> Found:
        """The first problem, and how many more there are."""
        if not self.problems:
            return Found()
        more = len(self.problems) - 1
        text = self.problems[0] + (f" (and {more} more: kubectl gatevalve verify names them)" if more else "")
        return Found(problem=text) if self.broken else Found(finding=text)


@dataclass(frozen=True, slots=True)
class LogAudit:
    """Audits logs. Everything it reads from is a parameter, and nothing it has read is kept."""

    cluster: Cluster
    store: LogStore
    evidence: EvidenceStore
    key: VerifyKey
    operator_version: str

    async def audit(self, channel: str, channel_uid: str) -> Findings:
        """Audit a channel's log. Raises ClusterError when the API server does not answer, StoreError when the external log does not.

        The external log is read before the API server, so that an entry written meanwhile is merely not exported yet.
        """
        uids = (await self._chain(channel)).channel_uids | {channel_uid}
        copies = await ExternalLog(self.store).read(uids)
        chain = await self._chain(channel)
        problem = chain.problem or compare(chain, copies)
        if problem is not None:
            return Findings((problem,), broken=True)
        entries = tuple(EntryView(link.spec, link.status, exported(link, copies)) for link in chain.links)
        return await examine(LogState(entries), self.evidence, self.operator_version, adopting=channel_uid not in chain.channel_uids)

    async def _chain(self, channel: str) -> Chain:
        listing = await self.cluster.list(ADAPTER_RELEASES)
        things = [thing for thing in listing.items if belongs_to(channel, thing["metadata"]["name"])]
        return await asyncio.to_thread(verify_chain, channel, things, lambda thing: read_link(thing, self.key))


async def examine(state: LogState, store: EvidenceStore | None, operator_version: str, adopting: bool = False) -> Findings:
    """What a sound chain says, and with a store its verdicts: one test's evidence at a time, judged off the event loop.

    `adopting`: the channel was recreated and does nothing until its adoption is written, which lost evidence must not forbid.
    """
    problems = await asyncio.to_thread(log_problems, state)
    verdicts = (*given_verdicts(state), *given_sentinels(state))
    found = [await _judged(given, state, store, operator_version, adopting) for given in verdicts] if store is not None else []
    return Findings(
        problems=(*problems, *(problem for one in found for problem in one.problems)),
        unread=tuple(unread for one in found for unread in one.unread),
        lost=tuple(lost for one in found for lost in one.lost),
        judged=sum(one.judged for one in found),
    )


async def _judged(given: GivenVerdict, state: LogState, store: EvidenceStore, operator_version: str, adopting: bool) -> Findings:
    try:
        evidence = await recorded(given, state, store)
    except StoreError as error:
        return Findings(unread=(f"the evidence of {name_of(given.test)} cannot be read: {error}",))
    if evidence.report is None and evidence.problem is None and (adopting or loss_is_told(given, state)):
        return Findings(lost=(f"the evidence of {name_of(given.test)} is gone, and the log was adopted since",))
    problem = await asyncio.to_thread(verdict_problem, given, evidence, operator_version)
    return Findings(problems=(problem,) if problem is not None else (), judged=1)


async def recorded(given: GivenVerdict, state: LogState, store: EvidenceStore) -> EvidenceView:
    """The evidence that a verdict names: without report when there is none, with a problem when its bytes are others."""
    entry, digest = name_of(given.test), given.evidence.digest
    try:
        found = await store.recorded(state.store_uid, entry, digest)
    except (IntegrityError, ContractError) as error:
        return EvidenceView(entry, digest, problem=str(error))
    except MissingError:
        return EvidenceView(entry, digest)
    return EvidenceView(entry, digest, found.report, found.rows)


class Auditor:
    """Audits every channel soon after the start and then every hour; sooner where something is wrong or could not be read."""

    def __init__(
        self, audit: LogAudit, clock: Clock, channels: Callable[[], Mapping[str, str]], told: Callable[[str, Findings], None]
    ) -> None:
        """Take who knows the channels with their uids, and who is told what was found."""
        self._audit, self._clock, self._channels, self._told = audit, clock, channels, told

    async def run(self) -> None:
        """Audit until cancelled."""
        await self._clock.sleep(FIRST_AUDIT_SECONDS)
        while True:
            clean = [await self._one(channel, uid) for channel, uid in sorted(self._channels().items())]
            await self._clock.sleep(AUDIT_SECONDS if all(clean) else AUDIT_AGAIN_SECONDS)

    async def _one(self, channel: str, uid: str) -> bool:
        """A store or an API server that does not answer is no verdict on the log."""
        try:
            found = await self._audit.audit(channel, uid)
        except GatevalveError as error:
            log.warning("%s: its log cannot be audited now: %s", channel, error)
            return False
        except Exception:
            log.exception("%s: the audit of its log failed", channel)
            return False
        for unread in found.unread:
            log.warning("%s: %s", channel, unread)
        self._told(channel, found)
        return found.clean
