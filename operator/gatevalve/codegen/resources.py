"""The four kinds as the API server serves them: names, printer columns, selectable fields and what an update may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gatevalve.codegen.structural import RULES, Schema, structural_schema
from gatevalve.contracts import names
from gatevalve.contracts.kinds import (
    AdapterCandidateSpec,
    AdapterCandidateStatus,
    AdapterChannelSpec,
    AdapterChannelStatus,
    AdapterReleaseSpec,
    AdapterReleaseStatus,
)
from gatevalve.contracts.model import Contract
from gatevalve.contracts.policy import GatePolicySpec

NAME_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column; priority 1 shows with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind: its models and what the API server adds to them. Rules are written as they stand in the CRD."""

    kind: str
    plural: str
    short_name: str
    description: str
    spec: type[Contract]
    status: type[Contract] | None
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    rules: tuple[Schema, ...] = ()
    spec_rules: tuple[Schema, ...] = ()
    defaults: bool = True


def rule(expression: str, message: str, **more: Any) -> Schema:
    """One CEL rule."""
    return {"rule": expression, "message": message, **more}


def short_name_rule(kind: str) -> Schema:
    """Names of channels and candidates become parts of Job, entry and engine names."""
    return rule(
        f"self.metadata.name.size() <= {NAME_LIMIT} && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        f"the name of an {kind} has at most {NAME_LIMIT} lower-case letters, digits and dashes: Jobs and log entries are named after it",
    )


def unchanged_but_for(model: type[Contract], *mutable: str) -> str:
    """The CEL expression that every field of a model, but for some, is as it was, present or absent."""
    fields = [field.alias or name for name, field in model.model_fields.items() if name not in mutable]
    return " && ".join(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})" for field in fields
    )


AGE = Column("Age", ".metadata.creationTimestamp", "Since when it exists.", type="date")
IMMUTABLE = "self == oldSelf"

GATE_POLICY = Resource(
    kind="GatePolicy",
    plural=names.POLICIES,
    short_name="gpol",
    description="What a candidate must show before it may serve. The spec is immutable: make another policy and name it in the channel.",
    spec=GatePolicySpec,
    status=None,
    columns=(
        Column("Primary", '.spec.suites[?(@.role=="Primary")].name', "The suite that must improve."),
        Column("Alpha-bp", ".spec.round.alphaBasisPoints", "Error budget of a round in basis points.", type="integer"),
        Column("Tests", ".spec.round.maxTests", "Tests a round pays for.", type="integer"),
        AGE,
    ),
    spec_rules=(rule(IMMUTABLE, "spec is immutable: create another GatePolicy and name it in the channel"),),
)

ADAPTER_CHANNEL = Resource(
    kind="AdapterChannel",
    plural=names.CHANNELS,
    short_name="achan",
    description="An alias served from one base model and its adapters: how they are made, judged and rolled out, and what serves now.",
    spec=AdapterChannelSpec,
    status=AdapterChannelStatus,
    columns=(
        Column("Alias", ".spec.alias", "What clients send as model."),
        Column("Live", ".status.live.entry", "The release log entry that answers."),
        Column("Adapter", ".status.live.adapter", "The adapter that answers; empty while the base does."),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Whether all is as it should be."),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why it is ready or not."),
        Column("Pods", ".status.pods.desired", "Pods of the pool.", type="integer"),
        Column("Verified", ".status.pods.verified", "Pods that verified the live release.", type="integer"),
        Column("Round", ".status.round.number", "The round in force.", type="integer"),
        Column("Tests", ".status.round.tests", "Tests paid for in this round.", type="integer", priority=1),
        Column("Pin", ".spec.pin.entry", "The entry a person went back to."),
        Column("Policy", ".spec.gatePolicy", "The gate policy.", priority=1),
        AGE,
    ),
    rules=(short_name_rule("AdapterChannel"),),
)

ADAPTER_CANDIDATE = Resource(
    kind="AdapterCandidate",
    plural=names.CANDIDATES,
    short_name="acand",
    description="An adapter to be trained or fetched, judged, and perhaps released. The spec is immutable but for approval.",
    spec=AdapterCandidateSpec,
    status=AdapterCandidateStatus,
    columns=(
        Column("Channel", ".spec.channel", "The channel it is for."),
        Column("State", ".status.state", "Where it is."),
        Column("Verdict", ".status.decision.verdict", "What the gate said.", priority=1),
        Column("Reason", '.status.conditions[?(@.type=="Decided")].reason', "Why it waits, or why it ended as it did."),
        Column("Entry", ".status.decision.entry", "The release log entry of the decision."),
        Column("Rows", ".status.snapshot.rows", "Replies it trained on.", type="integer", priority=1),
        Column("Adapter", ".status.adapter.name", "The adapter it made.", priority=1),
        AGE,
    ),
    selectable=(".spec.channel", ".status.state"),
    rules=(short_name_rule("AdapterCandidate"),),
    spec_rules=(
        rule(unchanged_but_for(AdapterCandidateSpec, "approval"), "spec is immutable but for approval: create another AdapterCandidate"),
        rule("!has(oldSelf.approval) || has(self.approval)", "approval is set once and never removed"),
        rule(
            "oldSelf.hasValue() || !has(self.approval)",
            "approval must be absent at creation: it is a decision on evidence that does not exist yet",
            optionalOldSelf=True,
        ),
    ),
)

ADAPTER_RELEASE = Resource(
    kind="AdapterRelease",
    plural=names.RELEASES,
    short_name="arel",
    description="One signed entry of a channel's release log. Only the operator creates entries; a person goes back to one by a pin.",
    spec=AdapterReleaseSpec,
    status=AdapterReleaseStatus,
    columns=(
        Column("Action", ".spec.action", "What the entry does."),
        Column("Reason", ".spec.reason", "Why it was written."),
        Column("Candidate", ".spec.candidate.name", "The candidate it is about."),
        Column("Serves", ".spec.serves.adapter", "The adapter that the alias answers from after it; empty for the base."),
        Column("Restores", ".spec.restores", "The entry that a rollback goes back to."),
        Column("Live", ".status.liveSince", "Since when the pods answer from it.", type="date"),
        Column("Message", ".spec.message", "Why, in a sentence.", priority=1),
        AGE,
    ),
    selectable=(".spec.channel.name", ".spec.action"),
    rules=(
        rule(
            "self.metadata.name.size() == self.spec.channel.name.size() + 7"
            " && self.metadata.name.startsWith(self.spec.channel.name + '-')"
            " && self.metadata.name.matches('-[0-9]{6}$')"
            " && int(self.metadata.name.substring(self.spec.channel.name.size() + 1)) == self.spec.sequence",
            "an entry is named <channel>-<sequence in six digits>: its name is what makes it the only one",
        ),
    ),
    spec_rules=(rule(IMMUTABLE, "a log entry is immutable"),),
    defaults=False,
)

RESOURCES = (GATE_POLICY, ADAPTER_CHANNEL, ADAPTER_CANDIDATE, ADAPTER_RELEASE)


def custom_resource_definition(resource: Resource) -> dict[str, Any]:
    """The CRD of one kind. Helm keeps it on uninstall, because deleting it would delete the release log."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{names.GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
                "categories": [names.CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [_version(resource)],
        },
    }


def _version(resource: Resource) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in resource.columns],
        "schema": {"openAPIV3Schema": object_schema(resource)},
    }
    if resource.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in resource.selectable]
    if resource.status:
        version["subresources"] = {"status": {}}
    return version


def _column(column: Column) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "description": column.description, "jsonPath": column.path}
    return shown | ({"priority": column.priority} if column.priority else {})


def object_schema(resource: Resource) -> Schema:
    """The schema of a whole object: type, metadata, spec and status."""
    spec = structural_schema(resource.spec, defaults=resource.defaults)
    spec |= {RULES: [*resource.spec_rules, *spec.get(RULES, [])]} if resource.spec_rules else {}
    properties: Schema = {
        "apiVersion": {"description": f"{names.API_VERSION}", "type": "string"},
        "kind": {"description": resource.kind, "type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
    }
    if resource.status:
        properties["status"] = structural_schema(resource.status, defaults=False)
    rules = {RULES: list(resource.rules)} if resource.rules else {}
    return {"description": resource.description, "type": "object", "required": ["spec"], "properties": properties, **rules}
