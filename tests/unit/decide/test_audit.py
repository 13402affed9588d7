"""The audit of a log: what no decision could have written is told although chain and signatures hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gatevalve.contracts.kinds import AdapterReleaseSpec, CandidateRef, Opening, Serves
from gatevalve.contracts.reasons import Action, EntryReason, Verdict
from gatevalve.decide.audit import given_verdicts, log_problems
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.view import EntryView
from support.audited import ACCEPTED, ACTIONS, DELETED, DIVERGED, NOT_BETTER, PINNED, PROMOTED, Life, lived
from support.world import digest

TEST = 1
OTHER = digest("another adapter")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return lived(tmp_path_factory.mktemp("life"))


def state(specs: list[AdapterReleaseSpec]) -> LogState:
    return LogState(tuple(EntryView(spec, status=None, exported=True) for spec in specs))  # type: ignore[arg-type]


def test_nothing_is_wrong_with_a_life_that_the_operator_has_written(life: Life) -> None:
    assert [str(spec.action) for spec in life.specs] == ACTIONS
    assert log_problems(state(life.specs)) == ()


def test_the_verdicts_to_judge_anew_are_those_that_the_gate_gave(life: Life) -> None:
    assert [given.entry.sequence for given in given_verdicts(state(life.specs))] == [ACCEPTED, NOT_BETTER]


def update(**changes: Any) -> Callable[[AdapterReleaseSpec], AdapterReleaseSpec]:
    return lambda spec: spec.model_copy(update=changes)


def _gate(**changes: Any) -> Callable[[AdapterReleaseSpec], AdapterReleaseSpec]:
    return lambda spec: spec.model_copy(update={"gate": spec.gate and spec.gate.model_copy(update=changes)})


def _lineage(spec: AdapterReleaseSpec) -> AdapterReleaseSpec:
    return spec.model_copy(update={"lineage": spec.lineage and spec.lineage.model_copy(update={"adapter_digest": OTHER})})


def _serves(**changes: Any) -> Callable[[AdapterReleaseSpec], AdapterReleaseSpec]:
    return lambda spec: spec.model_copy(update={"serves": spec.serves and spec.serves.model_copy(update=changes)})


def _foreign_evidence(spec: AdapterReleaseSpec) -> AdapterReleaseSpec:
    assert spec.gate is not None
    assert spec.gate.evidence is not None
    elsewhere = spec.gate.evidence.model_copy(update={"uri": "channel-1/evidence/support-000004"})
    return _gate(evidence=elsewhere)(spec)


STRANGER = CandidateRef(name="stranger", uid="uid-stranger")
RELEASE = Serves(adapter="support-x", digest=OTHER, uri="x", rank=8)

EDITS: dict[str, tuple[int, Callable[[AdapterReleaseSpec], AdapterReleaseSpec], str]] = {
    "Open serves an adapter that nobody promoted": (0, update(serves=RELEASE), "opens the log with another release than the base"),
    "Open names another policy than it holds": (
        0,
        lambda spec: spec.model_copy(update={"opening": spec.opening and spec.opening.model_copy(update={"policy_digest": OTHER})}),
        "names policy",
    ),
    "a Test names no adapter": (TEST, update(lineage=None), "does not say which adapter"),
    "a Test is refunded": (DELETED - 1, _gate(test=1), "counts as test 1 of round 3, but test 2 of round 3 was due"),
    "a Test goes on in a round that has ended": (4, _gate(round=1, test=2), "but test 1 of round 2 was due"),
    "a Test is opened under a policy that is not in force": (TEST, _gate(policy_digest=OTHER), "was opened under policy"),
    "a candidate is tested twice": (7, update(candidate=CandidateRef(name="good", uid="uid-good")), "was tested already in support-000001"),
    "an Accept has no evidence": (ACCEPTED, _gate(evidence=None), "accepts without evidence"),
    "an Accept says Rejected": (ACCEPTED, update(verdict=Verdict.REJECTED), "its verdict is Rejected"),
    "an Accept is of a candidate that was never tested": (ACCEPTED, update(candidate=STRANGER), "never tested"),
    "an Accept is of another adapter than was tested": (ACCEPTED, _lineage, "judges something else than support-000001"),
    "an Accept is of another round than was paid": (ACCEPTED, _gate(round=2), "judges something else than support-000001"),
    "an Accept rests on another test's evidence": (ACCEPTED, _foreign_evidence, "where no evidence of support-000001 belongs"),
    "a Reject says Accepted": (NOT_BETTER, update(verdict=Verdict.ACCEPTED), "its verdict is Accepted"),
    "a Reject of the gate has no evidence": (NOT_BETTER, _gate(evidence=None), "asks for evidence"),
    "a Reject without evidence is Rejected": (DELETED, update(verdict=Verdict.REJECTED), "rejects without evidence"),
    "a Reject has evidence and a reason that needs none": (NOT_BETTER, update(reason=EntryReason.STALE), "needs no evidence"),
    "a candidate is judged twice": (8, update(candidate=CandidateRef(name="no-better", uid="uid-no-better")), "was judged already"),
    "a Reject serves something": (DIVERGED, update(serves=RELEASE), "names what serves, which only"),
    "a Promote is of a candidate that was not accepted": (PROMOTED, update(candidate=STRANGER), "promotes what was never accepted"),
    "a Promote serves another adapter": (PROMOTED, _serves(digest=OTHER), "promotes something else than support-000002"),
    "a Promote serves the base": (PROMOTED, update(serves=Serves(base=True)), "promotes something else than support-000002"),
    "a Promote takes the adapter from elsewhere": (PROMOTED, _serves(uri="inbox/evil"), "takes it from elsewhere"),
    "a Promote states another effect": (PROMOTED, _gate(effect_basis_points=9000), "promotes something else than support-000002"),
    "a Rollback restores what never served": (PINNED, update(restores="support-000001"), "no serving entry before it"),
    "a Rollback serves something else than it restores": (PINNED, update(serves=RELEASE), "something else than support-000000"),
    "a Policy entry holds no policy": (DIVERGED, update(action=Action.POLICY), "holds no policy"),
}


@pytest.mark.parametrize("sentence", EDITS)
def test_it_is_told_that(sentence: str, life: Life) -> None:
    sequence, change, complaint = EDITS[sentence]
    specs = [change(spec) if spec.sequence == sequence else spec for spec in life.specs]
    mine = [problem for problem in log_problems(state(specs)) if problem.startswith(name_of(specs[sequence]))]
    assert any(complaint in problem for problem in mine), mine


def _again(spec: AdapterReleaseSpec, sequence: int, **changes: Any) -> AdapterReleaseSpec:
    return spec.model_copy(update={"sequence": sequence, **changes})


def test_an_accept_that_was_overtaken_and_an_adapter_that_was_taken_back_are_not_promoted(life: Life) -> None:
    specs = [*life.specs, _again(life.specs[PROMOTED], len(ACTIONS))]
    overtaken, quarantined = log_problems(state(specs))
    assert "something else was made to serve after support-000002" in overtaken
    assert "was rejected or taken back before" in quarantined


def test_an_adopted_log_goes_on_serving_what_served(life: Life) -> None:
    specs = life.specs
    opening = specs[0].opening.model_copy(update={"adopted_uid": life.uid}) if specs[0].opening else Opening.parse({})
    adopted = _again(specs[0], len(specs), opening=opening)
    assert log_problems(state([*specs, adopted])) == ()
    cut = specs[: PROMOTED + 1]
    (problem,) = log_problems(state([*cut, _again(adopted, len(cut))]))
    assert "another release than sha256:" in problem


def test_a_log_of_nothing_but_actions_is_told_and_breaks_nothing(life: Life) -> None:
    """Whoever holds the key may leave out what every entry of the operator has."""
    bare = dict.fromkeys(("candidate", "serves", "lineage", "gate", "opening", "policy", "verdict", "restores"))
    for action in Action:
        specs = [*life.specs, _again(life.specs[0], len(ACTIONS), action=action, **bare)]
        assert log_problems(state(specs)), action
        assert len(list(given_verdicts(state(specs)))) == 2
