"""GatePolicy: what a candidate must show. The spec is immutable; what counts is its digest."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from gatevalve.contracts import patterns
from gatevalve.contracts.model import BasisPoints, Contract, DigestField, Name, Uri, api_list_map, api_rules

Role = Literal["Primary", "Guard", "Behaviour"]
Temperature = Annotated[str, Field(max_length=16, pattern=patterns.TEMPERATURE)]
"""A sampling temperature as a decimal string, not negative."""

GENERATED_REPLIES = 40_000
"""Replies of one arm to all generated items of a round: their evidence stays well below what the operator reads."""
_TOO_MANY = f"items.count times decodes, summed up over the generated suites, must be at most {GENERATED_REPLIES}"


class Generator(Contract):
    """Items drawn afresh for each round by a task plug-in, from the sealed side of the split."""

    generator: Name = Field(description="Task plug-in (entry point group gatevalve.tasks) that generates the items.")
    count: int = Field(ge=1, le=GENERATED_REPLIES, description="Items in a round.")


class FixedItems(Contract):
    """Items of a file in the data area, named by digest."""

    uri: Uri = Field(description="Path of a JSONL file in the data area, for example suites/regression.jsonl.")
    digest: DigestField = Field(description="sha256 of the file's bytes.")


class Items(Contract):
    """Where a suite's items come from: exactly one of a generator with a count, or uri with a digest."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            ("has(self.generator) != has(self.uri)", "set either generator with count, or uri with digest"),
            ("has(self.generator) == has(self.count)", "generator goes with count"),
            ("has(self.uri) == has(self.digest)", "uri goes with digest"),
        )
    )

    generator: Name | None = Field(default=None, description="Task plug-in that generates fresh items for each round.")
    count: int | None = Field(default=None, ge=1, le=GENERATED_REPLIES, description="Number of generated items in a round.")
    uri: Uri | None = Field(default=None, description="Path of a JSONL file in the data area.")
    digest: DigestField | None = Field(default=None, description="sha256 of the file's bytes.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.generator is None) == (self.uri is None):
            raise ValueError("set either generator with count, or uri with digest")
        if (self.generator is None) != (self.count is None) or (self.uri is None) != (self.digest is None):
            raise ValueError("generator goes with count, uri goes with digest")
        return self

    def source(self) -> Generator | FixedItems:
        """The one source that is set."""
        if self.generator is not None and self.count is not None:
            return Generator(generator=self.generator, count=self.count)
        return FixedItems(uri=self.uri or "", digest=self.digest or "")


class Sampling(Contract):
    """How every arm is asked."""

    temperature: Temperature = Field(description="Sampling temperature as a decimal string; 0 is greedy.")
    max_tokens: int = Field(ge=1, le=32_768, description="Longest reply in tokens.")


class Suite(Contract):
    """A named set of items with one role in the gate."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            (
                "(self.role == 'Primary') == has(self.minEffectBasisPoints)",
                "minEffectBasisPoints is required for a Primary suite and does not apply to others",
            ),
            (
                "(self.role == 'Guard') == has(self.marginBasisPoints)",
                "marginBasisPoints is required for a Guard suite and does not apply to others",
            ),
            (
                "(self.role == 'Guard') == has(self.floorBasisPoints)",
                "floorBasisPoints is required for a Guard suite (0 for none) and does not apply to others",
            ),
            (
                "(self.role == 'Behaviour') != has(self.verifier)",
                "verifier is required for Primary and Guard suites and does not apply to Behaviour suites",
            ),
            ("self.role != 'Behaviour' || !has(self.items.generator)", "Behaviour suites are public: give items.uri and items.digest"),
            (
                r"self.decodes == 1 || !self.sampling.temperature.matches('^0+(\\.0+)?$')",
                "decodes must be 1 at temperature 0: greedy replies to one item are all the same",
            ),
        )
    )

    name: Name = Field(description="The suite's name in evidence and reasons.")
    role: Role = Field(
        description="Primary: must improve (exactly one). Guard: must not get worse. Behaviour: the form of the replies must stay in range."
    )
    items: Items = Field(description="Where the items come from: generator and count, or uri and digest.")
    verifier: Name | None = Field(default=None, description="Task plug-in that scores a reply between 0 and 1; not for Behaviour suites.")
    sampling: Sampling = Field(description="Temperature and reply length, the same for every arm.")
    decodes: int = Field(ge=1, le=64, description="Replies drawn for each item and arm.")
    min_effect_basis_points: BasisPoints | None = Field(default=None, description="Primary: the least worthwhile gain over the incumbent.")
    margin_basis_points: BasisPoints | None = Field(
        default=None, description="Guard: the largest tolerable loss against incumbent and anchor."
    )
    floor_basis_points: BasisPoints | None = Field(
        default=None, description="Guard: the rate the candidate must be shown to exceed; 0 for none."
    )

    @model_validator(mode="after")
    def _fields_of_the_role(self) -> Self:
        wanted = {"Primary": {"min_effect_basis_points"}, "Guard": {"margin_basis_points", "floor_basis_points"}, "Behaviour": set()}[
            self.role
        ]
        for name in ("min_effect_basis_points", "margin_basis_points", "floor_basis_points"):
            if (getattr(self, name) is not None) != (name in wanted):
                raise ValueError(f"{name} {'is required for' if name in wanted else 'does not apply to'} a {self.role} suite")
        if (self.verifier is None) != (self.role == "Behaviour"):
            raise ValueError("verifier is required for Primary and Guard suites and does not apply to Behaviour suites")
        if self.role == "Behaviour" and self.items.generator is not None:
            raise ValueError("Behaviour suites are public: give uri and digest")
        if self.decodes > 1 and float(self.sampling.temperature) == 0:
            raise ValueError("decodes must be 1 at temperature 0: greedy replies to one item are all the same")
        return self


class RoundBudget(Contract):
    """The error budget of one sealed item set."""

    alpha_basis_points: int = Field(
        ge=1, le=5_000, description="P(a round releases a non-improvement) is at most this; each test gets alpha/maxTests."
    )
    max_tests: int = Field(ge=1, le=1_000, description="Tests a round pays for; then fresh items are drawn.")

    def alpha_per_test(self) -> float:
        """The error rate of one test."""
        return self.alpha_basis_points / 10_000 / self.max_tests


class LengthRatio(Contract):
    """The range of mean reply length against the incumbent's, in percent."""

    min: int = Field(ge=1, le=100, description="Lowest mean reply length, percent of the incumbent's.")
    max: int = Field(ge=100, le=10_000, description="Highest mean reply length, percent of the incumbent's.")


class Behaviour(Contract):
    """Limits on the form of the replies to Behaviour suites."""

    length_ratio_percent: LengthRatio = Field(description="Mean reply length of the candidate, percent of the incumbent's.")


class EvidenceRules(Contract):
    """What evidence must look like to be judged at all."""

    max_missing_basis_points: BasisPoints = Field(
        description="Largest share of missing answers in any suite and arm; above it the test is Inconclusive."
    )
    min_clusters: int = Field(ge=2, le=100_000, description="Fewest independent clusters in any Primary or Guard suite.")


class GatePolicySpec(Contract):
    """Every threshold of the gate; all are required, `none` is written out as a number."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            ("self.suites.exists_one(suite, suite.role == 'Primary')", "exactly one suite must be Primary"),
            (
                "self.suites.all(suite, !has(suite.items.count) || suite.items.count >= self.evidence.minClusters)",
                "items.count of a generated suite must be at least evidence.minClusters, or no test could ever pass",
            ),
            (
                f"self.suites.map(suite, has(suite.items.count) ? suite.items.count * suite.decodes : 0).sum() <= {GENERATED_REPLIES}",
                _TOO_MANY,
            ),
        )
    )

    suites: Annotated[
        tuple[Suite, ...],
        Field(min_length=1, max_length=16, description="The suites; exactly one is Primary.", json_schema_extra=api_list_map("name")),
    ]
    round: RoundBudget = Field(description="The error budget of one sealed item set.")
    guard_alpha_basis_points: int = Field(
        ge=1, le=5_000, description="Each truly worse candidate passes a guard, anchor or floor with at most this."
    )
    behaviour: Behaviour = Field(description="Limits on the form of the replies, measured on the Behaviour suites.")
    evidence: EvidenceRules = Field(description="What evidence must look like to be judged at all.")

    @model_validator(mode="after")
    def _suites(self) -> Self:
        if sum(suite.role == "Primary" for suite in self.suites) != 1:
            raise ValueError("exactly one suite must be Primary")
        if any(suite.items.count is not None and suite.items.count < self.evidence.min_clusters for suite in self.suites):
            raise ValueError("items.count of a generated suite must be at least evidence.minClusters, or no test could ever pass")
        if sum((suite.items.count or 0) * suite.decodes for suite in self.suites) > GENERATED_REPLIES:
            raise ValueError(_TOO_MANY)
        if len({suite.name for suite in self.suites}) != len(self.suites):
            raise ValueError("suite names must differ")
        return self

    @property
    def primary(self) -> Suite:
        """The one Primary suite."""
        return next(suite for suite in self.suites if suite.role == "Primary")

    def with_role(self, role: Role) -> tuple[Suite, ...]:
        """The suites of a role, in the policy's order."""
        return tuple(suite for suite in self.suites if suite.role == role)

    def suite(self, name: str) -> Suite:
        """A suite by name; raises KeyError."""
        return {suite.name: suite for suite in self.suites}[name]
