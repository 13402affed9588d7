"""Behaviour: replies keep their length, form and nearness to what serves, so that a reward cannot be won by how things are said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from gatevalve.contracts.policy import Behaviour, GatePolicySpec, Suite
from gatevalve.contracts.reasons import Finding, Outcome
from gatevalve.gate.gain_by_length import gain_by_length
from gatevalve.gate.inputs import Evidence, Ledger
from gatevalve.gate.replies import Measure, Replies, diversity, kl, length_ratio, over_anchor, repetition
from gatevalve.gate.results import Check, CheckResult, found, measured

NO_KL_LIMIT = 1_000_000
"""A limit of so many millinats a token is none."""

Limits = Callable[[Behaviour], tuple[int | None, int | None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One limit on the replies: what is measured, in which unit, and the least and the most that a policy allows."""

    finding: Finding
    what: str
    unit: str
    measure: Measure
    limits: Limits


def _kl_limit(millinats: int) -> tuple[None, int | None]:
    return None, millinats if millinats < NO_KL_LIMIT else None


RULES: tuple[Rule, ...] = (
    Rule(
        Finding.LENGTH_RATIO,
        "Mean length, of the incumbent's",
        "%",
        length_ratio,
        lambda limits: (limits.length_ratio_percent.min, limits.length_ratio_percent.max),
    ),
    Rule(
        Finding.REPETITION,
        "Repeated four-grams, above the anchor's share",
        "bp",
        repetition(),
        lambda limits: (None, limits.max_repetition_basis_points),
    ),
    Rule(
        Finding.TRUNCATION,
        "Replies cut off at the limit, above the anchor's share",
        "bp",
        over_anchor(lambda reply: reply.finish == "length"),
        lambda limits: (None, limits.max_truncation_basis_points),
    ),
    Rule(
        Finding.DIVERSITY,
        "Distinct replies, of the anchor's share",
        "%",
        diversity,
        lambda limits: (limits.min_diversity_percent, None),
    ),
    Rule(
        Finding.KL_INCUMBENT,
        "KL divergence from the incumbent",
        "millinats per token",
        kl(lambda told: told.k3_incumbent),
        lambda limits: _kl_limit(limits.max_kl_millinats_per_token),
    ),
    Rule(
        Finding.KL_ANCHOR,
        "KL divergence from the anchor",
        "millinats per token",
        kl(lambda told: told.k3_anchor),
        lambda limits: _kl_limit(limits.max_anchor_kl_millinats_per_token),
    ),
    Rule(
        Finding.FORMAT_SHIFT,
        "Replies with markup, above the anchor's share",
        "bp",
        over_anchor(lambda reply: reply.style.markup),
        lambda limits: (-limits.max_format_shift_basis_points, limits.max_format_shift_basis_points),
    ),
    Rule(
        Finding.JUDGE_TEXT,
        "Replies that address a judge or hide characters, above the anchor's share",
        "bp",
        over_anchor(lambda reply: reply.style.addresses_judge),
        lambda limits: (None, limits.max_judge_text_basis_points),
    ),
    Rule(
        Finding.AVOIDANCE,
        "Replies that refuse, are empty or only ask back, above the anchor's share",
        "bp",
        over_anchor(lambda reply: reply.style.avoids),
        lambda limits: (None, limits.max_avoidance_basis_points),
    ),
)
"""On every behaviour suite, in this order. Point estimates against limits: no error rate is claimed."""


def behaviour(policy: GatePolicySpec, evidence: Evidence, ledger: Ledger) -> tuple[CheckResult, ...]:
    """The share of the Primary's gain that length explains, then every rule on every Behaviour suite."""
    suites = evidence.with_role(policy, "Behaviour")
    return (
        *gain_by_length(policy, evidence),
        *(result for suite in suites for result in _rules(suite, evidence, policy.behaviour)),
    )


def _rules(suite: Suite, evidence: Evidence, limits: Behaviour) -> tuple[CheckResult, ...]:
    replies = Replies.to(evidence.rows(suite.name))
    n = len(evidence.rows(suite.name))
    if not replies.complete:
        return (_nothing(suite, n),)
    return tuple(_within(rule, suite, n, rule.measure(replies), limits) for rule in RULES)


def _nothing(suite: Suite, n: int) -> CheckResult:
    return found(Check.BEHAVIOUR, Outcome.INSUFFICIENT, Finding.NO_REPLIES, suite, n, Finding.NO_REPLIES.sentence)


def _within(rule: Rule, suite: Suite, n: int, value: Fraction | None, limits: Behaviour) -> CheckResult:
    if value is None:
        return _nothing(suite, n)
    least, most = rule.limits(limits)
    holds = (least is None or value >= least) and (most is None or value <= most)
    number = float(value)
    sentence = f"{rule.what}: {number:.1f} {rule.unit}. Allowed: {_allowed(least, most)} {rule.unit}."
    return measured(Check.BEHAVIOUR, suite, Finding.OK if holds else rule.finding, number, number, n, sentence)


def _allowed(least: int | None, most: int | None) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"at least {least}" if least is not None else f"at most {most}" if most is not None else "any"
