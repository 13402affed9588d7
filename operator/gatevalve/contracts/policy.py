"""GatePolicy: what a candidate must show. The spec is immutable; what counts is its digest."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from gatevalve.contracts import patterns
from gatevalve.contracts.model import BasisPoints, Contract, DigestField, Name, ShortText, Uri, api_list_map, api_rules

Role = Literal["Primary", "Guard", "MustPass", "Behaviour"]
Temperature = Annotated[str, Field(max_length=16, pattern=patterns.TEMPERATURE)]
"""A sampling temperature as a decimal string, not negative."""

GENERATED_REPLIES = 40_000
"""Replies of one arm to all generated items of a round: their evidence stays well below what the operator reads."""
SCREEN = "screen"
"""Name of the primary suite's screen in evidence; no suite of a policy may have it."""

_TOO_MANY = f"items times decodes, summed up over the generated and traffic suites, must be at most {GENERATED_REPLIES}"


class Generator(Contract):
    """Items drawn afresh for each round by a task plug-in, from the sealed side of the split."""

    generator: Name = Field(description="Task plug-in (entry point group gatevalve.tasks) that generates the items.")
    count: int = Field(ge=1, le=GENERATED_REPLIES, description="Items in a round.")


class FixedItems(Contract):
    """Items of a file in the data area, named by digest."""

    uri: Uri = Field(description="Path of a JSONL file in the data area, for example suites/regression.jsonl.")
    digest: DigestField = Field(description="sha256 of the file's bytes.")


class TrafficItems(Contract):
    """Captured conversations of the sealed side of the split that no round has used yet."""

    min: int = Field(
        ge=1, le=GENERATED_REPLIES, description="Items in a round, which waits for traffic when fresh conversations are fewer."
    )


ONE_SOURCE = "set exactly one of generator with count, traffic, or uri with digest"


class Items(Contract):
    """Where a suite's items come from: exactly one of a generator with a count, captured traffic, or uri with a digest."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            ("[has(self.generator), has(self.traffic), has(self.uri)].exists_one(one, one)", ONE_SOURCE),
            ("has(self.generator) == has(self.count)", "generator goes with count"),
            ("has(self.uri) == has(self.digest)", "uri goes with digest"),
        )
    )

    generator: Name | None = Field(default=None, description="Task plug-in that generates fresh items for each round.")
    count: int | None = Field(default=None, ge=1, le=GENERATED_REPLIES, description="Number of generated items in a round.")
    traffic: TrafficItems | None = Field(default=None, description="Captured conversations of the sealed side, fresh for each round.")
    uri: Uri | None = Field(default=None, description="Path of a JSONL file in the data area.")
    digest: DigestField | None = Field(default=None, description="sha256 of the file's bytes.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.generator, self.traffic, self.uri)) != 1:
            raise ValueError(ONE_SOURCE)
        if (self.generator is None) != (self.count is None) or (self.uri is None) != (self.digest is None):
            raise ValueError("generator goes with count, uri goes with digest")
        return self

    @property
    def fresh(self) -> int | None:
        """The number of items that are new in each round; None for a fixed file."""
        return self.traffic.min if self.traffic is not None else self.count

    def source(self) -> Generator | TrafficItems | FixedItems:
        """The one source that is set."""
        if self.traffic is not None:
            return self.traffic
        if self.generator is not None and self.count is not None:
            return Generator(generator=self.generator, count=self.count)
        return FixedItems(uri=self.uri or "", digest=self.digest or "")


class Sampling(Contract):
    """How every arm is asked."""

    temperature: Temperature = Field(description="Sampling temperature as a decimal string; 0 is greedy.")
    max_tokens: int = Field(ge=1, le=32_768, description="Longest reply in tokens.")


class Judge(Contract):
    """A model that compares two replies, behind any OpenAI-compatible endpoint; each pair is asked in both orders."""

    url: Annotated[str, Field(max_length=1024, pattern=patterns.HTTP_URL)] = Field(
        description="The endpoint's root, for example https://judge.example/v1; Secret gatevalve-judge may hold its api-key."
    )
    model: ShortText = Field(min_length=1, description="The judge's model name; must not be the base that is judged.")
    canaries: FixedItems = Field(description="Pairs with a known better reply, asked in each test: 95 of 100 must come out right.")


FIELDS_OF_ROLE: dict[str, Role] = {
    "min_effect_basis_points": "Primary",
    "min_detectable_effect_basis_points": "Primary",
    "margin_basis_points": "Guard",
    "floor_basis_points": "Guard",
}
"""Fields of a suite that one role requires and no other has."""


def _belongs(name: str, role: str) -> str:
    none = 10_000 if name == "margin_basis_points" else 0
    return f"{to_camel(name)} is required for a {role} suite ({none} for none) and does not apply to others"


SCORER = "set either verifier or judge for a suite that is scored, and neither for a Behaviour suite"
JUDGED_ROLES = "a judge compares replies: it can score Primary and Guard suites only"
PUBLIC = "MustPass and Behaviour suites are public: give items.uri and items.digest"


class Suite(Contract):
    """A named set of items with one role in the gate."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            *((f"(self.role == '{role}') == has(self.{to_camel(name)})", _belongs(name, role)) for name, role in FIELDS_OF_ROLE.items()),
            ("(self.role != 'Behaviour') == (has(self.verifier) != has(self.judge))", SCORER),
            ("self.role != 'Behaviour' || !(has(self.verifier) || has(self.judge))", SCORER),
            ("!has(self.judge) || self.role in ['Primary', 'Guard']", JUDGED_ROLES),
            ("self.role in ['Primary', 'Guard'] || has(self.items.uri)", PUBLIC),
            (
                r"self.decodes == 1 || !self.sampling.temperature.matches('^0+(\\.0+)?$')",
                "decodes must be 1 at temperature 0: greedy replies to one item are all the same",
            ),
        )
    )

    name: Name = Field(description="The suite's name in evidence and reasons.")
    role: Role = Field(
        description="Primary: must improve (exactly one). Guard: must not get worse. MustPass: every reply must be wholly right. "
        "Behaviour: the form of the replies must stay in range."
    )
    items: Items = Field(description="Where the items come from: generator and count, traffic, or uri and digest.")
    verifier: Name | None = Field(default=None, description="Task plug-in that scores a reply between 0 and 1; not for Behaviour suites.")
    judge: Judge | None = Field(default=None, description="A model that compares replies, instead of a verifier.")
    sampling: Sampling = Field(description="Temperature and reply length, the same for every arm.")
    decodes: int = Field(ge=1, le=64, description="Replies drawn for each item and arm.")
    min_effect_basis_points: BasisPoints | None = Field(default=None, description="Primary: the least worthwhile gain over the incumbent.")
    min_detectable_effect_basis_points: BasisPoints | None = Field(
        default=None, description="Primary: the gain that 8 of 10 tests should see; the channel is Underpowered when its items are too few."
    )
    margin_basis_points: BasisPoints | None = Field(
        default=None,
        description="Guard: the largest tolerable loss against incumbent and anchor; hardly any test can show that there is none (0).",
    )
    floor_basis_points: BasisPoints | None = Field(
        default=None, description="Guard: the rate the candidate must be shown to exceed; 0 for none."
    )

    @model_validator(mode="after")
    def _fields_of_the_role(self) -> Self:
        for name, role in FIELDS_OF_ROLE.items():
            if (getattr(self, name) is not None) != (self.role == role):
                raise ValueError(_belongs(name, role))
        scorers = sum(scorer is not None for scorer in (self.verifier, self.judge))
        if scorers != (self.role != "Behaviour"):
            raise ValueError(SCORER)
        if self.judge is not None and self.role not in ("Primary", "Guard"):
            raise ValueError(JUDGED_ROLES)
        if self.role not in ("Primary", "Guard") and self.items.uri is None:
            raise ValueError(PUBLIC)
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


class Futility(Contract):
    """The screen: a look at items of its own that ends hopeless candidates early and can never accept."""

    items: int = Field(ge=0, le=GENERATED_REPLIES, description="Items of the screen, beside the Primary suite's own; 0: no screen.")
    alpha_basis_points: int = Field(
        ge=1, le=10_000, description="A candidate whose gain on the screen has a one-sided p above this is not measured any further."
    )


class Behaviour(Contract):
    """Limits on the form of the replies to Behaviour suites, and on how a gain may come about. Excesses are over the anchor's share."""

    length_ratio_percent: LengthRatio = Field(description="Mean reply length of the candidate, percent of the incumbent's.")
    max_gain_by_length_percent: int = Field(
        ge=0, le=1_000, description="Largest share of the Primary gain that longer or shorter replies may explain; 1000 for no limit."
    )
    max_repetition_basis_points: BasisPoints = Field(description="Largest excess of repeated four-grams in a reply; 10000 for no limit.")
    max_truncation_basis_points: BasisPoints = Field(description="Largest excess of replies cut off at maxTokens; 10000 for no limit.")
    min_diversity_percent: int = Field(ge=0, le=100, description="Least share of distinct replies, percent of the anchor's; 0: no limit.")
    max_kl_millinats_per_token: int = Field(
        ge=0, le=1_000_000, description="Largest KL divergence from the incumbent on the candidate's replies; 1000000 for no limit."
    )
    max_anchor_kl_millinats_per_token: int = Field(
        ge=0, le=1_000_000, description="Largest KL divergence from the anchor on the candidate's replies; 1000000 for no limit."
    )
    max_format_shift_basis_points: BasisPoints = Field(
        description="Largest change in the share of replies with markup, either way; 10000 for no limit."
    )
    max_judge_text_basis_points: BasisPoints = Field(
        description="Largest excess of replies that address a judge or hide characters; 10000 for no limit."
    )
    max_avoidance_basis_points: BasisPoints = Field(
        description="Largest excess of replies that refuse, are empty or only ask back; 10000 for no limit."
    )
    max_excess_negative_flip_basis_points: BasisPoints = Field(
        description="Churn: largest share of answers that the incumbent has right and the candidate not, beyond its own noise."
    )


class Sentinels(Contract):
    """Probes of the gate itself: a candidate that is the incumbent, which must not pass, and a known-bad one, which must be rejected."""

    every_candidates: int = Field(
        ge=0, le=10_000, description="Tests after which one sentinel of each kind runs; they also follow each new policy. 0 for none."
    )


class EvidenceRules(Contract):
    """What evidence must look like to be judged at all."""

    max_missing_basis_points: BasisPoints = Field(
        description="Largest share of missing answers in any suite and arm; above it nothing is judged by that suite."
    )
    min_clusters: int = Field(ge=2, le=100_000, description="Fewest independent clusters in any Primary or Guard suite.")


_FRESH = "has(suite.items.count) ? suite.items.count : has(suite.items.traffic) ? suite.items.traffic.min : 0"
TOO_FEW = "items of a generated or traffic suite must be at least evidence.minClusters, or no test could ever pass"
SCREEN_IS_OURS = f"a suite must not be named {SCREEN}: evidence calls the Primary suite's screen so"
NO_FIXED_SCREEN = "futility.items must be 0 for a Primary suite of fixed items: a screen needs items of its own"
PRIMARY_APART = "no other suite may have the Primary suite's items: its public reasons would tell what is sealed"
SCREEN_TOO_SMALL = "futility.items must be 0 or at least 2: one item shows no variance"


class GatePolicySpec(Contract):
    """Every threshold of the gate; all are required, `none` is written out as a number."""

    model_config = ConfigDict(
        json_schema_extra=api_rules(
            ("self.suites.exists_one(suite, suite.role == 'Primary')", "exactly one suite must be Primary"),
            (
                f"self.suites.all(suite, has(suite.items.uri) || ({_FRESH}) >= self.evidence.minClusters)",
                TOO_FEW,
            ),
            (
                f"self.suites.map(suite, ({_FRESH}) * suite.decodes).sum() <= {GENERATED_REPLIES}",
                _TOO_MANY,
            ),
            (f"!self.suites.exists(suite, suite.name == '{SCREEN}')", SCREEN_IS_OURS),
            (
                "self.suites.all(primary, primary.role != 'Primary' || !has(primary.items.digest) || self.suites.all(other, "
                "other.role == 'Primary' || !has(other.items.digest) || other.items.digest != primary.items.digest))",
                PRIMARY_APART,
            ),
            ("self.futility.items == 0 || !self.suites.exists(suite, suite.role == 'Primary' && has(suite.items.uri))", NO_FIXED_SCREEN),
            ("self.futility.items != 1", SCREEN_TOO_SMALL),
        )
    )

    suites: Annotated[
        tuple[Suite, ...],
        Field(min_length=1, max_length=16, description="The suites; exactly one is Primary.", json_schema_extra=api_list_map("name")),
    ]
    round: RoundBudget = Field(description="The error budget of one sealed item set.")
    futility: Futility = Field(description="The screen that ends hopeless candidates early.")
    guard_alpha_basis_points: int = Field(
        ge=1, le=5_000, description="Each truly worse candidate passes a guard, anchor or floor with at most this."
    )
    behaviour: Behaviour = Field(description="Limits on the form of the replies, measured on the Behaviour suites.")
    sentinels: Sentinels = Field(description="How often the gate itself is probed.")
    evidence: EvidenceRules = Field(description="What evidence must look like to be judged at all.")

    @model_validator(mode="after")
    def _suites(self) -> Self:
        if sum(suite.role == "Primary" for suite in self.suites) != 1:
            raise ValueError("exactly one suite must be Primary")
        if any(suite.items.fresh is not None and suite.items.fresh < self.evidence.min_clusters for suite in self.suites):
            raise ValueError(TOO_FEW)
        if sum((suite.items.fresh or 0) * suite.decodes for suite in self.suites) > GENERATED_REPLIES:
            raise ValueError(_TOO_MANY)
        if len({suite.name for suite in self.suites}) != len(self.suites):
            raise ValueError("suite names must differ")
        if any(suite.name == SCREEN for suite in self.suites):
            raise ValueError(SCREEN_IS_OURS)
        if self.primary.items.digest is not None and any(
            suite.items.digest == self.primary.items.digest for suite in self.suites if suite.role != "Primary"
        ):
            raise ValueError(PRIMARY_APART)
        if self.futility.items and self.primary.items.uri is not None:
            raise ValueError(NO_FIXED_SCREEN)
        if self.futility.items == 1:
            raise ValueError(SCREEN_TOO_SMALL)
        return self

    @property
    def primary(self) -> Suite:
        """The one Primary suite."""
        return next(suite for suite in self.suites if suite.role == "Primary")

    @property
    def screen(self) -> Suite | None:
        """The Primary suite as it is asked on the screen's items; None when there is no screen."""
        items = self.primary.items
        if not self.futility.items:
            return None
        number = {"traffic": TrafficItems(min=self.futility.items)} if items.traffic is not None else {"count": self.futility.items}
        return self.primary.model_copy(update={"name": SCREEN, "items": items.model_copy(update=number)})

    @property
    def asked(self) -> tuple[Suite, ...]:
        """Everything that a test asks: the screen first, if there is one, then the suites in their order."""
        return self.suites if self.screen is None else (self.screen, *self.suites)

    def with_role(self, role: Role) -> tuple[Suite, ...]:
        """The suites of a role, in the policy's order."""
        return tuple(suite for suite in self.suites if suite.role == role)

    def suite(self, name: str) -> Suite:
        """A suite by name; raises KeyError."""
        return {suite.name: suite for suite in self.suites}[name]
