"""Every alert fires when it shall and not when it nearly does: the rendered rules, run by promtool over series as they are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from gatevalve.contracts.metrics import TAMPERING_REASONS
from support.prometheus import Promtool

pytestmark = pytest.mark.timeout(1800)  # the first run on a machine builds promtool

TARGET = 'namespace="team", pod="operator-1"'
HIGH, LOW, UNSURE, NO_ACCEPT = "RejectionRateHigh", "RejectionRateLow", "InconclusiveRateHigh", "NoAccept"
CAPTURE, BACK, DIVERGED, UNAPPROVED = "CaptureBroken", "RolledBack", "PodsDiverged", "PolicyUnapproved"
INVALID, UNVERIFIED, FOREIGN, TAMPERED, ROUND = "LogInvalid", "LogUnverified", "UnauthorizedAdapter", "Tampering", "UnauthorizedRequests"
SILENT, ERRORS, FROZEN, PROBED = "OperatorSilent", "ReconcileErrors", "Frozen", "SentinelFailed"


def of(metric: str, target: str = TARGET, **labels: str) -> str:
    """A series of channel support."""
    matchers = ", ".join([target, *(f'{name}="{value}"' for name, value in labels.items())])
    return f"gatevalve_{metric}{{{matchers}}}"


def channel(metric: str, **labels: str) -> str:
    return of(metric, channel="support", **labels)


def ends(verdict: str, reason: str) -> str:
    return channel("candidates_total", verdict=verdict, reason=reason)


ACCEPTED, REFUSED = ends("Accepted", "GatePassed"), ends("Rejected", "PrimaryNotPassed")
INCONCLUSIVE, ERRORED, BROKEN = ends("Inconclusive", "EvidenceUnsound"), ends("Errored", "StepFailed"), ends("Errored", "CaptureBroken")
ROLLBACK = channel("releases_total", action="Rollback")
FORGED, TRIED = channel("tampering_total", reason="DocumentForged"), channel("tampering_total", reason="UnauthorizedRequest")
LOG, VERIFIED, RECONCILED = channel("log_valid"), channel("log_verified_timestamp_seconds"), of("last_reconcile_timestamp_seconds")
PODS, ADAPTERS, POLICY = channel("pods_diverged"), channel("unauthorized_adapters"), channel("policy_unapproved")
FAILURES, HELD, PROBE = channel("reconcile_errors_total"), channel("frozen"), channel("sentinel_failed")


def another_pod(series: str) -> str:
    """The same series of the operator's next Pod."""
    return series.replace("operator-1", "operator-2")


COUNTERS = (
    *(ACCEPTED, REFUSED, INCONCLUSIVE, ERRORED, BROKEN),
    *(channel("tampering_total", reason=reason) for reason in TAMPERING_REASONS),
    *(channel("releases_total", action=action) for action in ("Promote", "Rollback")),
    FAILURES,
)


def quiet(steps: int, seconds: int) -> dict[str, str]:
    """An operator with one channel on which nothing ever happens."""
    now = f"0+{seconds}x{steps}"
    told = {LOG: f"1x{steps}", VERIFIED: now, RECONCILED: now}
    return dict.fromkeys([*COUNTERS, PODS, ADAPTERS, POLICY, HELD, PROBE], f"0x{steps}") | told


def followed_by_another() -> dict[str, str | None]:
    """An operator that has counted three of everything long ago ends; the next one starts four minutes later with nothing."""
    first = quiet(200, 60) | dict.fromkeys(COUNTERS, "3x200")
    second = {another_pod(name): f"_x204 {values}" for name, values in quiet(300, 60).items()}
    return {**first, **second, another_pod(VERIFIED): None, another_pod(RECONCILED): "_x204 12240+60x300"}


@dataclass(frozen=True)
class Case:
    """What differs from a quiet operator, and which alerts fire then. One step of a series is a minute, or half an hour over days.

    `nearly` is the alert that the case is about without its firing; None leaves a series out.
    """

    series: dict[str, str | None]
    at: str
    fires: tuple[str, ...] = ()
    nearly: str | None = None
    minutes: int = 1
    labels: dict[str, str] = field(default_factory=dict)

    def all_series(self) -> dict[str, str]:
        steps = 440 if self.minutes == 30 else 600
        return {name: values for name, values in (quiet(steps, 60 * self.minutes) | self.series).items() if values is not None}


def days(series: dict[str, str | None], at: str, *fires: str, nearly: str | None = None) -> Case:
    return Case(series, at, fires, nearly, minutes=30)


CASES: dict[str, Case] = {
    "nothing happens for nine days": days({}, "9d"),
    # ---- rates
    "twelve of thirteen are refused": days({REFUSED: "0x9 12x430", ACCEPTED: "0x9 1x430"}, "1d", HIGH),
    "refusals that are inconclusive count as such": days(
        {REFUSED: "0x9 9x430", INCONCLUSIVE: "0x9 4x430", ACCEPTED: "0x9 1x430"}, "1d", HIGH
    ),
    "nine of nine are refused": days({REFUSED: "0x9 9x430"}, "1d", nearly=HIGH),
    "twelve of sixteen are refused": days({REFUSED: "0x9 12x430", ACCEPTED: "0x9 4x430"}, "1d", nearly=HIGH),
    "twelve were refused four days ago": days({REFUSED: "0x9 12x430", ACCEPTED: "0x9 1x430"}, "5d", nearly=HIGH),
    "twelve are refused by an operator that was restarted in its Pod": days({REFUSED: "0x9 6x20 0x9 6x430"}, "1d", HIGH),
    "twelve are refused by two Pods one after the other": days({REFUSED: "0x9 6x20", another_pod(REFUSED): "_x40 0x3 6x390"}, "2d", HIGH),
    "six are refused, then the operator starts at zero": days({REFUSED: "0x9 6x20 0x430"}, "1d", nearly=HIGH),
    "another namespace refuses everything": days(
        {of("candidates_total", 'namespace="other"', channel="support", verdict="Rejected", reason="PrimaryNotPassed"): "0x9 99x430"},
        "1d",
        nearly=HIGH,
    ),
    "twenty-five of twenty-six are accepted": days({ACCEPTED: "0x9 25x430", REFUSED: "0x9 1x430"}, "1d", LOW),
    "ten of ten are accepted": days({ACCEPTED: "0x9 10x430"}, "1d", nearly=LOW),
    "twenty-five of twenty-eight are accepted": days({ACCEPTED: "0x9 25x430", REFUSED: "0x9 3x430"}, "1d", nearly=LOW),
    "three of nine are inconclusive": days({INCONCLUSIVE: "0x9 3x430", REFUSED: "0x9 2x430", ACCEPTED: "0x9 4x430"}, "1d", UNSURE),
    "two of four are inconclusive": days({INCONCLUSIVE: "0x9 2x430", ACCEPTED: "0x9 2x430"}, "1d", nearly=UNSURE),
    "two of nine are inconclusive": days({INCONCLUSIVE: "0x9 2x430", ACCEPTED: "0x9 7x430"}, "1d", nearly=UNSURE),
    # ---- no accept
    "three were refused in eight days and none was accepted": days({REFUSED: "0x230 3x200"}, "8d", NO_ACCEPT),
    "three ended with an error in eight days and none was accepted": days({ERRORED: "0x230 3x200"}, "8d", NO_ACCEPT),
    "one was accepted three days ago": days({REFUSED: "0x230 3x200", ACCEPTED: "0x240 1x200"}, "8d", nearly=NO_ACCEPT),
    "two candidates ended in eight days": days({REFUSED: "0x230 2x200"}, "8d", nearly=NO_ACCEPT),
    "the channel is five days old": days({REFUSED: "0x170 3x200"}, "5d", nearly=NO_ACCEPT),
    # ---- what happens once
    "captured traffic does not replay": Case({BROKEN: "0x9 1x590"}, "30m", (CAPTURE,)),
    "captured traffic did not replay seven hours ago": Case({BROKEN: "0x9 1x590"}, "7h20m", nearly=CAPTURE),
    "a step failed for another reason": Case({ERRORED: "0x9 4x590"}, "30m", nearly=CAPTURE),
    "a release is rolled back": Case({ROLLBACK: "0x9 1x590"}, "20m", (BACK,)),
    "a release was rolled back two hours ago": Case({ROLLBACK: "0x9 1x590"}, "2h20m", nearly=BACK),
    "a release is promoted": Case({channel("releases_total", action="Promote"): "0x9 1x590"}, "20m", nearly=BACK),
    "a rollback is the first that a new Pod tells of": Case({another_pod(ROLLBACK): "_x60 1x500"}, "70m", (BACK,)),
    "the operator starts anew after a rollback long ago": Case(
        {ROLLBACK: "0x9 2x200 0x350", another_pod(ROLLBACK): "_x250 0x200"}, "4h20m", nearly=BACK
    ),
    "a document is forged": Case({FORGED: "0x9 1x590"}, "20m", (TAMPERED,), labels={"reason": "DocumentForged"}),
    "a document is found forged by an operator that starts": Case(
        {another_pod(FORGED): "_x60 1x500"}, "70m", (TAMPERED,), labels={"reason": "DocumentForged"}
    ),
    "a document was forged two hours ago": Case({FORGED: "0x9 1x590"}, "2h20m", nearly=TAMPERED),
    "the operator starts anew after forgery long ago": Case({FORGED: "0x9 3x200 0x350"}, "3h45m", nearly=TAMPERED),
    "a client tries to go round the alias": Case({TRIED: "0x9 1x590"}, "20m", (ROUND,), nearly=TAMPERED),
    "a client tried to go round the alias two hours ago": Case({TRIED: "0x9 1x590"}, "2h20m", nearly=ROUND),
    # ---- what lasts
    "a pod stays behind for twenty minutes": Case({PODS: "0x9 1x590"}, "31m", (DIVERGED,)),
    "a rollout takes twelve minutes": Case({PODS: "0x9 1x12 0x580"}, "22m", nearly=DIVERGED),
    "a looser policy waits for twenty minutes": Case({POLICY: "0x9 1x590"}, "31m", (UNAPPROVED,)),
    "a looser policy is approved after ten minutes": Case({POLICY: "0x9 1x9 0x580"}, "31m", nearly=UNAPPROVED),
    "the channel is frozen": Case({HELD: "0x9 1x590"}, "15m", (FROZEN,)),
    "a freeze is lifted before the next look": Case({HELD: "0x9 1 0x590"}, "10m", nearly=FROZEN),
    "a sentinel fails": Case({PROBE: "0x9 1x590"}, "15m", (PROBED,)),
    "another sentinel of the kind passes before the next look": Case({PROBE: "0x9 1 0x590"}, "10m", nearly=PROBED),
    "the log is invalid": Case({LOG: "1x9 0x590"}, "15m", (INVALID,)),
    "the log is invalid for one look": Case({LOG: "1x9 0 1x590"}, "10m", nearly=INVALID),
    "an engine holds a foreign adapter": Case({ADAPTERS: "0x9 2x590"}, "15m", (FOREIGN,)),
    "a foreign adapter is gone at the next look": Case({ADAPTERS: "0x9 1 0x590"}, "10m", nearly=FOREIGN),
    "the log was verified four hours ago": Case({VERIFIED: "0x600"}, "4h", (UNVERIFIED,)),
    "the log was verified two hours ago": Case({VERIFIED: "0x600"}, "2h", nearly=UNVERIFIED),
    "the log was never verified in four hours": Case({VERIFIED: None}, "4h", (UNVERIFIED,)),
    "the log was never verified in two hours": Case({VERIFIED: None}, "2h", nearly=UNVERIFIED),
    "the operator starts anew an hour after it verified the log": Case({VERIFIED: "0+60x200"}, "4h20m", nearly=UNVERIFIED),
    "a channel whose log was not verified is deleted": Case({VERIFIED: "0x100", LOG: "1x100", FAILURES: "0x100"}, "4h", nearly=UNVERIFIED),
    # ---- the operator
    "the operator is gone": Case({RECONCILED: "0+60x60"}, "80m", (SILENT,)),
    "the operator is away for eight minutes": Case({RECONCILED: "0+60x60 _x7 4080+60x500"}, "68m", nearly=SILENT),
    "the operator was never there": Case(dict.fromkeys(quiet(1, 1)), "20m", (SILENT,)),
    "the operator finishes no reconcile for half an hour": Case({RECONCILED: "0+60x60 3600x500"}, "91m", (SILENT,)),
    "the operator has never finished a reconcile": Case({RECONCILED: "0x600"}, "40m", (SILENT,)),
    "an operator without channels has nothing to reconcile": Case({RECONCILED: "0x600", FAILURES: None, LOG: None}, "60m", nearly=SILENT),
    "every reconcile fails": Case({FAILURES: "0x9 1+1x590"}, "45m", (ERRORS,)),
    "four reconciles fail": Case({FAILURES: "0x9 4x590"}, "25m", nearly=ERRORS),
    "the next operator has just started": Case(followed_by_another(), "3h26m", nearly=BACK),
    "the next operator has run for a while": Case(followed_by_another(), "4h10m", nearly=TAMPERED),
}


def alert_names(groups: list[dict[str, Any]]) -> set[str]:
    return {rule["alert"] for group in groups for rule in group["rules"]}


def severity(groups: list[dict[str, Any]], name: str) -> str:
    return next(str(rule["labels"]["severity"]) for group in groups for rule in group["rules"] if rule["alert"] == name)


@pytest.mark.parametrize("sentence", CASES)
def test_the_alerts_that_fire_when(promtool: Promtool, groups: list[dict[str, Any]], sentence: str) -> None:
    case = CASES[sentence]
    names = [f"Gatevalve{name}" for name in case.fires]
    expected = tuple({"alertname": name, "severity": severity(groups, name)} | case.labels for name in names)
    query = 'group by (alertname, severity, reason) (ALERTS{alertstate="firing"})'
    assert promtool.compare(groups, case.all_series(), f"{case.minutes}m", case.at, query, expected) == ""


def test_every_alert_is_seen_firing_and_nearly_firing(groups: list[dict[str, Any]]) -> None:
    assert {f"Gatevalve{name}" for case in CASES.values() for name in case.fires} == alert_names(groups)
    assert {f"Gatevalve{case.nearly}" for case in CASES.values() if case.nearly} == alert_names(groups)


def test_promtool_finds_nothing_wrong_with_the_rules(promtool: Promtool, groups: list[dict[str, Any]]) -> None:
    assert promtool.check(groups) == ""


def test_promtool_finds_a_rule_that_does_not_parse(promtool: Promtool) -> None:
    assert "parse error" in promtool.check([{"name": "broken", "rules": [{"alert": "A", "expr": "sum by (channel"}]}])
