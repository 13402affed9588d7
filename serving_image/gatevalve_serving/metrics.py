"""Counters of the middleware, in the process's default registry: vLLM's /metrics shows them beside its own."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from gatevalve.contracts.reasons import PodReason

REQUESTS = Counter("gatevalve_serving_requests", "Requests routed through an alias, by how the engine answered.", ["channel", "outcome"])
IN_FLIGHT = Gauge("gatevalve_serving_in_flight", "Requests through an alias that are in the engine.", ["channel"])
FLIPS = Counter("gatevalve_serving_flips", "Times the routes of a channel were replaced.", ["channel"])
REFUSED = Counter(
    "gatevalve_serving_refused", "Requests outside the allow-list, without a served alias, or without the API key.", ["reason"]
)
DOCUMENTS_REFUSED = Counter("gatevalve_serving_documents_refused", "Channel documents refused, by reason.", ["reason"])
CAPTURED = Counter("gatevalve_serving_captured", "Replies written to traffic segments.", ["channel"])
CAPTURE_DROPPED = Counter("gatevalve_serving_capture_dropped", "Replies and feedback not written, by reason.", ["channel", "reason"])
FEEDBACK = Counter("gatevalve_serving_feedback", "Feedback written to traffic segments.", ["channel"])

OUTCOMES = ("ok", "client_error", "server_error", "aborted")
REFUSALS = ("not_allowed", "unauthorized", "no_such_model", "adapter_header", "websocket")
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
