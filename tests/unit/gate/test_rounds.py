"""The round in force, read from the log: it ends at an accept, when its tests are spent, and when policy or incumbent change.

A fixed Primary file has one budget for life besides.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.kinds import AdapterReleaseSpec, Base, ChannelRef, GateFacts, Opening, Serves
from gatevalve.contracts.policy import GatePolicySpec, Items
from gatevalve.contracts.reasons import Action, EntryReason, Verdict
from gatevalve.gate.enforced import digest_of_policy
from gatevalve.gate.rounds import Round, next_test, round_in_force, rounds
from support.gate_cases import policy_of

POLICY = policy_of(round={"alphaBasisPoints": 500, "maxTests": 3})
OTHER = policy_of(round={"alphaBasisPoints": 100, "maxTests": 3})
DIGESTS = {policy.round.alpha_basis_points: policy.digest_of() for policy in (POLICY, OTHER)}
A, B = sha256(b"adapter a"), sha256(b"adapter b")


def entry(action: Action, reason: EntryReason, **fields: Any) -> AdapterReleaseSpec:
    return AdapterReleaseSpec(
        channel=ChannelRef(name="support", uid="uid"),
        sequence=0,
        action=action,
        reason=reason,
        actor="gatevalve",
        decided_at="2026-11-29T00:00:00Z",
        operator_version="0.1.0",
        key_id=sha256(b"key"),
        **fields,
    )


def facts(number: int, incumbent: str | None, policy: GatePolicySpec) -> GateFacts:
    return GateFacts(policy_digest=DIGESTS[policy.round.alpha_basis_points], round=number, test=1, incumbent_digest=incumbent)


def opened(policy: GatePolicySpec = POLICY) -> AdapterReleaseSpec:
    base = Base(name="tiny-words", uri="file:///models/tiny-words", digest=sha256(b"base"))
    opening = Opening(base=base, policy_digest=policy.digest_of())
    return entry(Action.OPEN, EntryReason.CHANNEL_OPENED, serves=Serves(base=True), opening=opening, policy=policy)


def look(number: int, incumbent: str | None = None, policy: GatePolicySpec = POLICY) -> AdapterReleaseSpec:
    return entry(Action.TEST, EntryReason.TEST_OPENED, gate=facts(number, incumbent, policy))


def reject(number: int, incumbent: str | None = None) -> AdapterReleaseSpec:
    gate = facts(number, incumbent, POLICY)
    return entry(Action.REJECT, EntryReason.PRIMARY_NOT_PASSED, gate=gate, verdict=Verdict.REJECTED)


def diverged() -> AdapterReleaseSpec:
    return entry(Action.REJECT, EntryReason.TRAINING_DIVERGED, verdict=Verdict.REJECTED)


def accept(number: int, incumbent: str | None = None) -> AdapterReleaseSpec:
    gate = facts(number, incumbent, POLICY)
    return entry(Action.ACCEPT, EntryReason.GATE_PASSED, gate=gate, verdict=Verdict.ACCEPTED)


def serving(action: Action, digest: str | None) -> AdapterReleaseSpec:
    serves = Serves(adapter="support-1", digest=digest, uri="uid/adapters/1", rank=8) if digest else Serves(base=True)
    return entry(action, EntryReason.GATE_PASSED, serves=serves)


def promote(digest: str) -> AdapterReleaseSpec:
    return serving(Action.PROMOTE, digest)


def rollback(digest: str | None) -> AdapterReleaseSpec:
    return serving(Action.ROLLBACK, digest)


def policy_entry(policy: GatePolicySpec, reason: EntryReason = EntryReason.POLICY_CHANGED) -> AdapterReleaseSpec:
    return entry(Action.POLICY, reason, policy=policy)


UNAPPROVED = policy_entry(OTHER, EntryReason.POLICY_UNAPPROVED)


Log = list[AdapterReleaseSpec]
ROUNDS: dict[str, tuple[Log, GatePolicySpec, str | None, tuple[int, int]]] = {
    "an empty log": ([], POLICY, None, (1, 0)),
    "an opened log": ([opened()], POLICY, None, (1, 0)),
    "one test without a verdict is spent": ([opened(), look(1)], POLICY, None, (1, 1)),
    "a rejected test is spent": ([opened(), look(1), reject(1), look(1), reject(1)], POLICY, None, (1, 2)),
    "a divergence costs no test": ([opened(), look(1), reject(1), diverged()], POLICY, None, (1, 1)),
    "all tests spent": ([opened(), look(1), look(1), look(1)], POLICY, None, (2, 0)),
    "an accept ends the round, also before it is promoted": ([opened(), look(1), accept(1)], POLICY, None, (2, 0)),
    "after a promotion": ([opened(), look(1), accept(1), promote(A)], POLICY, A, (2, 0)),
    "tests of the second round": ([opened(), look(1), accept(1), promote(A), look(2, A), reject(2, A)], POLICY, A, (2, 1)),
    "another policy": ([opened(), look(1), policy_entry(OTHER)], OTHER, None, (2, 0)),
    "another policy that no entry tells of yet": ([opened(), look(1)], OTHER, None, (2, 0)),
    "another policy and back": ([opened(), look(1), policy_entry(OTHER), policy_entry(POLICY)], POLICY, None, (3, 0)),
    "another policy, after a round whose items may have been drawn ahead of its first test": (
        [opened(), look(1), accept(1), policy_entry(OTHER)],
        OTHER,
        None,
        (3, 0),
    ),
    "another policy before the first test": ([opened(), policy_entry(OTHER)], OTHER, None, (2, 0)),
    "another policy after the last test of a round": ([opened(), look(1), look(1), look(1), policy_entry(OTHER)], OTHER, None, (3, 0)),
    "another policy that nobody approved": ([opened(), look(1), UNAPPROVED], POLICY, None, (1, 1)),
    "another policy that nobody approved, and back, again and again": (
        [opened(), look(1), UNAPPROVED, policy_entry(POLICY), UNAPPROVED, look(1)],
        POLICY,
        None,
        (1, 2),
    ),
    "another policy that a person approved": ([opened(), look(1), policy_entry(OTHER, EntryReason.POLICY_APPROVED)], OTHER, None, (2, 0)),
    "the same policy told again": ([opened(), look(1), policy_entry(POLICY)], POLICY, None, (1, 1)),
    "another incumbent": ([opened(), look(1), accept(1), promote(A), look(2, A), rollback(None)], POLICY, None, (3, 0)),
    "another incumbent and back": (
        [opened(), look(1), accept(1), promote(A), look(2, A), rollback(None), rollback(A)],
        POLICY,
        A,
        (3, 0),
    ),
    "the incumbent rolled back to itself": ([opened(), look(1), accept(1), promote(A), look(2, A), rollback(A)], POLICY, A, (2, 1)),
    "another incumbent that no entry tells of yet": ([opened(), look(1, A)], POLICY, B, (2, 0)),
    "a channel opened anew": ([opened(), look(1), opened()], POLICY, None, (2, 0)),
    "numbers left out are never used again": ([opened(), look(7), accept(7)], POLICY, None, (8, 0)),
    "a lower number does not reopen a round": ([opened(), look(2), look(1)], POLICY, None, (2, 1)),
    "a late accept of an earlier round does not end this one": ([opened(), look(1), look(2), accept(1)], POLICY, None, (2, 1)),
}


def last_round(log: list[AdapterReleaseSpec]) -> Round:
    return list(rounds(log))[-1]


@pytest.mark.parametrize("case", ROUNDS)
def test_round_in_force(case: str) -> None:
    log, policy, incumbent, expected = ROUNDS[case]
    assert round_in_force(last_round(log), policy, policy.digest_of(), incumbent) == (*expected, policy.round.max_tests)
    assert next_test(last_round(log), policy, policy.digest_of(), incumbent) == (expected[0], expected[1] + 1)


ALL_STEPS = ["test", "accept", "promote a", "promote b", "to the base", "policy", "other policy", "reopen"]


@given(st.lists(st.sampled_from(ALL_STEPS), max_size=30))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_rounds_grow_and_none_pays_for_more_tests_than_it_may(steps: list[str]) -> None:
    log, policy, incumbent = [opened()], POLICY, None
    paid: list[tuple[int, int]] = []
    for step in steps:
        due = next_test(last_round(log), policy, DIGESTS[policy.round.alpha_basis_points], incumbent)
        assert due is not None
        number, count = due
        if step == "test":
            paid.append((number, count))
            log.append(look(number, incumbent, policy))
        elif step == "accept" and paid:
            log.append(accept(paid[-1][0], incumbent))
        elif step.startswith("promote"):
            incumbent = A if step == "promote a" else B
            log.append(promote(incumbent))
        elif step == "to the base":
            incumbent = None
            log.append(rollback(None))
        elif step.endswith("policy"):
            policy = OTHER if step == "other policy" else POLICY
            log.append(policy_entry(policy))
        elif step == "reopen":
            log.append(opened(policy))
    assert paid == sorted(set(paid))
    assert all(1 <= count <= 3 for _, count in paid)


@given(st.lists(st.sampled_from(ALL_STEPS), max_size=30))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_no_number_is_due_under_two_policies_for_its_items_may_be_drawn_ahead_of_its_first_test(steps: list[str]) -> None:
    log, policy, incumbent = [opened()], POLICY, None
    drawn: dict[int, str] = {}
    for step in [*steps, "end"]:
        due, digest = next_test(last_round(log), policy, digest_of_policy(policy), incumbent), digest_of_policy(policy)
        assert due is not None
        assert drawn.setdefault(due.round, digest) == digest
        if step == "test":
            log.append(look(due.round, incumbent, policy))
        elif step == "accept":
            log.append(accept(due.round, incumbent))
        elif step.startswith("promote"):
            incumbent = A if step == "promote a" else B
            log.append(promote(incumbent))
        elif step == "to the base":
            incumbent = None
            log.append(rollback(None))
        elif step.endswith("policy"):
            policy = OTHER if step == "other policy" else POLICY
            log.append(policy_entry(policy))
        elif step == "reopen":
            log.append(opened(policy))


# ---- a fixed Primary file


def fixed(file: str = "exam", max_tests: int = 3, **changes: Any) -> GatePolicySpec:
    """A policy whose Primary is a fixed file."""
    policy = policy_of(round={"alphaBasisPoints": 500, "maxTests": max_tests}, **changes)
    primary = policy.primary.model_copy(update={"items": Items(uri=f"suites/{file}.jsonl", digest=sha256(file.encode()))})
    return policy.model_copy(update={"suites": (primary, *policy.suites[1:])})


EXAM, OTHER_EXAM = fixed(), fixed("other exam")
STRICTER, FEWER, COPY = fixed(guardAlphaBasisPoints=50), fixed(max_tests=2), fixed("exam", guardAlphaBasisPoints=10)


def exam_look(number: int, policy: GatePolicySpec = EXAM, incumbent: str | None = None) -> AdapterReleaseSpec:
    gate = GateFacts(policy_digest=policy.digest_of(), round=number, test=1, incumbent_digest=incumbent)
    return entry(Action.TEST, EntryReason.TEST_OPENED, gate=gate)


def exam_accept(number: int, policy: GatePolicySpec = EXAM) -> AdapterReleaseSpec:
    gate = GateFacts(policy_digest=policy.digest_of(), round=number, test=1)
    return entry(Action.ACCEPT, EntryReason.GATE_PASSED, gate=gate, verdict=Verdict.ACCEPTED)


LIVES: dict[str, tuple[Log, GatePolicySpec, str | None, tuple[int, int] | None]] = {
    "nothing spent": ([opened(EXAM)], EXAM, None, (1, 1)),
    "two tests spent": ([opened(EXAM), exam_look(1), exam_look(1)], EXAM, None, (1, 3)),
    "maxTests spent": ([opened(EXAM), exam_look(1), exam_look(1), exam_look(1)], EXAM, None, None),
    "an accept": ([opened(EXAM), exam_look(1), exam_accept(1)], EXAM, None, None),
    "an accept and another incumbent": ([opened(EXAM), exam_look(1), exam_accept(1), promote(A)], EXAM, A, None),
    "another incumbent gives no test back": (
        [opened(EXAM), exam_look(1), exam_look(1), promote(A), exam_look(2, EXAM, A), promote(B)],
        EXAM,
        B,
        None,
    ),
    "another incumbent in between goes on counting": ([opened(EXAM), exam_look(1), promote(A)], EXAM, A, (2, 2)),
    "a channel opened anew gives no test back": ([opened(EXAM), exam_look(1), exam_look(1), exam_look(1), opened(EXAM)], EXAM, None, None),
    "a channel opened anew goes on counting": ([opened(EXAM), exam_look(1), opened(EXAM)], EXAM, None, (2, 2)),
    "another policy with the same file gives no test back": (
        [opened(EXAM), exam_look(1), exam_look(1), policy_entry(STRICTER), exam_look(2, STRICTER), policy_entry(COPY)],
        COPY,
        None,
        None,
    ),
    "another policy with the same file after an accept": (
        [opened(EXAM), exam_look(1), exam_accept(1), policy_entry(STRICTER)],
        STRICTER,
        None,
        None,
    ),
    "another policy with the same file and fewer tests": (
        [opened(EXAM), exam_look(1), exam_look(1), policy_entry(FEWER)],
        FEWER,
        None,
        None,
    ),
    "a policy with fewer tests has been in force, and is no more": (
        [opened(EXAM), exam_look(1), policy_entry(FEWER), policy_entry(EXAM), exam_look(3)],
        EXAM,
        None,
        None,
    ),
    "another file": ([opened(EXAM), exam_look(1), exam_look(1), exam_look(1), policy_entry(OTHER_EXAM)], OTHER_EXAM, None, (3, 1)),
    "another file and back": (
        [opened(EXAM), exam_look(1), exam_look(1), exam_look(1), policy_entry(OTHER_EXAM), exam_look(3, OTHER_EXAM), policy_entry(EXAM)],
        EXAM,
        None,
        None,
    ),
    "fresh items after a file that is used up": ([opened(EXAM), exam_look(1), exam_accept(1), policy_entry(POLICY)], POLICY, None, (3, 1)),
    "a file that no entry puts in force": ([opened(POLICY)], EXAM, None, None),
    "a file that nobody approved": ([opened(POLICY), policy_entry(EXAM, EntryReason.POLICY_UNAPPROVED)], EXAM, None, None),
}


@pytest.mark.parametrize("sentence", LIVES)
def test_a_fixed_primary_file_has_one_budget_for_life(sentence: str) -> None:
    log, policy, incumbent, expected = LIVES[sentence]
    assert next_test(last_round(log), policy, policy.digest_of(), incumbent) == expected


def test_of_a_file_that_is_used_up_no_test_is_left() -> None:
    for log in ([opened(EXAM), exam_look(1), exam_accept(1)], [opened(EXAM), exam_look(1), exam_look(1), exam_look(1)]):
        _, tests, in_all = round_in_force(last_round(log), EXAM, EXAM.digest_of(), None)
        assert in_all - tests == 0


STEPS_OF_A_FILE = ["test", "test", "accept", "promote", "policy", "stricter policy", "other file", "fresh items", "reopen"]
POLICIES = {"policy": EXAM, "stricter policy": STRICTER, "other file": OTHER_EXAM, "fresh items": POLICY}


@given(st.lists(st.sampled_from(STEPS_OF_A_FILE), max_size=40))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_a_file_is_tested_on_at_most_max_tests_times_and_never_after_its_first_accept(steps: list[str]) -> None:
    log, policy, incumbent = [opened(EXAM)], EXAM, None
    files: list[str | None] = []
    done: set[str | None] = set()
    for step in steps:
        due = next_test(last_round(log), policy, policy.digest_of(), incumbent)
        file = policy.primary.items.digest
        if step == "test" and due is not None:
            assert file not in done
            files.append(file)
            log.append(exam_look(due.round, policy, incumbent))
        elif step == "accept" and files and file is not None and files[-1] == file:
            done.add(file)
            log.append(exam_accept(last_round(log).number, policy))
        elif step == "promote":
            incumbent = B if incumbent == A else A
            log.append(promote(incumbent))
        elif step in POLICIES:
            policy = POLICIES[step]
            log.append(policy_entry(policy))
        elif step == "reopen":
            log.append(opened(policy))
    assert all(files.count(file) <= 3 for file in set(files) - {None})
