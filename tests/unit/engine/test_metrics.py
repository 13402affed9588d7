"""What the operator counts and shows: every series that can grow is there from the start, and nothing outlives its channel."""

from __future__ import annotations

import ast
import itertools
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gatevalve.contracts.kinds import AdapterCandidateStatus, AdapterChannelStatus, DecisionStatus, KnownTampering, Tampering
from gatevalve.contracts.metrics import FIRST_ENDS, METRICS, REFUSALS, TAMPERING_REASONS
from gatevalve.contracts.reasons import Action, CandidateState, ChannelCondition, ConditionReason, EntryReason, Verdict
from gatevalve.contracts.serving import EngineLimits, PodReport
from gatevalve.decide import entries
from gatevalve.decide import plan as plans
from gatevalve.decide.conditions import with_condition
from gatevalve.decide.log import fold
from gatevalve.decide.view import ChannelView, LogView, ObjectMeta, PodView, PoolView, View
from gatevalve.engine.cache import ObjectCache
from gatevalve.engine.metrics import Metrics
from gatevalve.gate.disclosure import PUBLIC_REASON
from gatevalve.io.ports import ADAPTER_CANDIDATES
from support import world
from support.engine_world import settings

CHANNEL = {"channel": "support"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DECIDE = Path(plans.__file__).parent


class Told:
    """The metrics of an operator, and what they show."""

    def __init__(self) -> None:
        self.registry, self.cache = CollectorRegistry(), ObjectCache()
        self.metrics = Metrics(self.registry, self.cache)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"gatevalve_{name}", CHANNEL | labels)

    def series_of_the_channel(self) -> set[tuple[str, ...]]:
        """Name and labels of everything that is said of the channel."""
        found = (sample for family in self.registry.collect() for sample in family.samples if sample.labels.get("channel") == "support")
        return {(sample.name, *sorted(sample.labels.values())) for sample in found}


@pytest.fixture
def told() -> Told:
    return Told()


def view(pool: PoolView | None = None, log: LogView | None = None) -> View:
    channel = ChannelView(ObjectMeta("support", "uid-1"), world.channel_spec(), AdapterChannelStatus())
    return View(NOW, settings("sha256:" + "0" * 64), "support", channel, None, log or LogView(), pool=pool or PoolView())


# ---- from the start


def test_every_end_and_every_kind_of_tampering_is_shown_as_zero_before_the_first(told: Told) -> None:
    told.metrics.observed(view(), plans.Plan())
    assert {told.value("candidates_total", verdict=verdict, reason=reason) for verdict, reason in FIRST_ENDS} == {0.0}
    assert {told.value("tampering_total", reason=reason) for reason in TAMPERING_REASONS} == {0.0}
    assert {told.value("releases_total", action=action) for action in Action} == {0.0}


def test_every_reason_that_the_gate_discloses_is_one_of_a_refusal() -> None:
    assert {*PUBLIC_REASON.values(), EntryReason.PRIMARY_NOT_PASSED} <= set(REFUSALS)


def ends_in_the_decisions() -> set[tuple[str, str]]:
    """Every state and reason that stand side by side in the source of the decisions."""
    return {
        (CandidateState[state], ConditionReason[reason])
        for path in DECIDE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for first, second in itertools.pairwise(_items(node))
        if (state := _member(first, "CandidateState")) in ("SKIPPED", "ERRORED", "ABORTED")
        and (reason := _member(second, "ConditionReason"))
    }


def _items(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return node.elts if isinstance(node, ast.Tuple) else []


def _member(node: ast.expr, enum: str) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == enum else None


def test_every_end_that_the_decisions_name_is_shown_from_the_start() -> None:
    found = ends_in_the_decisions()
    assert ("Errored", "CaptureBroken") in found
    assert found <= set(FIRST_ENDS)


@pytest.mark.parametrize(
    ("verdict", "reason"), [(Verdict.REJECTED, EntryReason.TRAINING_DIVERGED), (Verdict.INCONCLUSIVE, EntryReason.STALE)]
)
def test_a_candidate_that_ends_is_counted_once_in_a_series_that_was_there(told: Told, verdict: Verdict, reason: EntryReason) -> None:
    told.cache.put(ADAPTER_CANDIDATES, {"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"}, "spec": {"channel": "support"}})
    told.metrics.observed(view(), plans.Plan())
    before = told.series_of_the_channel()
    ended = AdapterCandidateStatus(state=CandidateState(verdict.value), decision=DecisionStatus(verdict=verdict, reason=reason))
    told.metrics.written(plans.CandidateStatusUpdate("c", "u", ended), AdapterCandidateStatus())
    told.metrics.written(plans.CandidateStatusUpdate("c", "u", ended), ended)
    assert told.value("candidates_total", verdict=verdict, reason=reason) == 1.0
    assert told.series_of_the_channel() == before


@pytest.mark.parametrize(
    ("log", "valid"),
    [(LogView(), 1.0), (LogView(problem="its digest is wrong"), 0.0), (LogView(finding="its evidence is gone"), 0.0)],
    ids=["sound", "broken", "with a finding"],
)
def test_a_log_counts_as_valid_when_its_chain_is_sound_and_it_stood_its_audit(told: Told, log: LogView, valid: float) -> None:
    told.metrics.observed(view(log=log), plans.Plan())
    assert told.value("log_valid") == valid


# ---- tampering


def seen(*subjects: str, at: str = "00:00", reason: ConditionReason = ConditionReason.DOCUMENT_FORGED) -> Tampering:
    """What the status says of findings that were seen at a time of the same day."""
    when = f"2026-01-01T{at}:00Z"
    known = tuple(KnownTampering(reason=reason, subject=subject, at=when) for subject in subjects)
    return Tampering(reason=ConditionReason.DOCUMENT_FORGED, message="edited", at=when, known=known)


TAMPERINGS: dict[str, tuple[Tampering | None, Tampering | None, float]] = {
    "the first": (None, seen("a"), 1.0),
    "two at once": (None, seen("a", "b"), 2.0),
    "one that is known, written again": (seen("a"), seen("a"), 0.0),
    "another by the same reason": (seen("a"), seen("a", "b"), 1.0),
    "one that lasts, noted as seen again": (seen("a"), seen("a", at="00:12"), 0.0),
    "the same after it was forgotten": (seen("a"), seen("a", at="01:00"), 1.0),
    "another kind, of the same name": (seen("a", reason=ConditionReason.KEYS_FORGED), seen("a"), 1.0),
    "one that is forgotten": (seen("a"), None, 0.0),
}


@pytest.mark.parametrize("sentence", TAMPERINGS)
def test_tampering_is_counted_when_it_is_new(told: Told, sentence: str) -> None:
    before, after, expected = TAMPERINGS[sentence]
    told.metrics.observed(view(), plans.Plan())
    update = plans.ChannelStatusUpdate("support", "uid-1", AdapterChannelStatus(tampering=after))
    told.metrics.written(update, AdapterChannelStatus(tampering=before))
    assert told.value("tampering_total", reason="DocumentForged") == expected


def pod(name: str, *foreign: str) -> PodView:
    limits = EngineLimits(max_loras=4, max_lora_rank=16, max_cpu_loras=8, runtime_lora=True)
    report = PodReport(pod=name, pod_uid=name, boot="b", channel="support", base_name="base", limits=limits, foreign_adapters=foreign)
    return PodView(name, name, "10.0.0.1", True, True, report=report)


FOREIGN: dict[str, tuple[tuple[PodView, ...], float]] = {
    "no pod answers": ((replace(pod("a", "evil"), report=None),), 0.0),
    "pods hold nothing foreign": ((pod("a"), pod("b")), 0.0),
    "two pods hold the same": ((pod("a", "evil"), pod("b", "evil")), 1.0),
    "two pods hold different ones": ((pod("a", "evil"), pod("b", "worse", "evil")), 2.0),
}


@pytest.mark.parametrize("sentence", FOREIGN)
def test_unauthorized_adapters_are_counted_by_name_when(told: Told, sentence: str) -> None:
    pods, expected = FOREIGN[sentence]
    told.metrics.observed(view(PoolView(pods=pods)), plans.Plan())
    assert told.value("unauthorized_adapters") == expected


# ---- policy

POLICIES = {ConditionReason.AS_EXPECTED: 0.0, ConditionReason.POLICY_MISSING: 0.0, ConditionReason.POLICY_UNAPPROVED: 1.0}


@pytest.mark.parametrize("reason", POLICIES)
def test_a_policy_is_unapproved_when_the_channel_says_so(told: Told, reason: ConditionReason) -> None:
    seen = view()
    assert seen.channel is not None
    gate = with_condition((), ChannelCondition.GATE_READY, POLICIES[reason] == 0, reason, "", seen.now, 1)
    meta, status = seen.channel.meta, AdapterChannelStatus(conditions=gate)
    told.metrics.observed(seen, plans.Plan(statuses=(plans.ChannelStatusUpdate(meta.name, meta.uid, status),)))
    assert told.value("policy_unapproved") == POLICIES[reason]


@pytest.mark.parametrize("waits", [True, False])
def test_a_round_waits_when_the_channel_says_so(told: Told, waits: bool) -> None:
    seen = view()
    assert seen.channel is not None
    reason = ConditionReason.ITEM_SUPPLY if waits else ConditionReason.AS_EXPECTED
    status = AdapterChannelStatus(conditions=with_condition((), ChannelCondition.ROUND_WAITING, waits, reason, "", seen.now, 1))
    told.metrics.observed(seen, plans.Plan(statuses=(plans.ChannelStatusUpdate("support", seen.channel.meta.uid, status),)))
    assert told.value("round_waiting") == waits


# ---- freezes


def test_a_channel_is_frozen_from_its_freeze_until_it_is_lifted(told: Told) -> None:
    it = world.World()
    it.run()
    assert shown(told, it) == 0
    it._append(entries.freeze_entry(it.view(), fold(it.view().log), EntryReason.SENTINEL_FAILED, "wrong"), exported=True)
    assert shown(told, it) == 1
    it._append(entries.unfreeze_entry(it.view(), fold(it.view().log), it.log[-1].spec), exported=True)
    assert shown(told, it) == 0


def shown(told: Told, it: world.World) -> float | None:
    """What the metric says of the world as it is."""
    told.metrics.observed(it.view(), plans.Plan())
    return told.value("frozen")


# ---- verification, and the end of a channel


def test_the_power_of_the_policy_in_force_is_shown_and_nothing_while_there_is_none(told: Told) -> None:
    told.metrics.observed(view(), plans.Plan())
    assert told.value("gate_power_ratio") is None
    lived = world.World()
    lived.run()
    told.metrics.observed(view(log=LogView(tuple(lived.log))), plans.Plan())
    assert told.value("gate_power_ratio") == pytest.approx(0.12, abs=0.01)


def test_the_time_of_the_last_whole_verification_is_shown_and_nothing_before_it(told: Told) -> None:
    told.metrics.observed(view(), plans.Plan())
    assert told.value("log_verified_timestamp_seconds") is None
    told.metrics.verified("support", NOW)
    assert told.value("log_verified_timestamp_seconds") == NOW.timestamp()


def test_gauges_and_errors_of_a_channel_end_with_it(told: Told) -> None:
    told.metrics.observed(view(PoolView(pods=(pod("a", "evil"),))), plans.Plan())
    told.metrics.verified("support", NOW)
    told.metrics.observed(replace(view(), channel=None), plans.Plan())
    gone = {metric.full_name for metric in METRICS if metric.kind == "gauge"} | {"gatevalve_reconcile_errors_total"}
    assert {series[0] for series in told.series_of_the_channel()} & gone == set()
    told.metrics.observed(view(), plans.Plan())
    assert told.value("pods_diverged") == 0.0
