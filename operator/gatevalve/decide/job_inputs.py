"""What the Jobs are told that candidates and sentinels have in common: who they work for, and what is measured against what."""

from __future__ import annotations

from typing import Any

from gatevalve.build.jobs import ARMS_URL, ENGINE_URL
from gatevalve.contracts.jobs import EvaluateInput, JobInput, PublishInput
from gatevalve.contracts.kinds import AdapterChannelSpec, AdapterReleaseSpec, GateFacts, SentinelRef
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.reasons import Step
from gatevalve.decide.log import name_of
from gatevalve.decide.view import View

Told = dict[str, Any]
"""The fields that every Job's input has."""


def told_to_all(view: View, channel_uid: str, candidate: str, uid: str, step: Step, attempt: int) -> Told:
    """Channel, candidate and attempt; a sentinel has its own uid as both name and uid."""
    told = JobInput(
        channel=view.name,
        channel_uid=channel_uid,
        candidate=candidate,
        candidate_uid=uid,
        attempt=f"{step}-{attempt}",
        data=view.settings.data_url,
    )
    return told.model_dump()


def publish_input(
    told: Told,
    spec: AdapterChannelSpec,
    gate: GateFacts,
    digest: str,
    produced_by: str | None = None,
    sentinel: SentinelRef | None = None,
) -> PublishInput:
    """What hands the arms to the engine: an adapter that an attempt made, or a sentinel's."""
    return PublishInput(
        **told,
        arms=ARMS_URL,
        base=spec.base,
        adapter=spec.adapter,
        adapter_digest=digest,
        produced_by=produced_by,
        sentinel=sentinel,
        incumbent_digest=gate.incumbent_digest,
        anchor_digest=gate.anchor_digest,
    )


def evaluate_input(
    told: Told,
    view: View,
    spec: AdapterChannelSpec,
    opened: AdapterReleaseSpec,
    gate: GateFacts,
    policy: GatePolicySpec,
    digest: str,
    arms: dict[str, str],
    engine_digest: str | None = None,
    sentinel: SentinelRef | None = None,
) -> EvaluateInput:
    """What measures an adapter under the facts that the entry `opened` paid for."""
    return EvaluateInput(
        **told,
        sealed=view.settings.sealed_url,
        test_entry=name_of(opened),
        test_digest=opened.digest or "",
        round=gate.round,
        test=gate.test,
        policy=policy,
        policy_digest=gate.policy_digest,
        base=spec.base,
        candidate_digest=digest,
        incumbent_digest=gate.incumbent_digest,
        anchor_digest=gate.anchor_digest,
        engine_url=ENGINE_URL,
        engine_digest=engine_digest,
        arms=arms,
        sentinel=sentinel,
    )
