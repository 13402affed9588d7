"""Channel documents: what every pod of a pool shall hold, and the revision that orders it."""

from __future__ import annotations

from collections.abc import Iterable

from gatevalve.contracts.kinds import AdapterChannelSpec
from gatevalve.contracts.serving import LAST_STEP, AdapterOnPod, AdapterRole, ChannelDocument, Route
from gatevalve.decide.log import LogState, name_of, served_digest
from gatevalve.decide.view import EntryView, PoolView, View

MOST_STEPS_AHEAD = 1_000
"""Steps of one entry that are offered to pods without a commit are few. A pod that claims more must not use up the steps there are."""


def route_to(entry: EntryView) -> Route:
    """All of the alias's traffic to what an entry serves."""
    serves = entry.spec.serves
    return Route(adapter=serves.adapter if serves else None, entry=name_of(entry.spec), weight=100)


def adapter_of(entry: EntryView, role: AdapterRole) -> tuple[AdapterOnPod, ...]:
    """The adapter an entry serves, in a role; empty for the base."""
    serves = entry.spec.serves
    if serves is None or serves.adapter is None or serves.digest is None or serves.uri is None:
        return ()
    return (AdapterOnPod(name=serves.adapter, digest=serves.digest, uri=serves.uri, role=role),)


def warm_entry(log: LogState) -> EntryView | None:
    """The serving entry kept loaded for a quick way back: the newest before the live one with another adapter that is not quarantined."""
    live = log.live
    if live is None:
        return None
    for entry in reversed(log.serving[:-1]):
        digest = served_digest(entry)
        if digest is not None and digest != served_digest(live) and digest not in log.quarantine:
            return entry
    return None


def committed_document(view: View, spec: AdapterChannelSpec, log: LogState) -> ChannelDocument:
    """The document in which the alias answers from the live entry (revision not yet set)."""
    live = _live(log)
    warm = warm_entry(log)
    adapters = adapter_of(live, AdapterRole.LIVE) + (adapter_of(warm, AdapterRole.WARM) if warm else ())
    return _document(view, spec, log, adapters, route_to(live))


def preload_document(view: View, spec: AdapterChannelSpec, log: LogState) -> ChannelDocument:
    """The document that loads the live entry's adapter beside the one still serving (revision not yet set)."""
    live, before = _live(log), log.serving[-2]
    adapters = adapter_of(before, AdapterRole.LIVE) + adapter_of(live, AdapterRole.PRELOAD)
    return _document(view, spec, log, adapters, route_to(before))


def with_revision(content: ChannelDocument, pool: PoolView) -> ChannelDocument:
    """The document under the newest revision of its sequence, when it is what that names everywhere; otherwise under the next step."""
    held = [revision for revision, _ in _held(pool) if revision[0] == content.revision[0]]
    if not held:
        return content.model_copy(update={"revision": (content.revision[0], 0)})
    sequence, step = max(held)
    document = content.model_copy(update={"revision": (sequence, step)})
    named = {digest for revision, digest in _held(pool) if revision == (sequence, step)}
    return document if named == {document.digest_of()} else content.model_copy(update={"revision": (sequence, min(step + 1, LAST_STEP))})


def _held(pool: PoolView) -> Iterable[tuple[tuple[int, ...], str | None]]:
    """Revision and digest of every document that the ConfigMap or, as far as that is credible, a pod holds."""
    committed = pool.document.document if pool.document is not None else None
    if committed is not None:
        yield committed.revision, committed.digest_of()
    for pod in pool.pods:
        if pod.report is not None and pod.report.revision and _is_credible(pod.report.revision, committed):
            yield pod.report.revision, pod.report.document_digest


def _is_credible(revision: tuple[int, ...], committed: ChannelDocument | None) -> bool:
    sequence, step = revision
    known = committed.revision[1] if committed is not None and committed.revision[0] == sequence else 0
    return step <= known + MOST_STEPS_AHEAD


def _live(log: LogState) -> EntryView:
    live = log.live
    if live is None:
        raise ValueError("a channel without an Open entry has no document")
    return live


def _document(view: View, spec: AdapterChannelSpec, log: LogState, adapters: tuple[AdapterOnPod, ...], route: Route) -> ChannelDocument:
    live = _live(log)
    return ChannelDocument(
        namespace=view.settings.namespace,
        pool=spec.serving.pool,
        channel=view.name,
        uid=log.store_uid,
        base_name=spec.base.name,
        base_digest=spec.base.digest,
        key_id=view.settings.key_id,
        revision=(live.spec.sequence, 0),
        alias=spec.alias,
        adapters=adapters,
        routes=(route,),
        drain_seconds=spec.serving.drain_seconds,
        capture=spec.capture,
    )
