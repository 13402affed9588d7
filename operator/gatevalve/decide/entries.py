"""Drafts of log entries: what a decision wants written. The executor adds previousDigest, digest and signature."""

from __future__ import annotations

from gatevalve.contracts.kinds import (
    AdapterChannelSpec,
    AdapterReleaseSpec,
    AnchorInForce,
    CandidateRef,
    ChannelRef,
    EvidenceStatus,
    GateFacts,
    Lineage,
    Opening,
    SentinelKind,
    SentinelRef,
    Serves,
)
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Action, EntryReason, Verdict
from gatevalve.decide.conditions import MESSAGE_LIMIT, timestamp
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.view import CandidateView, ChannelView, EntryView, View


def open_entry(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState, policy: GatePolicySpec) -> AdapterReleaseSpec:
    """The channel's log starts; an adopted channel goes on serving what serves."""
    adopted = log.channel_uid
    live = log.live
    return _draft(
        view,
        log,
        Action.OPEN,
        EntryReason.CHANNEL_ADOPTED if adopted else EntryReason.CHANNEL_OPENED,
        f"adopted from channel uid {adopted}" if adopted else "the base serves until the first promotion",
        channel=ChannelRef(name=channel.meta.name, uid=channel.meta.uid),
        serves=live.spec.serves if live else Serves(base=True),
        opening=Opening(base=spec.base, policy_digest=policy.digest_of(), adopted_uid=adopted),
        policy=policy,
    )


def policy_entry(
    view: View, log: LogState, policy: GatePolicySpec, reason: EntryReason, message: str, actor: str | None
) -> AdapterReleaseSpec:
    """Another policy is in force from here on, unless the reason says that it waits for a person; `actor` is the person who approved."""
    return _draft(view, log, Action.POLICY, reason, message, policy=policy, actor=actor)


def test_entry(view: View, log: LogState, candidate: CandidateView, gate: GateFacts, lineage: Lineage) -> AdapterReleaseSpec:
    """A look is paid before it is taken."""
    message = f"test {gate.test} of round {gate.round}"
    return _draft(view, log, Action.TEST, EntryReason.TEST_OPENED, message, candidate=_ref(candidate), gate=gate, lineage=lineage)


def accept_entry(
    view: View, log: LogState, test: AdapterReleaseSpec, evidence: EvidenceStatus, effect_bp: int | None
) -> AdapterReleaseSpec:
    """The gate accepted the tested adapter."""
    gate = test.gate.model_copy(update={"evidence": evidence, "effect_basis_points": effect_bp}) if test.gate else None
    return _verdict(view, log, test, Action.ACCEPT, Verdict.ACCEPTED, EntryReason.GATE_PASSED, "every check passed", gate)


def reject_entry(
    view: View,
    log: LogState,
    test: AdapterReleaseSpec,
    verdict: Verdict,
    reason: EntryReason,
    message: str,
    evidence: EvidenceStatus | None,
) -> AdapterReleaseSpec:
    """The gate rejected the tested adapter or could not judge it."""
    gate = test.gate.model_copy(update={"evidence": evidence}) if test.gate else None
    return _verdict(view, log, test, Action.REJECT, verdict, reason, message, gate)


def diverged_entry(view: View, log: LogState, candidate: CandidateView, message: str) -> AdapterReleaseSpec:
    """Training diverged: the only rejection without a test."""
    return _draft(view, log, Action.REJECT, EntryReason.TRAINING_DIVERGED, message, verdict=Verdict.REJECTED, candidate=_ref(candidate))


def promote_entry(view: View, log: LogState, accept: AdapterReleaseSpec, serves: Serves, actor: str | None) -> AdapterReleaseSpec:
    """An accepted adapter becomes the live release; `actor` is the person who approved, if one did."""
    return _draft(
        view,
        log,
        Action.PROMOTE,
        EntryReason.APPROVED if actor else EntryReason.GATE_PASSED,
        f"accepted in {name_of(accept)}",
        candidate=accept.candidate,
        serves=serves,
        lineage=accept.lineage,
        gate=accept.gate,
        actor=actor,
    )


def rollback_entry(
    view: View, log: LogState, target: EntryView, reason: EntryReason, message: str, actor: str | None
) -> AdapterReleaseSpec:
    """An earlier entry's adapter, or the base, becomes the live release again."""
    return _draft(
        view,
        log,
        Action.ROLLBACK,
        reason,
        message,
        serves=target.spec.serves,
        restores=log.restored(target.spec),
        lineage=target.spec.lineage,
        actor=actor,
    )


def anchor_entry(
    view: View, log: LogState, anchor: AnchorInForce, reason: EntryReason, message: str, actor: str | None
) -> AdapterReleaseSpec:
    """Every later test is measured against another anchor; `actor` is the person who moved it, if the channel names one."""
    return _draft(view, log, Action.ANCHOR, reason, message, anchor=anchor, actor=actor)


def freeze_entry(view: View, log: LogState, reason: EntryReason, message: str) -> AdapterReleaseSpec:
    """Nothing is dequeued, put to a test or promoted from here on. It acts at once: append it with `copy_first=False`."""
    return _draft(view, log, Action.FREEZE, reason, message)


def unfreeze_entry(view: View, log: LogState, frozen_by: AdapterReleaseSpec) -> AdapterReleaseSpec:
    """A person lifted a freeze."""
    message = f"{name_of(frozen_by)} is lifted by annotation"
    return _draft(view, log, Action.UNFREEZE, EntryReason.UNFROZEN, message, lifts=name_of(frozen_by))


def sentinel_opened_entry(view: View, log: LogState, sentinel: SentinelRef, gate: GateFacts) -> AdapterReleaseSpec:
    """The gate is to be probed: this look is paid before it is taken too, out of no candidate's budget."""
    message = f"sentinel {sentinel.number}: {_SENTINELS[sentinel.kind]}"
    return _draft(view, log, Action.SENTINEL, EntryReason.SENTINEL_OPENED, message, sentinel=sentinel, gate=gate)


def sentinel_ended_entry(
    view: View,
    log: LogState,
    opened: AdapterReleaseSpec,
    verdict: Verdict,
    reason: EntryReason,
    message: str,
    evidence: EvidenceStatus | None,
) -> AdapterReleaseSpec:
    """A sentinel has ended. It names no candidate and no adapter, so that nothing can be promoted from it."""
    gate = opened.gate.model_copy(update={"evidence": evidence}) if opened.gate else None
    return _draft(view, log, Action.SENTINEL, reason, message, verdict=verdict, sentinel=opened.sentinel, gate=gate)


_SENTINELS: dict[SentinelKind, str] = {"Same": "the incumbent against itself", "Bad": "an adapter of noise"}


def _verdict(
    view: View,
    log: LogState,
    test: AdapterReleaseSpec,
    action: Action,
    verdict: Verdict,
    reason: EntryReason,
    message: str,
    gate: GateFacts | None,
) -> AdapterReleaseSpec:
    return _draft(view, log, action, reason, message, verdict=verdict, candidate=test.candidate, gate=gate, lineage=test.lineage)


def _ref(candidate: CandidateView) -> CandidateRef:
    return CandidateRef(name=candidate.meta.name, uid=candidate.meta.uid)


def _draft(
    view: View,
    log: LogState,
    action: Action,
    reason: EntryReason,
    message: str,
    *,
    channel: ChannelRef | None = None,
    verdict: Verdict | None = None,
    candidate: CandidateRef | None = None,
    serves: Serves | None = None,
    restores: str | None = None,
    opening: Opening | None = None,
    lineage: Lineage | None = None,
    gate: GateFacts | None = None,
    policy: GatePolicySpec | None = None,
    anchor: AnchorInForce | None = None,
    lifts: str | None = None,
    sentinel: SentinelRef | None = None,
    actor: str | None = None,
) -> AdapterReleaseSpec:
    return AdapterReleaseSpec(
        channel=channel or ChannelRef(name=view.name, uid=log.channel_uid or ""),
        sequence=log.next_sequence,
        action=action,
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        verdict=verdict,
        candidate=candidate,
        serves=serves,
        restores=restores,
        opening=opening,
        lineage=lineage,
        gate=gate,
        policy=policy,
        anchor=anchor,
        lifts=lifts,
        sentinel=sentinel,
        actor=actor or view.settings.actor,
        decided_at=timestamp(view.now),
        operator_version=view.settings.operator_version,
        key_id=view.settings.key_id,
    )
