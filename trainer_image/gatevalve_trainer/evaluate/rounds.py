"""The sealed items of a round: drawn once by whoever comes first, the same bytes for everybody after."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import FileFact, Item, RoundManifest, SuiteFact
from gatevalve.contracts.jobs import DrawInput, EvaluateInput
from gatevalve.contracts.kinds import SentinelRef
from gatevalve.contracts.names import MANIFEST, round_dir, sentinel_dir
from gatevalve.contracts.policy import SCREEN, FixedItems, GatePolicySpec, Generator, Suite, TrafficItems
from gatevalve_trainer.evaluate.conversations import Conversations, Order, conversation_of, fresh_requests
from gatevalve_trainer.evaluate.items import Held, draw, from_lines, to_lines
from gatevalve_trainer.evaluate.marks import mark_of
from gatevalve_trainer.evaluate.round_manifest import ROUND, SENTINEL, marked_manifest, used_conversations
from gatevalve_trainer.evaluate.seeds import drawing_seed
from gatevalve_trainer.phases import log
from gatevalve_trainer.store import Area, expected
from gatevalve_trainer.tasks.plugin import load

RoundJob = DrawInput | EvaluateInput
"""A Job that names a round: its channel, number and policy."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The two secrets of an evaluation: the sealed seed and the key of the split."""

    seal: bytes
    split: bytes


@dataclass(frozen=True, slots=True)
class Areas:
    """Where items come from (data: fixed files and traffic) and where they are kept (sealed)."""

    data: Area
    sealed: Area

    @classmethod
    def of(cls, job: RoundJob) -> Areas:
        """The areas that a Job names."""
        return cls(Area(job.data), Area(job.sealed))


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite with its items; `fact.path` is relative to the area that holds the file."""

    suite: Suite
    fact: SuiteFact
    items: tuple[Item, ...]


def open_round(job: RoundJob, areas: Areas, keys: Keys) -> dict[str, LoadedSuite]:
    """The round's fresh suites by name, drawn when they are not there yet; raises ContractError when they are not this policy's.

    Needs no engine: the same round, policy, keys and earlier rounds give the same items wherever they are drawn.
    """
    directory = _directory(job)
    if not areas.sealed.exists(f"{directory}/{MANIFEST}"):
        drawn = _draw_all(job, areas, keys)
        areas.sealed.publish(directory, _round_files(job, drawn, keys.seal))
        log("round drawn", round=job.round, items={name: len(items) for name, items in drawn.items()})
    # Read back even what was just written: all tests of a round run on the same bytes or not at all.
    manifest = _manifest(job, areas.sealed, directory, keys.seal)
    facts = {fact.name: fact for fact in manifest.suites}
    return {suite.name: _round_suite(suite, facts[suite.name], areas.sealed, directory) for suite in fresh_suites(job.policy)}


def fresh_suites(policy: GatePolicySpec) -> tuple[Suite, ...]:
    """The suites whose items are new in each round: the screen first, then the policy's in its order."""
    return tuple(suite for suite in policy.asked if suite.items.fresh is not None)


def _draw_all(job: RoundJob, areas: Areas, keys: Keys) -> dict[str, tuple[Item, ...]]:
    """Items of every fresh suite in manifest order, none used before or in two suites; the screen is drawn last, around the others."""
    suites = fresh_suites(job.policy)
    drawn: dict[str, tuple[Item, ...]] = {}
    used = used_conversations(areas.sealed, job.channel_uid, keys.seal)
    fresh = cache(lambda: _conversations(job, areas, keys, used))  # traffic is read once, and only for a policy that takes any
    for suite in sorted(suites, key=lambda suite: suite.name == SCREEN):
        held = Held(frozenset(conversation_of(item) for items in drawn.values() for item in items), used)
        drawn[suite.name] = _items(job, suite, areas, keys, held, fresh)
    return {suite.name: drawn[suite.name] for suite in suites}


def _items(job: RoundJob, suite: Suite, areas: Areas, keys: Keys, held: Held, fresh: Callable[[], Conversations]) -> tuple[Item, ...]:
    source = suite.items.source()
    if not isinstance(source, TrafficItems):
        return _generated(job, suite, source, keys, held)
    if (sentinel := _sentinel(job)) is not None:
        return _asked_again(job, sentinel, suite, areas.sealed, keys.seal)
    return fresh().take(suite, source.min, held.taken)


def _asked_again(job: RoundJob, sentinel: SentinelRef, suite: Suite, sealed: Area, seal: bytes) -> tuple[Item, ...]:
    """What an ended round asked: a sentinel learns nothing from it, and takes no conversation that a candidate needs."""
    if sentinel.traffic_round is None:
        raise ContractError("sentinel.trafficRound", f"is missing, and suite {suite.name} takes traffic", "name a round that has ended")
    directory = round_dir(job.channel_uid, sentinel.traffic_round)
    with expected("sentinel.trafficRound", "name a round whose items are in the sealed area"):
        facts = {fact.name: fact for fact in marked_manifest(sealed, directory, seal).suites}
    if suite.name not in facts:
        raise ContractError("sentinel.trafficRound", f"{directory} has no suite {suite.name}", "name a round that asked the same suites")
    return _round_suite(suite, facts[suite.name], sealed, directory).items


def _conversations(job: RoundJob, areas: Areas, keys: Keys, used: Collection[str]) -> Conversations:
    requests = fresh_requests(areas.data, job.channel_uid, keys.split, used)
    return Conversations(requests, Order(keys.seal, job.channel_uid, job.round))


def _generated(job: RoundJob, suite: Suite, source: Generator | FixedItems, keys: Keys, held: Held) -> tuple[Item, ...]:
    if isinstance(source, FixedItems):
        raise ContractError(f"suite {suite.name}.items", "cannot be drawn", "give generator and count")
    named = suite.name if _purpose(job) == ROUND else f"{SENTINEL} {suite.name}"  # a name that no suite can have
    rng = random.Random(drawing_seed(keys.seal, job.channel_uid, job.round, named))
    return draw(load(source.generator), source.count, rng, keys.split, held)


def _round_files(job: RoundJob, drawn: Mapping[str, tuple[Item, ...]], seal: bytes) -> dict[str, bytes]:
    files = {_items_file(name): to_lines(items) for name, items in drawn.items()}
    facts = tuple(
        SuiteFact(name=name, path=_items_file(name), items=len(items), sha256=sha256(files[_items_file(name)]))
        for name, items in drawn.items()
    )
    manifest = RoundManifest(channel_uid=job.channel_uid, number=job.round, policy_digest=job.policy_digest, suites=facts)
    marked = manifest.model_copy(update={"mark": mark_of(seal, _purpose(job), manifest.canonical())})
    return {**files, MANIFEST: marked.canonical()}


def _purpose(job: RoundJob) -> str:
    """A sentinel has items of its own, which no round can have."""
    return SENTINEL if _sentinel(job) is not None else ROUND


def _sentinel(job: RoundJob) -> SentinelRef | None:
    return job.sentinel if isinstance(job, EvaluateInput) else None


def _directory(job: RoundJob) -> str:
    return (round_dir if _purpose(job) == ROUND else sentinel_dir)(job.channel_uid, job.round)


def _items_file(suite: str) -> str:
    return f"items-{suite}.jsonl"


def _manifest(job: RoundJob, sealed: Area, directory: str, seal: bytes) -> RoundManifest:
    manifest = marked_manifest(sealed, directory, seal, _purpose(job))
    held = (manifest.channel_uid, manifest.number, manifest.policy_digest)
    wanted = (job.channel_uid, job.round, job.policy_digest)
    names = tuple(fact.name for fact in manifest.suites)
    if held != wanted or names != tuple(suite.name for suite in fresh_suites(job.policy)):
        raise ContractError(
            f"round {job.round}", "was drawn for another channel or policy", "start a new round; a drawn one is never changed"
        )
    return manifest


def _round_suite(suite: Suite, fact: SuiteFact, sealed: Area, directory: str) -> LoadedSuite:
    path = f"{directory}/{fact.path}"
    raw = sealed.read_named(directory, FileFact(path=fact.path, size=0, sha256=fact.sha256))
    items = from_lines(f"suite {suite.name}: {path}", raw)
    if len(items) != fact.items or fact.items != suite.items.fresh:
        raise IntegrityError(f"{path}: holds {len(items)} items, expected {suite.items.fresh}; start a new round")
    return LoadedSuite(suite, fact.model_copy(update={"path": path}), items)
