"""The item sets of one test: sealed ones drawn once for the round, fixed ones read by digest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, IntegrityError, StoreError
from gatevalve.contracts.files import FileFact, Item, RoundManifest, SuiteFact
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.names import MANIFEST, round_dir
from gatevalve.contracts.policy import FixedItems, Generator, Suite
from gatevalve_trainer.evaluate.items import draw, from_lines, to_lines
from gatevalve_trainer.evaluate.marks import check_mark, mark_of
from gatevalve_trainer.evaluate.seeds import drawing_seed
from gatevalve_trainer.phases import log
from gatevalve_trainer.store import Area
from gatevalve_trainer.tasks.plugin import load

ROUND = "round"
"""What the mark of a round's manifest is for."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The two secrets of an evaluation: the sealed seed and the key of the split."""

    seal: bytes
    split: bytes


@dataclass(frozen=True, slots=True)
class LoadedSuite:
    """A suite with its items; `fact.path` is relative to the area that holds the file."""

    suite: Suite
    fact: SuiteFact
    items: tuple[Item, ...]


def load_suites(job: EvaluateInput, data: Area, sealed: Area, keys: Keys) -> tuple[LoadedSuite, ...]:
    """Every suite of the policy in its order; raises ContractError that names the suite whose items are not what they should be."""
    drawn = _round_suites(job, sealed, keys)
    sources = ((suite, suite.items.source()) for suite in job.policy.suites)
    return tuple(_fixed_suite(suite, source, data) if isinstance(source, FixedItems) else drawn[suite.name] for suite, source in sources)


def _fixed_suite(suite: Suite, source: FixedItems, data: Area) -> LoadedSuite:
    path = PurePosixPath(source.uri)
    if path.is_absolute() or ".." in path.parts:
        raise ContractError(
            f"suite {suite.name}.items.uri", f"{source.uri} leaves the data area", "give a path below it, such as suites/x.jsonl"
        )
    raw = _fixed_bytes(suite, source, data)
    items = from_lines(f"suite {suite.name}: {source.uri}", raw)
    return LoadedSuite(suite, SuiteFact(name=suite.name, path=source.uri, items=len(items), sha256=source.digest), items)


def _fixed_bytes(suite: Suite, source: FixedItems, data: Area) -> bytes:
    try:
        raw = data.read(source.uri)
    except StoreError as error:
        raise ContractError(f"suite {suite.name}.items.uri", str(error), "copy the file into the data area") from error
    if (actual := sha256(raw)) != source.digest:
        problem = f"{source.uri} has digest {actual}, the policy names {source.digest}"
        raise ContractError(f"suite {suite.name}.items.digest", problem, "restore the file, or apply a policy with its digest")
    return raw


def _round_suites(job: EvaluateInput, sealed: Area, keys: Keys) -> dict[str, LoadedSuite]:
    directory = round_dir(job.channel_uid, job.round)
    if not sealed.exists(f"{directory}/{MANIFEST}"):
        drawn = {suite.name: _drawn(job, suite, source, keys) for suite, source in _generated(job)}
        sealed.publish(directory, _round_files(job, drawn, keys.seal))
        log("round drawn", round=job.round, items={name: len(items) for name, items in drawn.items()})
    # Read back even what was just written: all tests of a round run on the same bytes or not at all.
    manifest = _manifest(job, sealed, directory, keys.seal)
    facts = {fact.name: fact for fact in manifest.suites}
    return {suite.name: _round_suite(suite, source, facts[suite.name], sealed, directory) for suite, source in _generated(job)}


def _generated(job: EvaluateInput) -> Iterator[tuple[Suite, Generator]]:
    sources = ((suite, suite.items.source()) for suite in job.policy.suites)
    return ((suite, source) for suite, source in sources if isinstance(source, Generator))


def _drawn(job: EvaluateInput, suite: Suite, source: Generator, keys: Keys) -> tuple[Item, ...]:
    rng = random.Random(drawing_seed(keys.seal, job.channel_uid, job.round, suite.name))
    return draw(load(source.generator), source.count, rng, keys.split)


def _round_files(job: EvaluateInput, drawn: dict[str, tuple[Item, ...]], seal: bytes) -> dict[str, bytes]:
    files = {_items_file(name): to_lines(items) for name, items in drawn.items()}
    facts = tuple(
        SuiteFact(name=name, path=_items_file(name), items=len(items), sha256=sha256(files[_items_file(name)]))
        for name, items in drawn.items()
    )
    manifest = RoundManifest(channel_uid=job.channel_uid, number=job.round, policy_digest=job.policy_digest, suites=facts)
    marked = manifest.model_copy(update={"mark": mark_of(seal, ROUND, manifest.canonical())})
    return {**files, MANIFEST: marked.canonical()}


def _items_file(suite: str) -> str:
    return f"items-{suite}.jsonl"


def _manifest(job: EvaluateInput, sealed: Area, directory: str, seal: bytes) -> RoundManifest:
    marked = RoundManifest.parse_json(sealed.read(f"{directory}/{MANIFEST}"))
    manifest = marked.model_copy(update={"mark": None})
    check_mark(seal, ROUND, manifest.canonical(), marked.mark, f"{directory}/{MANIFEST}")
    held = (manifest.channel_uid, manifest.number, manifest.policy_digest)
    wanted = (job.channel_uid, job.round, job.policy_digest)
    names = tuple(fact.name for fact in manifest.suites)
    if held != wanted or names != tuple(suite.name for suite, _ in _generated(job)):
        raise ContractError(
            f"round {job.round}", "was drawn for another channel or policy", "start a new round; a drawn one is never changed"
        )
    return manifest


def _round_suite(suite: Suite, source: Generator, fact: SuiteFact, sealed: Area, directory: str) -> LoadedSuite:
    path = f"{directory}/{fact.path}"
    raw = sealed.read_named(directory, FileFact(path=fact.path, size=0, sha256=fact.sha256))
    items = from_lines(f"suite {suite.name}: {path}", raw)
    if len(items) != fact.items or fact.items != source.count:
        raise IntegrityError(f"{path}: holds {len(items)} items, expected {source.count}; start a new round")
    return LoadedSuite(suite, fact.model_copy(update={"path": path}), items)
