"""Counters of the middleware, in the process's default registry: vLLM's /metrics shows them beside its own."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from gatevalve.contracts import metrics as contracts
from gatevalve.contracts.metrics import Metric
from gatevalve.contracts.reasons import PodReason
from gatevalve_serving.bypass import Bypass


def _counter(metric: Metric) -> Counter:
    return Counter(metric.full_name, metric.sentence, metric.labels)


REQUESTS = _counter(contracts.SERVING_REQUESTS_TOTAL)
FLIPS = _counter(contracts.SERVING_FLIPS_TOTAL)
REFUSED = _counter(contracts.SERVING_REFUSED_TOTAL)
DOCUMENTS_REFUSED = _counter(contracts.SERVING_DOCUMENTS_REFUSED_TOTAL)
CAPTURED = _counter(contracts.SERVING_CAPTURED_TOTAL)
CAPTURE_DROPPED = _counter(contracts.SERVING_CAPTURE_DROPPED_TOTAL)
FEEDBACK = _counter(contracts.SERVING_FEEDBACK_TOTAL)
IN_FLIGHT = Gauge(contracts.SERVING_IN_FLIGHT.full_name, contracts.SERVING_IN_FLIGHT.sentence, contracts.SERVING_IN_FLIGHT.labels)

OUTCOMES = ("ok", "client_error", "server_error", "aborted")
REFUSALS = ("not_allowed", "unauthorized", "no_such_model", *Bypass)
DROPS = ("queue_full", "incomplete", "too_large", "not_written")


def start_at_zero(channel: str) -> None:
    """Show a channel's series before their first event."""
    for outcome in OUTCOMES:
        REQUESTS.labels(channel, outcome)
    for reason in DROPS:
        CAPTURE_DROPPED.labels(channel, reason)
    for series in (IN_FLIGHT, FLIPS, CAPTURED, FEEDBACK):
        series.labels(channel)


for _refusal in REFUSALS:
    REFUSED.labels(_refusal)
for _reason in PodReason:
    DOCUMENTS_REFUSED.labels(_reason.value)
