"""Tampering: what somebody else changed or tried, seen in what is. It is told, remembered for an hour, and holds up nothing that serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.jobs import UNMARKED
from gatevalve.contracts.kinds import KnownTampering, Tampering
from gatevalve.contracts.names import KEYS_CONFIGMAP, entry_sequence, pool_configmap
from gatevalve.contracts.reasons import ConditionReason, EventReason, PodReason, Step
from gatevalve.contracts.serving import AdapterState, PodReport, RefusedRequest, SignedDocument
from gatevalve.decide.case import is_witnessed
from gatevalve.decide.conditions import instant, timestamp
from gatevalve.decide.log import LogState
from gatevalve.decide.plan import Event
from gatevalve.decide.view import ChannelView, JobView, PodView, View

MEMORY = timedelta(hours=1)
"""Untampered is True again when nothing was found for so long."""

REFRESH = timedelta(minutes=10)
"""What lasts is noted as seen again this often, so that its hour begins at its end."""

PAUSE = timedelta(minutes=1)
"""Further refused requests are told so much later: whoever tries every route must not fill the list of events."""

MOST_TOLD, LONGEST, LONGEST_SUBJECT = 5, 200, 120
"""Findings of one kind, or in one message; characters of each and of its subject: together they fit into a status message."""

MOST_KNOWN = 64
"""Findings that are remembered; more than can be found at once."""

READERS = (Step.DRAW, Step.EVALUATE)
"""Steps that find what somebody else has put into the sealed area, or into the adapters that they measure against."""

ARMS = ("incumbentDigest", "anchorDigest")
"""Fields of DrawInput and PublishInput: a message that begins with one says that what is published there is not what it names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as gatevalve left it, and what is known of it."""

    reason: ConditionReason
    subject: str
    detail: str

    @property
    def key(self) -> tuple[str, str]:
        """By this it is known again: its kind and the whole of its subject, which may hold words that somebody else chose."""
        return str(self.reason), sha256(self.subject.encode("utf-8", "replace")).removeprefix("sha256:")[:16]

    @property
    def message(self) -> str:
        """What is told: short enough to stand beside others."""
        return f"{self.subject[:LONGEST_SUBJECT]}: {self.detail}"[:LONGEST]


@dataclass(frozen=True, slots=True)
class Notice:
    """What a reconcile makes of its findings: what the status says from now on, and what is told because it is new."""

    tampering: Tampering | None
    new: tuple[Finding, ...] = ()
    lasting: bool = False

    def untampered(self, now: datetime) -> tuple[bool, ConditionReason, str]:
        """The condition: value, reason and message."""
        if self.tampering is None or not (self.lasting or now - instant(self.tampering.at) < MEMORY):
            return True, ConditionReason.AS_EXPECTED, "for an hour nobody else has changed or tried anything"
        return False, ConditionReason(self.tampering.reason), self.tampering.message

    def events(self, channel: ChannelView) -> tuple[Event, ...]:
        """One for each new finding."""
        meta = channel.meta
        return tuple(
            Event("AdapterChannel", meta.name, meta.uid, EventReason.TAMPERED, f"{finding.reason}: {finding.message}", warning=True)
            for finding in self.new
        )

    @property
    def comes_first(self) -> bool:
        """Candidates wait until it is told: with the verdict on forged evidence the trace of it is gone."""
        return any(finding.reason is ConditionReason.EVIDENCE_FORGED for finding in self.new)


def notice(view: View, channel: ChannelView, log: LogState) -> Notice:
    """What to tell. A finding that lasts, or comes again while it is remembered, is not told again."""
    told = _told(channel, view.now)
    known = _remembered(told, view.now)
    found = findings(view, channel, log)
    new = tuple(finding for finding in found if finding.key not in known)
    if not new and (not found or told is None or view.now - instant(told.at) < REFRESH):
        return Notice(told, lasting=bool(found))
    reason, message = _said(told, known, found, new)
    noted = Tampering(reason=reason, message=message, at=timestamp(view.now), known=_known(known, found, view.now))
    return Notice(noted, new, lasting=True)


def findings(view: View, channel: ChannelView, log: LogState) -> tuple[Finding, ...]:
    """All that is not as it should be, the gravest first; of each kind so many that a loud pod hides no other kind."""
    found = (
        *_document(view, channel, log),
        *_keys(view),
        *_adapters(view),
        *_arms(view),
        *_evidence(view),
        *_planted(view),
        *_statuses(view, log),
        *_foreign(view),
        *_refused(view, channel),
    )
    return tuple(_first_of_each_kind(found))


def is_forgotten(known: KnownTampering, now: datetime) -> bool:
    """It was seen last so long ago, or is said to have been seen so late, that it is told anew when it is found."""
    return not timedelta() <= now - instant(known.at) < MEMORY


def _first_of_each_kind(found: Iterable[Finding]) -> Iterator[Finding]:
    seen: Counter[ConditionReason] = Counter()
    for finding in found:
        seen[finding.reason] += 1
        if seen[finding.reason] <= MOST_TOLD:
            yield finding


Known = dict[tuple[str, str], KnownTampering]


def _remembered(told: Tampering | None, now: datetime) -> Known:
    known = [one for one in (told.known if told else ()) if one.reason in tuple(ConditionReason) and not is_forgotten(one, now)]
    return {(one.reason, one.subject): one for one in known}


def _known(known: Known, found: Sequence[Finding], now: datetime) -> tuple[KnownTampering, ...]:
    """What is found now, then what was found last: what lasts must not be pushed out by what comes and goes."""
    seen = {finding.key: KnownTampering(reason=finding.key[0], subject=finding.key[1], at=timestamp(now)) for finding in found}
    before = sorted((old for key, old in known.items() if key not in seen), key=lambda old: instant(old.at), reverse=True)
    return (*seen.values(), *before)[:MOST_KNOWN]


def _said(told: Tampering | None, known: Known, found: Sequence[Finding], new: Sequence[Finding]) -> tuple[str, str]:
    """Reason and message. Anybody who reaches a pod can have a request refused: it takes nothing graver out of sight."""
    only_requests = all(finding.reason is ConditionReason.UNAUTHORIZED_REQUEST for finding in new)
    if told is not None and only_requests and (not new or any(kind != ConditionReason.UNAUTHORIZED_REQUEST for kind, _ in known)):
        return told.reason, told.message
    shown = [*new, *(finding for finding in found if finding not in new)][:MOST_TOLD]
    return str(new[0].reason), "; ".join(finding.message for finding in shown)


def _told(channel: ChannelView, now: datetime) -> Tampering | None:
    """What the status says, unless it can be none of ours: a reason that does not exist, or a time to come."""
    told = channel.status.tampering
    if told is None or told.reason not in tuple(ConditionReason) or instant(told.at) > now:
        return None
    return told


# ---- the pool's ConfigMap and the keys


def _document(view: View, channel: ChannelView, log: LogState) -> Iterator[Finding]:
    """The channel's key in the pool's ConfigMap: missing though it was committed, unsound, of another pool, or an older one."""
    pool, spec = view.pool, channel.spec
    problem = pool.document_problem or (_lost(view, log) if pool.document is None else _misplaced(view, channel, log, pool.document))
    if spec is None or problem is None:
        return
    version = f"in version {pool.resource_version}" if pool.resource_version else "deleted"
    yield Finding(ConditionReason.DOCUMENT_FORGED, f"ConfigMap {pool_configmap(spec.serving.pool)}, {version}", problem)


def _lost(view: View, log: LogState) -> str | None:
    committed = any(entry.status.live_since is not None for entry in log.serving)
    held = any(pod.report is not None and pod.report.committed for pod in view.pool.pods)
    return f"key {view.name} is gone" if committed or held else None


def _misplaced(view: View, channel: ChannelView, log: LogState, signed: SignedDocument) -> str | None:
    document, pool = signed.document, channel.spec.serving.pool if channel.spec else ""
    if (document.namespace, document.pool) != (view.settings.namespace, pool):
        return f"key {view.name} holds a document of pool {document.pool} in namespace {document.namespace}"
    held = tuple(document.revision)
    served = log.live is not None and log.live.status.live_since is not None and log.live.spec.sequence > held[0]
    if served or any(_answers_from_newer(pod, held) for pod in view.pool.pods):
        return f"key {view.name} holds revision {held[0]}.{held[1]} again, which a newer one had replaced"
    return None


def _answers_from_newer(pod: PodView, held: tuple[int, ...]) -> bool:
    """A preload is newer as well, but a pod that holds one answers as before."""
    report = pod.report
    if report is None or not report.committed or not report.routes:
        return False
    routed = entry_sequence(report.routes[0].entry)
    return routed > held[0] or (routed == held[0] == report.revision[0] and tuple(report.revision) > held)


def _keys(view: View) -> Iterator[Finding]:
    if view.pool.keys_problem is not None:
        yield Finding(ConditionReason.KEYS_FORGED, f"ConfigMap {KEYS_CONFIGMAP}, {view.pool.keys_problem}", "it is written anew")


# ---- the store


def _adapters(view: View) -> Iterator[Finding]:
    """Adapters whose bytes a pod found to be others than their digest names."""
    seen: set[str] = set()
    for pod, report in _reports(view):
        for adapter in report.adapters:
            forged = adapter.state is AdapterState.FAILED and adapter.reason == PodReason.DIGEST_MISMATCH
            if forged and adapter.name not in seen:
                seen.add(adapter.name)
                detail = f"{pod.name} refused it: {adapter.message or PodReason.DIGEST_MISMATCH.sentence}"
                yield Finding(ConditionReason.ADAPTER_FORGED, f"adapter {adapter.name} in the store", detail)


def _arms(view: View) -> Iterator[Finding]:
    """Incumbents and anchors that a drawing or an evaluation found to be others than their digests name."""
    for job in view.jobs:
        said = job.termination.message if job.termination else ""
        if job.step in READERS and job.exit_code == ExitCode.CONTRACT and said.startswith(ARMS) and _is_fresh(view, job):
            yield Finding(ConditionReason.ADAPTER_FORGED, f"Job {job.name}", said)


def _is_fresh(view: View, job: JobView) -> bool:
    return job.finished_at is not None and view.now - job.finished_at < MEMORY


def _evidence(view: View) -> Iterator[Finding]:
    if view.evidence is not None and view.evidence.forged:
        yield Finding(ConditionReason.EVIDENCE_FORGED, f"evidence of {view.evidence.test_entry}", view.evidence.problem or "")


def _planted(view: View) -> Iterator[Finding]:
    """Rounds, journals and reports that a drawing or an evaluation found without the seal's mark."""
    for job in view.jobs:
        said = job.termination.message if job.termination else ""
        if job.step in READERS and job.exit_code == ExitCode.CONTRACT and f": {UNMARKED}" in said and _is_fresh(view, job):
            yield Finding(ConditionReason.EVIDENCE_FORGED, f"Job {job.name}", said)


# ---- statuses


def _statuses(view: View, log: LogState) -> Iterator[Finding]:
    """States that name a verdict or promotion which the log lacks; of a broken log it is not known what it lacks."""
    if view.log.problem is not None:
        return
    for candidate in view.candidates:
        if not candidate.meta.deleting and not is_witnessed(log, candidate):
            subject = f"status {candidate.status.state} of candidate {candidate.meta.name}"
            yield Finding(ConditionReason.STATUS_FORGED, subject, "the log holds nothing of it")


# ---- what pods tell


def _foreign(view: View) -> Iterator[Finding]:
    seen: set[str] = set()
    for pod, report in _reports(view):
        for name in report.foreign_adapters:
            if name not in seen:
                seen.add(name)
                yield Finding(ConditionReason.UNAUTHORIZED_ADAPTER, f"adapter {name} in an engine", f"no document put it on {pod.name}")


def _refused(view: View, channel: ChannelView) -> Iterator[Finding]:
    """The newest request that went past the alias, when it is newer than the one told last."""
    refused = [(report.refused, pod.name) for pod, report in _reports(view) if report.refused is not None]
    if not refused:
        return
    newest, pod = max(refused, key=lambda item: (instant(item[0].at), item[1]))
    if _is_news(newest, _remembered(_told(channel, view.now), view.now), view.now):
        yield Finding(ConditionReason.UNAUTHORIZED_REQUEST, f"a request to {pod} at {newest.at}", newest.message)


def _is_news(refused: RefusedRequest, known: Known, now: datetime) -> bool:
    """A pod's clock may go ahead: nothing is newer than now."""
    at = min(instant(refused.at), now)
    told = [instant(one.at) for one in known.values() if one.reason == ConditionReason.UNAUTHORIZED_REQUEST]
    return now - at < MEMORY and (not told or at > max(told) + PAUSE)


def _reports(view: View) -> Iterator[tuple[PodView, PodReport]]:
    """What the pods say, in order of their names."""
    for pod in sorted(view.pool.pods, key=lambda pod: pod.name):
        if pod.report is not None:
            yield pod, pod.report
