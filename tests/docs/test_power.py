"""The page of the gate shows what `kubectl gatevalve gate power` prints, and how much traffic its example needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from demo.objects import manifest
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.gate.noise import WORST_RATE, planned_noise
from gatevalve.gate.power import SuitePower, planned_items, power, powered
from gatevalve_trainer.split import SEALED_PERMILLE

pytestmark = pytest.mark.docs

PAGE = (Path(__file__).parents[2] / "docs" / "gate.md").read_text()
DEMO = GatePolicySpec.parse(manifest("policy")["spec"])
TRAFFIC = GatePolicySpec.parse(
    next(
        shown["spec"]
        for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        if (shown := yaml.safe_load(text)).get("kind") == "GatePolicy"
    )
)


def planned(policy: GatePolicySpec, suite: str, rate: float = WORST_RATE) -> SuitePower:
    found = power(policy, {each.name: planned_noise(each, rate) for each in powered(policy)}, planned_items(policy))
    return next(each for each in found if each.suite == suite)


@pytest.mark.parametrize(
    ("rate", "sentence"),
    [(0.4, "with `--rate 0.4` says that .* sees a true gain of {:.1f} points"), (0.93, "with `--rate 0.93`, {:.1f} points")],
)
def test_the_page_names_the_gain_that_the_demos_policy_sees(rate: float, sentence: str) -> None:
    effect = planned(DEMO, DEMO.primary.name, rate).effect
    assert effect is not None
    assert re.search(sentence.format(effect * 100), PAGE)


def test_the_page_names_the_share_of_equals_that_the_judged_guard_passes() -> None:
    equal = planned(TRAFFIC, "helpfulness").equal
    assert equal is not None
    assert f"`helpfulness` passes {int(equal * 100)} of 100 candidates that lose nothing" in PAGE


def test_the_page_adds_up_the_traffic_of_a_round() -> None:
    asked = [suite.items.traffic.min for suite in TRAFFIC.suites if suite.items.traffic is not None]
    needed = (sum(asked) + TRAFFIC.futility.items) * 1000 // SEALED_PERMILLE
    assert f"({' + '.join(map(str, asked))} + {TRAFFIC.futility.items}) / {SEALED_PERMILLE / 1000} = {needed:,}" in PAGE
