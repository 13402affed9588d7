"""The policy that a channel names: one at least as strict as the one in force takes over at once, any other waits for a person."""

from __future__ import annotations

from gatevalve.contracts.kinds import AdapterChannelSpec, GatePolicyApproval
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import ConditionReason, EntryReason, EventReason
from gatevalve.decide import entries
from gatevalve.decide.channel_status import Problem
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.plan import AppendEntry, Event, Plan
from gatevalve.decide.view import ChannelView, View
from gatevalve.gate.compare import Relation, compare, differences

NAMED_FIELDS = 5
"""So many of the fields that differ are named; the whole policies are in the log."""

RATCHET = "the one before comes back only with spec.gatePolicyApproval"


def policy_problem(view: View, spec: AdapterChannelSpec, log: LogState) -> Problem | None:
    """What stops candidates, in flight or not: without a policy in force and agreed on nothing is judged. A way back needs no gate."""
    policy = view.policy.spec if view.policy else None
    if policy is None:
        text = (view.policy.problem if view.policy else None) or f"create GatePolicy {spec.gate_policy} in this namespace"
        return ConditionReason.POLICY_MISSING, text
    if log.policy is None or not _needs_consent(log.policy, policy) or _consent(spec, log, policy) is not None:
        return None
    return ConditionReason.POLICY_UNAPPROVED, f"{_lacks(spec, log.policy, policy)}; {_remedy(spec, log, policy)}"


def policy_change(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState) -> Plan:
    """The Policy entry that the named policy asks for, if any. What nobody approved is written down once and is not in force."""
    policy = view.policy.spec if view.policy else None
    if policy is None or log.policy is None or policy == log.policy:
        return Plan()
    if not _needs_consent(log.policy, policy):
        return _taken_over(view, channel, log, policy, EntryReason.POLICY_CHANGED, f"policy digest {policy.digest_of()}", None)
    if (approval := _consent(spec, log, policy)) is not None:
        return _taken_over(view, channel, log, policy, EntryReason.POLICY_APPROVED, approval.reason, approval.by)
    return Plan() if policy.digest_of() in log.unapproved else _held(view, channel, spec, log, policy)


def _needs_consent(in_force: GatePolicySpec, policy: GatePolicySpec) -> bool:
    return compare(in_force, policy) in (Relation.LOOSER, Relation.INCOMPARABLE)


def _consent(spec: AdapterChannelSpec, log: LogState, policy: GatePolicySpec) -> GatePolicyApproval | None:
    """A person's approval of exactly this policy. One is good for one change: left in the spec it must not open the way each time."""
    approval = spec.gate_policy_approval
    if approval is None or approval.digest != policy.digest_of() or _used_for(log, approval) is not None:
        return None
    return approval


def _used_for(log: LogState, approval: GatePolicyApproval) -> str | None:
    told = (approval.by, approval.reason)
    used = [entry for entry in log.approvals(approval.digest) if (entry.actor, entry.message) == told]
    return name_of(used[-1]) if used else None


def _taken_over(
    view: View, channel: ChannelView, log: LogState, policy: GatePolicySpec, reason: EntryReason, message: str, actor: str | None
) -> Plan:
    entry = entries.policy_entry(view, log, policy, reason, message, actor)
    how = f"approved by {actor}" if actor else f"it asks for more: {_named(log.policy or policy, policy, Relation.STRICTER)}; {RATCHET}"
    text = f"the policy with digest {policy.digest_of()} is in force, {how}"
    return _written(channel, AppendEntry(entry), EventReason.POLICY_CHANGED, text)


def _held(view: View, channel: ChannelView, spec: AdapterChannelSpec, log: LogState, policy: GatePolicySpec) -> Plan:
    text = _lacks(spec, log.policy or policy, policy)
    entry = entries.policy_entry(view, log, policy, EntryReason.POLICY_UNAPPROVED, text, None)
    return _written(channel, AppendEntry(entry), EventReason.POLICY_UNAPPROVED, f"{text}; {_remedy(spec, log, policy)}")


def _written(channel: ChannelView, append: AppendEntry, reason: EventReason, message: str) -> Plan:
    """Another policy judges, or would: whoever did not mean it must see it."""
    event = Event("AdapterChannel", channel.meta.name, channel.meta.uid, reason, message, warning=True)
    return Plan((append,), events=(event,), requeue_seconds=0)


def _lacks(spec: AdapterChannelSpec, in_force: GatePolicySpec, policy: GatePolicySpec) -> str:
    """What of a policy is not at least as strict, in a sentence."""
    named = _named(in_force, policy, Relation.LOOSER, Relation.INCOMPARABLE)
    return f"GatePolicy {spec.gate_policy} with digest {policy.digest_of()} is not at least as strict as the one in force: {named}"


def _named(in_force: GatePolicySpec, policy: GatePolicySpec, *relations: Relation) -> str:
    fields = [item.field for item in differences(in_force, policy) if item.relation in relations]
    return ", ".join(fields[:NAMED_FIELDS]) + (f" and {len(fields) - NAMED_FIELDS} more" if len(fields) > NAMED_FIELDS else "")


def _remedy(spec: AdapterChannelSpec, log: LogState, policy: GatePolicySpec) -> str:
    approval, digest = spec.gate_policy_approval, policy.digest_of()
    if approval is not None and approval.digest == digest:
        return f"the approval in the channel was used for {_used_for(log, approval)}; approve again with a reason of its own"
    return f"set spec.gatePolicyApproval to {{digest: {digest}, by: <your user name>, reason: <why>}}, or name a policy as strict"
