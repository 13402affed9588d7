"""One channel on this pod: the document it holds, the adapters that follow from it, and the routes in force.

`reconcile` is level-triggered: it looks at the held document and at the adapters' states, and may run at any time, any number of times.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from gatevalve.contracts.reasons import PodReason
from gatevalve.contracts.serving import ChannelDocument, PodReport, Route, SignedDocument
from gatevalve_serving.adapters import Adapter
from gatevalve_serving.bypass import Attempts
from gatevalve_serving.documents import Shelf, Trust, check_addressee, check_names, check_order
from gatevalve_serving.metrics import DOCUMENTS_REFUSED, FLIPS, start_at_zero
from gatevalve_serving.problem import LONGEST_MESSAGE, Problem
from gatevalve_serving.progress import Progress
from gatevalve_serving.routes import ChannelRoutes, RouteTable, Target
from gatevalve_serving.workbench import Workbench

LOG = logging.getLogger("gatevalve.serving")


@dataclass(frozen=True, slots=True)
class Desk:
    """What the channels of a pod share for their documents and reports."""

    trust: Trust
    shelf: Shelf
    progress: Progress
    attempts: Attempts
    table: RouteTable = field(default_factory=RouteTable)


class Channel:
    """A channel's state on this pod; every change of its report bumps the pod's progress."""

    def __init__(self, name: str, bench: Workbench, desk: Desk) -> None:
        self.name = name
        self._bench, self._desk, self._table = bench, desk, desk.table
        self._held: SignedDocument | None = None
        self._refusal: Problem | None = None
        self._adapters: dict[str, Adapter] = {}
        self._routed: set[str] = set()
        self._closed = False

    @property
    def document(self) -> ChannelDocument | None:
        """The document it holds."""
        return self._held.document if self._held else None

    def close(self) -> list[asyncio.Task[None]]:
        """Stop keeping adapters, as the process ends; returns their cancelled tasks."""
        self._closed = True
        tasks = [adapter.task for adapter in self._adapters.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def offer(self, signed: SignedDocument, others: Iterable[ChannelDocument]) -> Problem | None:
        """Take a document if it is signed, for this pod, and not older than the held one; otherwise say why not."""
        problem = self._judge(signed, others)
        if problem is None:
            self._hold(signed)
        return problem

    def note_file(self, problem: Problem | None) -> None:
        """Show in the report why the pool's file is not taken, for as long as it is not.

        Only the operator writes that file. A push comes from anyone who reaches the port: its sender alone is told what is wrong.
        """
        if problem == self._refusal:
            return
        if problem is not None:
            self.count_refusal(problem)
        self._refusal = problem
        self._desk.progress.bump()

    def count_refusal(self, problem: Problem) -> None:
        """A document was not taken."""
        DOCUMENTS_REFUSED.labels(problem.reason.value).inc()
        LOG.warning("channel %s: document refused: %s: %s", self.name, problem.reason, problem.message[:LONGEST_MESSAGE])

    def look_at_adapters(self) -> None:
        """Have every adapter look now whether the engine still holds it, and not another one under its name."""
        for adapter in self._adapters.values():
            adapter.look_now()

    def reconcile(self) -> None:
        """Start, keep and let go of adapters as the held document wants, and put its routes in force once they can be."""
        document = self.document
        if document is None or self._closed:
            return
        self._keep_adapters(document)
        if not self.committed and self._obstacle(document) is None:
            self._flip(document)

    @property
    def committed(self) -> bool:
        """The held document's routes are in force."""
        return self.document is not None and self._table.of_channel(self.name) == _routes_of(self.document, self._bench.facts.base_name)

    @property
    def problem(self) -> Problem | None:
        """Why the pool's file is refused, or why the held document's routes are not in force."""
        if self._refusal is not None:
            return self._refusal
        obstacle = self._obstacle(self.document) if self.document is not None and not self.committed else None
        return obstacle if isinstance(obstacle, Problem) else None

    @property
    def serves(self) -> bool:
        """Routes of the channel are in force."""
        return self._table.of_channel(self.name) is not None

    @property
    def way_back_failed(self) -> bool:
        """The held document leads back to an adapter that was routed here before, and that adapter has failed."""
        if self.document is None or self.committed:
            return False
        targets = [self._adapters[route.adapter] for route in self.document.routes if route.adapter in self._adapters]
        return any(adapter.failure is not None and adapter.spec.digest in self._routed for adapter in targets)

    def report(self, refused: Problem | None = None) -> PodReport:
        """What the pod says of the channel; `refused`: to the sender of a document that was not taken."""
        base, facts, settings = self._bench.base, self._bench.facts, self._bench.settings
        in_force, problem = self._table.of_channel(self.name), refused or self.problem
        return PodReport(
            pod=settings.pod,
            pod_uid=settings.pod_uid,
            boot=settings.boot,
            channel=self.name,
            base_name=facts.base_name,
            base_digest=base.digest if base else None,
            key_id=settings.key_digest,
            limits=facts.limits,
            revision=self.document.revision if self.document else (),
            document_digest=self.document.digest_of() if self.document else None,
            committed=self.committed,
            routes=in_force.routes if in_force else (),
            adapters=tuple(adapter.report() for _, adapter in sorted(self._adapters.items())),
            reason=problem.reason if problem else None,
            message=problem.message[:LONGEST_MESSAGE] if problem else None,
            foreign_adapters=self._bench.registry.shown,
            refused=self._desk.attempts.newest,
            progress=self._desk.progress.value,
        )

    def _judge(self, signed: SignedDocument, others: Iterable[ChannelDocument]) -> Problem | None:
        document, settings = signed.document, self._bench.settings
        return (
            self._desk.trust.verify(signed)
            or check_addressee(document, settings.namespace, settings.pool, self.name)
            or check_order(self.document, document)
            or self._check_base(document)
            or check_names(document, self._bench.facts.base_names, others)
            or self._check_digests(document)
        )

    def _check_base(self, document: ChannelDocument) -> Problem | None:
        names, base = self._bench.facts.base_names, self._bench.base
        if document.base_name not in names:
            return Problem(PodReason.BASE_MISMATCH, f"the document is for base {document.base_name}, this pod serves {', '.join(names)}")
        if base is not None and base.digest != document.base_digest:
            why = base.problem or f"this pod serves {base.digest}"
            return Problem(PodReason.BASE_MISMATCH, f"the document is for base {document.base_digest}; {why}")
        return None

    def _check_digests(self, document: ChannelDocument) -> Problem | None:
        """A name is never reused: an adapter on the pod keeps its digest for life."""
        for spec in document.adapters:
            held = self._adapters.get(spec.name)
            if held is not None and held.spec.digest != spec.digest:
                return Problem(PodReason.ALIAS_CONFLICT, f"name {spec.name} belongs to adapter {held.spec.digest} on this pod")
        return None

    def _keep_adapters(self, document: ChannelDocument) -> None:
        for spec in document.adapters:
            adapter = self._adapters.get(spec.name)
            if adapter is None or adapter.task.done():
                self._adapters[spec.name] = Adapter(self.name, spec, document.drain_seconds, self._bench, self._changed)
                self._adapters[spec.name].task.add_done_callback(lambda _: self._changed())
        wanted = {spec.name for spec in document.adapters} | self._names_in_force()
        for name, adapter in list(self._adapters.items()):
            adapter.want(name in wanted, document.drain_seconds)
            if adapter.task.done():
                del self._adapters[name]
                self._desk.progress.bump()

    def _names_in_force(self) -> set[str]:
        in_force = self._table.of_channel(self.name)
        return {target.model for target in in_force.targets} if in_force else set()

    def _obstacle(self, document: ChannelDocument) -> Problem | str | None:
        """What keeps the document's routes from being in force: a problem, or something to wait for."""
        if self._bench.base is None:
            return "the base's files are being hashed"
        if problem := self._check_base(document):
            return problem
        adapters = [self._adapters.get(route.adapter) for route in document.routes if route.adapter is not None]
        for adapter in adapters:
            if adapter is None or not adapter.verified:
                return (adapter.failure if adapter else None) or "an adapter is being brought up"
        return None

    def _flip(self, document: ChannelDocument) -> None:
        self._table.flip(_routes_of(document, self._bench.facts.base_name))
        self._routed |= {spec.digest for spec in document.adapters if any(route.adapter == spec.name for route in document.routes)}
        FLIPS.labels(self.name).inc()
        LOG.info("channel %s: %s answers %s", self.name, ", ".join(route.entry for route in document.routes), document.alias)
        self._desk.progress.bump()
        self._keep_adapters(document)

    def _hold(self, signed: SignedDocument) -> None:
        if self._held == signed:
            return
        LOG.info("channel %s: holding revision %s", self.name, signed.document.revision)
        start_at_zero(self.name)
        self._held = signed
        self._desk.shelf.save(signed)
        for adapter in self._adapters.values():
            adapter.try_again()
        self._desk.progress.bump()
        self.reconcile()

    def _changed(self) -> None:
        self._desk.progress.bump()
        self.reconcile()


def _routes_of(document: ChannelDocument, base_name: str) -> ChannelRoutes:
    digests = {spec.name: spec.digest for spec in document.adapters}
    return ChannelRoutes(
        channel=document.channel,
        uid=document.uid,
        alias=document.alias,
        base_digest=document.base_digest,
        capture=document.capture,
        routes=document.routes,
        targets=tuple(_target(route, digests, base_name) for route in document.routes),
    )


def _target(route: Route, digests: dict[str, str], base_name: str) -> Target:
    if route.adapter is None:
        return Target(route.entry, base_name, None, route.weight)
    return Target(route.entry, route.adapter, digests[route.adapter], route.weight)
