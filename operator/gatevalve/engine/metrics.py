"""The operator's metrics as Prometheus objects, made from their contracts, and what sets them."""

from __future__ import annotations

from datetime import datetime
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gatevalve.contracts import metrics as contracts
from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus, AdapterReleaseSpec, AdapterReleaseStatus, Tampering
from gatevalve.contracts.metrics import FIRST_ENDS, PREFIX, RATIO_WINDOW, SENTINEL_OUTCOMES, TAMPERING_REASONS, Metric
from gatevalve.contracts.names import entry_name
from gatevalve.contracts.reasons import SERVING_ACTIONS, TERMINAL_STATES, Action, CandidateCondition, ChannelCondition, ConditionReason
from gatevalve.decide.conditions import condition_of, instant
from gatevalve.decide.log import fold
from gatevalve.decide.plan import CandidateStatusUpdate, ChannelStatusUpdate, Plan, ReleaseStatusUpdate, StatusUpdate
from gatevalve.decide.sentinel_schedule import KINDS, failed_sentinel
from gatevalve.decide.tampering import is_forgotten
from gatevalve.decide.view import LogView, PoolView, View
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.statuses import AnyStatus
from gatevalve.gate.power import planned_power
from gatevalve.io.ports import ADAPTER_CANDIDATES, ADAPTER_RELEASES


class Metrics:
    """Every metric of the contracts. Counters grow only after the write they count has stuck."""

    def __init__(self, registry: CollectorRegistry, cache: ObjectCache) -> None:
        """Register every metric; the cache tells which channel a written object belongs to."""
        self._counters = {m.name: Counter(PREFIX + m.name, m.sentence, m.labels, registry=registry) for m in _of("counter")}
        self._gauges = {m.name: Gauge(PREFIX + m.name, m.sentence, m.labels, registry=registry) for m in _of("gauge")}
        self._histograms = {
            m.name: Histogram(PREFIX + m.name, m.sentence, m.labels, buckets=m.buckets, registry=registry) for m in _of("histogram")
        }
        self._cache = cache
        self._live: dict[str, str] = {}

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """A counter with its labels."""
        found = self._counters[metric.name]
        return found.labels(*labels) if labels else found

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        """A gauge with its labels."""
        found = self._gauges[metric.name]
        return found.labels(*labels) if labels else found

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """A histogram with its labels."""
        found = self._histograms[metric.name]
        return found.labels(*labels) if labels else found

    def appended(self, entry: AdapterReleaseSpec) -> None:
        """An entry was written."""
        self.counter(contracts.RELEASES_TOTAL, entry.channel.name, entry.action).inc()
        outcome = SENTINEL_OUTCOMES.get(entry.reason) if entry.action is Action.SENTINEL else None
        if outcome is not None and entry.sentinel is not None:
            self.counter(contracts.SENTINELS_TOTAL, entry.channel.name, entry.sentinel.kind, outcome).inc()

    def written(self, update: StatusUpdate, before: AnyStatus) -> None:
        """A status was written."""
        if isinstance(update, CandidateStatusUpdate) and isinstance(before, AdapterCandidateStatus):
            self._ended(update, before)
        if isinstance(update, ReleaseStatusUpdate) and isinstance(before, AdapterReleaseStatus):
            self._rolled_out(update, before)
        if isinstance(update, ChannelStatusUpdate) and isinstance(before, AdapterChannelStatus):
            self._tampered(update, before)

    def verified(self, channel: str, when: datetime) -> None:
        """The whole log was verified anew."""
        self.gauge(contracts.LOG_VERIFIED, channel).set(when.timestamp())

    def observed(self, view: View, plan: Plan) -> None:
        """A reconcile was carried out."""
        if view.channel is None:
            self._forget(view.name)
            return
        self._first(view.name)
        self._log(view.name, view.log)
        live = _live_entry(view.log)
        self._pool(view.name, view.pool, live)
        self._show_live(view.name, live)
        status = next((update.status for update in plan.statuses if isinstance(update, ChannelStatusUpdate)), view.channel.status)
        self.gauge(contracts.POLICY_UNAPPROVED, view.name).set(policy_is_unapproved(status))
        self.gauge(contracts.ROUND_WAITING, view.name).set(round_is_waiting(status))
        if status.round is not None:
            self.gauge(contracts.TESTS_REMAINING, view.name).set(status.round.max_tests - status.round.tests)

    def _log(self, channel: str, log: LogView) -> None:
        self.gauge(contracts.LOG_VALID, channel).set(log.problem is None and log.finding is None)
        self.gauge(contracts.LOG_HEAD_SEQUENCE, channel).set(len(log.entries) - 1)
        self.gauge(contracts.FROZEN, channel).set(fold(log).frozen_by is not None)
        self.gauge(contracts.SENTINEL_FAILED, channel).set(failed_sentinel(fold(log)) is not None)
        self.gauge(contracts.LOG_UNEXPORTED, channel).set(sum(not entry.exported for entry in log.entries))
        policy = fold(log).policy
        if policy is not None and (seen := planned_power(policy)) is not None:
            self.gauge(contracts.GATE_POWER_RATIO, channel).set(seen.share)
        ratio = rejection_ratio(log)
        if ratio is not None:
            self.gauge(contracts.REJECTION_RATIO, channel).set(ratio)

    def _pool(self, channel: str, pool: PoolView, live: str | None) -> None:
        answering = [pod for pod in pool.pods if pod.answering_entry is not None and pod.answering_entry == live]
        self.gauge(contracts.PODS_DIVERGED, channel).set(len(pool.pods) - len(answering))
        foreign = {name for pod in pool.pods if pod.report is not None for name in pod.report.foreign_adapters}
        self.gauge(contracts.UNAUTHORIZED_ADAPTERS, channel).set(len(foreign))

    def _show_live(self, channel: str, live: str | None) -> None:
        old = self._live.pop(channel, None)
        if old is not None and old != live:
            self._gauges[contracts.LIVE_RELEASE_INFO.name].remove(channel, old)
        if live is not None:
            self._live[channel] = live
            self.gauge(contracts.LIVE_RELEASE_INFO, channel, live).set(1)

    def _first(self, channel: str) -> None:
        """Show 0 from the start, so that rate() sees the first of each."""
        if channel in self._live:
            return
        for action in Action:
            self.counter(contracts.RELEASES_TOTAL, channel, action)
        for verdict, reason in FIRST_ENDS:
            self.counter(contracts.CANDIDATES_TOTAL, channel, verdict, reason)
        for kind, outcome in product(KINDS, SENTINEL_OUTCOMES.values()):
            self.counter(contracts.SENTINELS_TOTAL, channel, kind, outcome)
        for tampering in TAMPERING_REASONS:
            self.counter(contracts.TAMPERING_TOTAL, channel, tampering)
        self.counter(contracts.RECONCILE_ERRORS_TOTAL, channel)

    def _forget(self, channel: str) -> None:
        """Without its channel nothing of it is true any more: a gauge that stayed would alert for ever."""
        self._show_live(channel, None)
        for metric in contracts.METRICS:
            if metric.labels == ("channel",) and metric.kind == "gauge":
                self._gauges[metric.name].remove(channel)
        self._counters[contracts.RECONCILE_ERRORS_TOTAL.name].remove(channel)

    def _ended(self, update: CandidateStatusUpdate, before: AdapterCandidateStatus) -> None:
        candidate = self._cache.get(ADAPTER_CANDIDATES, update.name)
        if update.status.state not in TERMINAL_STATES or before.state in TERMINAL_STATES or candidate is None:
            return
        decision = update.status.decision
        verdict, reason = (decision.verdict, decision.reason) if decision else (str(update.status.state), _decided_reason(update.status))
        self.counter(contracts.CANDIDATES_TOTAL, candidate["spec"]["channel"], verdict, reason).inc()

    def _tampered(self, update: ChannelStatusUpdate, before: AdapterChannelStatus) -> None:
        for reason in new_tamperings(update.status.tampering, before.tampering):
            self.counter(contracts.TAMPERING_TOTAL, update.name, reason).inc()

    def _rolled_out(self, update: ReleaseStatusUpdate, before: AdapterReleaseStatus) -> None:
        timings, release = update.status.timings, self._cache.get(ADAPTER_RELEASES, update.name)
        if timings is None or before.timings is not None or release is None:
            return
        channel = release["spec"]["channel"]["name"]
        flip = contracts.ROLLBACK_SECONDS if release["spec"]["action"] == Action.ROLLBACK else contracts.FLIP_SECONDS
        if timings.flip_ms is not None:
            self.histogram(flip, channel).observe(timings.flip_ms / 1000)
        if timings.preload_ms is not None:
            self.histogram(contracts.PRELOAD_SECONDS, channel).observe(timings.preload_ms / 1000)


def new_tamperings(now: Tampering | None, before: Tampering | None) -> tuple[str, ...]:
    """The reason of each finding that was not known, or known and forgotten; what lasts is only noted as seen again."""
    if now is None:
        return ()
    told = {(known.reason, known.subject) for known in (before.known if before else ()) if not is_forgotten(known, instant(now.at))}
    return tuple(known.reason for known in now.known if (known.reason, known.subject) not in told)


def policy_is_unapproved(status: AdapterChannelStatus) -> bool:
    """Whether the channel's status says that the policy which it names waits for a person's approval."""
    gate = condition_of(status.conditions, ChannelCondition.GATE_READY)
    return gate is not None and gate.reason == ConditionReason.POLICY_UNAPPROVED


def round_is_waiting(status: AdapterChannelStatus) -> bool:
    """Whether the channel's status says that no test can be opened for want of items."""
    waiting = condition_of(status.conditions, ChannelCondition.ROUND_WAITING)
    return waiting is not None and waiting.status == "True"


def rejection_ratio(log: LogView) -> float | None:
    """Share of the last RATIO_WINDOW verdicts that were Reject; None before the first."""
    verdicts = [entry.spec.action for entry in log.entries if entry.spec.action in (Action.ACCEPT, Action.REJECT)][-RATIO_WINDOW:]
    return verdicts.count(Action.REJECT) / len(verdicts) if verdicts else None


def _live_entry(log: LogView) -> str | None:
    serving = [entry.spec for entry in log.entries if entry.spec.action in SERVING_ACTIONS and entry.spec.serves is not None]
    return entry_name(serving[-1].channel.name, serving[-1].sequence) if serving else None


def _decided_reason(status: AdapterCandidateStatus) -> str:
    return next((condition.reason for condition in status.conditions if condition.type == CandidateCondition.DECIDED), "Unknown")


def _of(kind: str) -> list[Metric]:
    return [metric for metric in contracts.METRICS if metric.kind == kind]
