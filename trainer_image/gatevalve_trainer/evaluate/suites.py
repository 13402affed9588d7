"""The item sets of one test: the round's sealed ones, and fixed files read by digest."""

from __future__ import annotations

from pathlib import PurePosixPath

from gatevalve.contracts.canonical import sha256
from gatevalve.contracts.errors import ContractError, StoreError
from gatevalve.contracts.files import SuiteFact
from gatevalve.contracts.policy import FixedItems, GatePolicySpec, Suite
from gatevalve_trainer.evaluate.items import from_lines
from gatevalve_trainer.evaluate.rounds import Areas, Keys, LoadedSuite, RoundJob, open_round
from gatevalve_trainer.store import Area
from gatevalve_trainer.tasks.plugin import Task, load


def load_suites(job: RoundJob, areas: Areas, keys: Keys) -> tuple[LoadedSuite, ...]:
    """The screen, if there is one, and every suite of the policy in its order.

    Raises ContractError that names the suite whose items are not what they should be.
    """
    fresh = open_round(job, areas, keys)
    return tuple(
        _fixed_suite(suite, source, areas.data) if isinstance(source := suite.items.source(), FixedItems) else fresh[suite.name]
        for suite in job.policy.asked
    )


def verifiers(policy: GatePolicySpec) -> dict[str, Task | None]:
    """The task that scores each suite, the screen included; None where none does; raises ContractError for one that is not installed."""
    return {suite.name: load(suite.verifier) if suite.verifier else None for suite in policy.asked}


def _fixed_suite(suite: Suite, source: FixedItems, data: Area) -> LoadedSuite:
    raw = fixed_bytes(f"suite {suite.name}.items", source, data)
    items = from_lines(f"suite {suite.name}: {source.uri}", raw)
    return LoadedSuite(suite, SuiteFact(name=suite.name, path=source.uri, items=len(items), sha256=source.digest), items)


def fixed_bytes(field: str, source: FixedItems, data: Area) -> bytes:
    """The bytes of a file that a policy's `field` names; raises ContractError unless it lies in the data area and has its digest."""
    path = PurePosixPath(source.uri)
    if path.is_absolute() or ".." in path.parts:
        raise ContractError(f"{field}.uri", f"{source.uri} leaves the data area", "give a path below it, such as suites/x.jsonl")
    try:
        raw = data.read(source.uri)
    except StoreError as error:
        raise ContractError(f"{field}.uri", str(error), "copy the file into the data area") from error
    if (actual := sha256(raw)) != source.digest:
        problem = f"{source.uri} has digest {actual}, the policy names {source.digest}"
        raise ContractError(f"{field}.digest", problem, "restore the file, or apply a policy with its digest")
    return raw
