"""Restoring: while nothing new is rolled out, the pool's ConfigMap still leads to what served last, and a pod that starts serves it."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterChannelSpec
from gatevalve.contracts.reasons import Action
from gatevalve.contracts.serving import ChannelDocument
from gatevalve.decide.documents import committed_document, with_revision
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.plan import CommitDocument
from gatevalve.decide.view import EntryView, View


def restored_document(view: View, spec: AdapterChannelSpec, log: LogState) -> tuple[CommitDocument, ...]:
    """The document that leads to what served last, where the ConfigMap no longer does. Of a broken log only what pods answer from."""
    live, served = log.live, LogState(_until_served(log))
    if live is None or served.live is None or view.pool.alias_owner is not None:
        return ()
    if not _is_witnessed_by_pods(view, served.live):
        return ()
    content = committed_document(view, spec, served).model_copy(update={"revision": (live.spec.sequence, 0)})
    return commit_where_it_leads_elsewhere(view, spec, with_revision(content, view.pool))


def commit_where_it_leads_elsewhere(view: View, spec: AdapterChannelSpec, document: ChannelDocument) -> tuple[CommitDocument, ...]:
    """The commit of a document, unless the ConfigMap leads to the same already."""
    held = view.pool.document
    return () if held is not None and held.document.routes == document.routes else (commit_of(view, spec, document),)


def commit_of(view: View, spec: AdapterChannelSpec, document: ChannelDocument) -> CommitDocument:
    """The write of a document to the pool's ConfigMap as it was read."""
    return CommitDocument(spec.serving.pool, view.name, document, view.pool.resource_version)


def has_served(entry: EntryView) -> bool:
    """Every serving entry but a promotion that has not gone live leads to something that served before."""
    return entry.spec.action is not Action.PROMOTE or entry.status.live_since is not None


def _until_served(log: LogState) -> tuple[EntryView, ...]:
    """The log up to its newest serving entry that has served."""
    newest = next((entry.spec.sequence for entry in reversed(log.serving) if has_served(entry)), -1)
    return log.entries[: newest + 1]


def _is_witnessed_by_pods(view: View, served: EntryView) -> bool:
    """The sound start of a broken log may lack the release that serves: then what it ends with is no way to go."""
    answered = {pod.answering_entry for pod in view.pool.pods if pod.reachable and pod.answering_entry is not None}
    return view.log.problem is None or answered == {name_of(served.spec)}
