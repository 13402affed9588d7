"""The incumbent's own noise: measured by the checks themselves, spread by resampling clusters, the same for the same evidence."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.files import ARMS, SCORE_ONE, Likelihood, PairRow, Style
from gatevalve.contracts.policy import Behaviour, GatePolicySpec
from gatevalve.gate.behaviour import RULES, behaviour
from gatevalve.gate.calibrate import CHURN_FIELD, FIELDS, RESAMPLES, Calibration, calibrate
from gatevalve.gate.churn import churn
from gatevalve.gate.inputs import Evidence
from support.gate_cases import NEAR, PLAIN, case_of, good_rows, guard_rows, manners_rows, policy_of, row_of, target_rows

SEED = sha256(b"report")


def spoken(item: int, rng: random.Random, cluster: str | None = None) -> PairRow:
    """A reply of each arm to a prompt: alike in kind, different in length, form and likelihood."""
    row = row_of("manners", item, (None,), (None,), tokens=(rng.randint(10, 30), rng.randint(10, 30), rng.randint(10, 30)))
    styles = {arm: (Style(**{**dict(PLAIN), "markup": rng.random() < 0.3, "repetition": rng.randrange(SCORE_ONE)}),) for arm in ARMS}
    near = (Likelihood(**{**dict(NEAR), "k3_incumbent": rng.randrange(2 * NEAR.k3_incumbent)}),)
    return row.model_copy(update={"styles": styles, "likelihoods": near, "cluster": cluster or row.cluster})


def manners(count: int, clusters: int | None = None) -> list[PairRow]:
    rng = random.Random(1)
    return [spoken(item, rng, f"c{item % clusters}" if clusters else None) for item in range(count)]


def evidence_of(rows: list[PairRow]) -> Evidence:
    return Evidence.of(None, rows)


def limits(rows: list[PairRow], policy: GatePolicySpec | None = None, seed: str = SEED) -> dict[tuple[str, str], Calibration]:
    found = calibrate(policy or policy_of(), evidence_of(rows), seed)
    return {(limit.field.removeprefix("behaviour."), limit.suite): limit for limit in found}


def test_every_limit_on_replies_and_churn_has_a_field_of_the_policy() -> None:
    assert set(FIELDS) == {rule.finding for rule in RULES}
    written = {field.alias for field in Behaviour.model_fields.values()}
    assert written - {*FIELDS.values(), CHURN_FIELD} == {"maxGainByLengthPercent"}


def test_every_rule_is_told_of_every_behaviour_suite_and_churn_of_every_scored_one() -> None:
    found = limits(good_rows())
    assert {field for field, suite in found if suite == "manners"} == set(FIELDS.values())
    assert {suite for field, suite in found if field == CHURN_FIELD} == {"target", "regression"}


def test_suites_without_rows_are_left_out() -> None:
    assert {suite for _, suite in limits(target_rows())} == {"target"}


def test_what_is_measured_is_what_the_checks_say() -> None:
    policy, rows = policy_of(), [*target_rows(), *guard_rows(3), *manners(40)]
    results = (*behaviour(policy, *case_of(policy, rows)), *churn(policy, *case_of(policy, rows)))
    checks = {(FIELDS.get(result.finding, CHURN_FIELD), result.suite): result.statistic for result in results if result.suite}
    by_rule = {(field, "manners"): None for field in FIELDS.values()}
    said = [
        float(result.statistic) for result in behaviour(policy, *case_of(policy, rows)) if result.suite == "manners" and result.statistic
    ]
    found = limits(rows, policy)
    assert [found[key].measured for key in by_rule] == said
    assert found[CHURN_FIELD, "regression"].measured == 10_000 * float(checks[CHURN_FIELD, "regression"] or 0)
    assert found[CHURN_FIELD, "regression"].measured == pytest.approx(10_000 * 3 / 200)


def test_percentiles_are_those_of_the_mean_over_drawn_items() -> None:
    limit = limits(guard_rows(20, 400))[CHURN_FIELD, "regression"]
    share, deviation = 0.05, (0.05 * 0.95 / 400) ** 0.5
    assert limit.low == pytest.approx(10_000 * (share - 2.33 * deviation), abs=40)
    assert limit.high == pytest.approx(10_000 * (share + 2.33 * deviation), abs=40)


def test_items_of_one_cluster_are_drawn_together() -> None:
    apart, together = (limits(manners(120, clusters))["maxKlMillinatsPerToken", "manners"] for clusters in (None, 4))
    assert width(together) != width(apart)
    rows = guard_rows(20, 400)
    lumped = [row.model_copy(update={"cluster": f"c{number // 20}"}) for number, row in enumerate(rows)]
    assert width(limits(lumped)[CHURN_FIELD, "regression"]) > 2 * width(limits(rows)[CHURN_FIELD, "regression"])


def width(limit: Calibration) -> float:
    return (limit.high or 0) - (limit.low or 0)


def test_the_same_evidence_gives_the_same_numbers_in_whatever_order_it_arrives() -> None:
    rows = [*guard_rows(7, 60), *manners(30)]
    assert limits(rows) == limits(rows[::-1]) == limits(rows)
    assert limits(rows, seed=sha256(b"other")) != limits(rows)


TIGHT: dict[str, tuple[dict[str, Any], str, bool]] = {
    "a length far from both ends": ({"lengthRatioPercent": {"min": 50, "max": 200}}, "lengthRatioPercent", False),
    "a length above the lower percentile": ({"lengthRatioPercent": {"min": 99, "max": 200}}, "lengthRatioPercent", True),
    "a length below the upper percentile": ({"lengthRatioPercent": {"min": 50, "max": 101}}, "lengthRatioPercent", True),
    "no diversity asked for": ({"minDiversityPercent": 0}, "minDiversityPercent", False),
    "a KL divergence that the incumbent exceeds": ({"maxKlMillinatsPerToken": 1}, "maxKlMillinatsPerToken", True),
    "no limit on it": ({"maxKlMillinatsPerToken": 1_000_000}, "maxKlMillinatsPerToken", False),
    "form that may shift": ({"maxFormatShiftBasisPoints": 10_000}, "maxFormatShiftBasisPoints", False),
    "form that may not": ({"maxFormatShiftBasisPoints": 1}, "maxFormatShiftBasisPoints", True),
}


@pytest.mark.parametrize("sentence", TIGHT)
def test_a_limit_is_tighter_than_the_noise_when_a_percentile_lies_beyond_it(sentence: str) -> None:
    changes, field, tight = TIGHT[sentence]
    wire = policy_of().wire()
    policy = GatePolicySpec.parse({**wire, "behaviour": {**wire["behaviour"], **changes}})
    assert limits(manners(60), policy)[field, "manners"].tight is tight


def test_what_cannot_be_measured_has_no_percentiles() -> None:
    silent = [row.model_copy(update={"tokens": dict.fromkeys(ARMS, (None,))}) for row in manners_rows()]
    limit = limits(silent)["lengthRatioPercent", "manners"]
    assert (limit.measured, limit.low, limit.high, limit.tight) == (None, None, None, False)


def test_one_in_a_hundred_resamples_lies_beyond_each_percentile() -> None:
    assert RESAMPLES == 1000
    limit = limits(guard_rows(1, 2))[CHURN_FIELD, "regression"]
    assert (limit.low, limit.high) == (0.0, 10_000.0)
