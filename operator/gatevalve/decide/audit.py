"""Audit: a log says only what a decision could have written, and every verdict in it is what the gate says of its evidence anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gatevalve.contracts.jobs import EvidenceResult
from gatevalve.contracts.kinds import AdapterReleaseSpec, EvidenceStatus, GateFacts
from gatevalve.contracts.names import adapter_dir, adapter_name, evidence_dir
from gatevalve.contracts.reasons import FREEZE_REASONS, SERVING_ACTIONS, Action, EntryReason, Finding, Verdict
from gatevalve.decide.conditions import MESSAGE_LIMIT
from gatevalve.decide.judgement import Judged, judge_test
from gatevalve.decide.log import LogState, name_of, served_digest
from gatevalve.decide.sentinel_audit import sentinel_differs, sentinel_problems
from gatevalve.decide.sentinel_verdict import judge_sentinel
from gatevalve.decide.view import EvidenceView
from gatevalve.gate.disclosure import PUBLIC_REASON
from gatevalve.gate.enforced import digest_of_policy

GATE_REASONS = frozenset(PUBLIC_REASON.values()) | {EntryReason.PRIMARY_NOT_PASSED}
"""Reasons of a Reject that only evidence can give."""

Problems = Iterator[str]


@dataclass(frozen=True, slots=True)
class GivenVerdict:
    """A verdict of the gate: its entry, its test, where the evidence lies, and the log as it was before."""

    entry: AdapterReleaseSpec
    test: AdapterReleaseSpec
    evidence: EvidenceStatus
    before: LogState


def log_problems(log: LogState) -> tuple[str, ...]:
    """What no decision could have written into a log that is chained and signed, one sentence for each, in the log's order."""
    return tuple(f"{name_of(entry)}: {text}" for before, entry in _each(log) for text in _entry_problems(before, entry))


def given_verdicts(log: LogState) -> Iterator[GivenVerdict]:
    """Every verdict that the gate gave, in the log's order.

    Where the operator could not read the evidence as it was named, the gate was not asked, and what lies there now may be anything.
    """
    for before, entry in _each(log):
        test = _test_of(before, entry) if entry.action in (Action.ACCEPT, Action.REJECT) else None
        evidence = entry.gate.evidence if entry.gate else None
        if test is not None and evidence is not None and test.gate and test.lineage and not _was_unreadable(entry):
            yield GivenVerdict(entry, test, evidence, before)


def given_sentinels(log: LogState) -> Iterator[GivenVerdict]:
    """Every end of a sentinel that rests on evidence, in the log's order; its test is the entry that began it."""
    for before, entry in _each(log):
        opened, evidence = before.open_sentinel, entry.gate.evidence if entry.gate else None
        if entry.action is Action.SENTINEL and opened is not None and opened.sentinel is not None and opened.gate and evidence is not None:
            yield GivenVerdict(entry, opened, evidence, before)


def verdict_problem(given: GivenVerdict, evidence: EvidenceView, operator_version: str) -> str | None:
    """Why a verdict is not what the gate says of its evidence on the log as it was; None when it is.

    Messages are compared within one version of the operator: another one may word them otherwise.
    """
    if evidence.problem is not None:
        return f"{name_of(given.entry)} rests on evidence that is not what it was: {evidence.problem}"
    if evidence.report is None:
        return f"{name_of(given.entry)} rests on evidence that is gone: {given.evidence.uri} holds none"
    result = EvidenceResult(evidence_digest=given.evidence.digest, pairs_digest=evidence.report.pairs.sha256)
    base_digest = given.before.base_digest
    if given.entry.action is Action.SENTINEL:
        return sentinel_differs(given.entry, judge_sentinel(given.before, given.test, base_digest, evidence, result))
    judged = judge_test(given.before, given.test, base_digest, evidence, result)
    return _differs(given.entry, judged, same_version=given.entry.operator_version == operator_version)


def loss_is_told(given: GivenVerdict, log: LogState) -> bool:
    """A person has adopted the log since: evidence from before may be lost, and the Open entry says who went on without it."""
    return log.opening is not None and log.opening.sequence > given.entry.sequence


def _each(log: LogState) -> Iterator[tuple[LogState, AdapterReleaseSpec]]:
    for index, view in enumerate(log.entries):
        yield log.before(index), view.spec


def _test_of(before: LogState, entry: AdapterReleaseSpec) -> AdapterReleaseSpec | None:
    return before.of_candidate(entry.candidate.uid, Action.TEST) if entry.candidate else None


# ---- verdicts


def _was_unreadable(entry: AdapterReleaseSpec) -> bool:
    """What the operator then says is no sentence of the gate; and only an Inconclusive may rest on nothing."""
    told_by_gate = any(entry.message.endswith(finding.sentence) for finding in Finding)
    return entry.verdict is Verdict.INCONCLUSIVE and entry.reason is EntryReason.EVIDENCE_UNSOUND and not told_by_gate


def _differs(entry: AdapterReleaseSpec, judged: Judged, same_version: bool) -> str | None:
    effect = entry.gate.effect_basis_points if entry.gate else None
    said, found = (entry.verdict, entry.reason), (judged.verdict, judged.reason)
    if said != found:
        return f"{name_of(entry)} says {entry.verdict} ({entry.reason}), but its evidence gives {judged.verdict} ({judged.reason})"
    if effect != judged.effect_basis_points:
        return f"{name_of(entry)} states an effect of {effect} basis points, but its evidence gives {judged.effect_basis_points}"
    if same_version and entry.action is Action.REJECT and entry.message != judged.message[:MESSAGE_LIMIT]:
        return f"{name_of(entry)} gives another reason than its evidence: {judged.message}"
    return None


# ---- what an entry may say after the entries before it


def _entry_problems(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    if entry.serves is not None and entry.action not in SERVING_ACTIONS:
        yield f"{entry.action} names what serves, which only {', '.join(sorted(SERVING_ACTIONS))} may"
    yield from _RULES[entry.action](before, entry)


def _open(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    digest = served_digest(before.live) if before.live else None
    if entry.serves is None or entry.serves.digest != digest:
        yield f"it opens the log with another release than {digest or 'the base'}, which served before"
    if entry.opening and entry.policy and entry.opening.policy_digest != digest_of_policy(entry.policy):
        yield f"it names policy {entry.opening.policy_digest}, but holds {digest_of_policy(entry.policy)}"


def _policy(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    if entry.policy is None:
        yield "it holds no policy"


def _test(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    gate = entry.gate
    if entry.candidate is None or gate is None or entry.lineage is None or entry.lineage.adapter_digest is None:
        yield "it does not say which adapter of which candidate is tested"
        return
    if before.frozen_by is not None:
        yield f"{name_of(before.frozen_by)} froze the channel, and nobody had lifted it"
    if before.open_sentinel is not None:
        yield f"{name_of(before.open_sentinel)} began a sentinel that has not ended"
    if (earlier := _test_of(before, entry)) is not None:
        yield f"candidate {entry.candidate.name} was tested already in {name_of(earlier)}"
    if gate.anchor_digest != before.anchor.digest:
        yield f"it is measured against anchor {gate.anchor_digest or 'base'}, while {before.anchor.digest or 'base'} was in force"
    policy = before.policy
    if policy is None or gate.policy_digest != before.policy_digest:
        yield f"it was opened under policy {gate.policy_digest}, while {before.policy_digest} was in force"
        return
    due = before.next_test(policy, gate.policy_digest, gate.incumbent_digest)
    if due is None:
        yield f"it counts as test {gate.test} of round {gate.round}, but its fixed Primary suite had used up its budget"
    elif (gate.round, gate.test) != due:
        yield f"it counts as test {gate.test} of round {gate.round}, but test {due.test} of round {due.round} was due"


def _accept(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    if entry.verdict is not Verdict.ACCEPTED:
        yield f"its verdict is {entry.verdict}"
    if entry.gate is None or entry.gate.evidence is None:
        yield "it accepts without evidence"
    yield from _verdict(before, entry, _test_of(before, entry))


def _reject(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    evidence, test = entry.gate.evidence if entry.gate else None, _test_of(before, entry)
    if entry.verdict not in (Verdict.REJECTED, Verdict.INCONCLUSIVE):
        yield f"its verdict is {entry.verdict}"
    if (evidence is None) == (entry.reason in GATE_REASONS):
        yield f"reason {entry.reason} {'asks for' if evidence is None else 'needs no'} evidence"
    if entry.reason is EntryReason.TRAINING_DIVERGED and test is None:
        return
    if evidence is None and entry.verdict is Verdict.REJECTED:
        yield "it rejects without evidence"
    yield from _verdict(before, entry, test)


def _verdict(before: LogState, entry: AdapterReleaseSpec, test: AdapterReleaseSpec | None) -> Problems:
    if entry.candidate is None or test is None:
        yield "it judges a candidate that was never tested"
        return
    earlier = before.of_candidate(entry.candidate.uid, Action.ACCEPT, Action.REJECT)
    if earlier is not None:
        yield f"candidate {entry.candidate.name} was judged already in {name_of(earlier)}"
    if entry.lineage != test.lineage or _paid(entry.gate) != _paid(test.gate):
        yield f"it judges something else than {name_of(test)} tested"
    evidence = entry.gate.evidence if entry.gate else None
    if evidence is not None and evidence.uri != evidence_dir(before.store_uid, name_of(test)):
        yield f"its evidence lies in {evidence.uri}, where no evidence of {name_of(test)} belongs"


def _paid(gate: GateFacts | None) -> GateFacts | None:
    return gate.model_copy(update={"evidence": None, "effect_basis_points": None}) if gate else None


def _promote(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    accept = before.of_candidate(entry.candidate.uid, Action.ACCEPT) if entry.candidate else None
    digest = accept.lineage.adapter_digest if accept and accept.lineage else None
    if accept is None or digest is None or entry.serves is None:
        yield "it promotes what was never accepted"
        return
    if entry.serves.digest != digest or entry.lineage != accept.lineage or entry.gate != accept.gate:
        yield f"it promotes something else than {name_of(accept)} accepted"
    elif (entry.serves.adapter, entry.serves.uri) != (adapter_name(entry.channel.name, digest), adapter_dir(before.store_uid, digest)):
        yield f"it names adapter {digest} otherwise, or takes it from elsewhere: {entry.serves.adapter} at {entry.serves.uri}"
    if before.served_after(accept):
        yield f"something else was made to serve after {name_of(accept)}"
    if before.is_quarantined(digest):
        yield f"adapter {digest} was rejected or taken back before"
    if before.frozen_by is not None:
        yield f"{name_of(before.frozen_by)} froze the channel, and nobody had lifted it"


def _rollback(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    target = before.serving_entry(entry.restores or "")
    if target is None:
        yield f"it restores {entry.restores}, which is no serving entry before it"
    elif entry.serves != target.spec.serves:
        yield f"it serves something else than {entry.restores}, which it restores"


def _anchor(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    anchor = entry.anchor
    if anchor is None or (anchor.entry is None) != (entry.reason is EntryReason.ANCHOR_RESET):
        yield "it does not say what the anchor is"
        return
    target = before.serving_entry(anchor.entry) if anchor.entry is not None else None
    if anchor.entry is not None and target is None:
        yield f"it anchors {anchor.entry}, which is no serving entry before it"
    elif anchor.digest != (served_digest(target) if target is not None else None):
        yield f"it anchors something else than {anchor.entry or 'the base'} serves"
    elif anchor.digest is not None and before.is_quarantined(anchor.digest):
        yield f"it anchors adapter {anchor.digest}, which was rejected or taken back before"


def _freeze(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    if entry.reason not in FREEZE_REASONS:
        yield f"{entry.reason} is no reason to freeze a channel"


def _unfreeze(before: LogState, entry: AdapterReleaseSpec) -> Problems:
    held = name_of(before.frozen_by) if before.frozen_by is not None else None
    if held is None or entry.lifts != held:
        yield f"it lifts {entry.lifts}, while {held or 'nothing'} froze the channel"


_RULES: dict[Action, Callable[[LogState, AdapterReleaseSpec], Problems]] = {
    Action.OPEN: _open,
    Action.TEST: _test,
    Action.ACCEPT: _accept,
    Action.REJECT: _reject,
    Action.PROMOTE: _promote,
    Action.ROLLBACK: _rollback,
    Action.POLICY: _policy,
    Action.SENTINEL: sentinel_problems,
    Action.ANCHOR: _anchor,
    Action.FREEZE: _freeze,
    Action.UNFREEZE: _unfreeze,
}
