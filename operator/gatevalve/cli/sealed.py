"""The sealed area at hand in a directory: evidence by the entry that names it, or by the directory that it lies in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gatevalve.cli.areas import sealed_root
from gatevalve.contracts.errors import ContractError, GatevalveError
from gatevalve.decide.audit import GivenVerdict, given_sentinels, given_verdicts
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.view import EvidenceView
from gatevalve.engine.audit import recorded
from gatevalve.io.store import Area, SealedEvidence


@dataclass(frozen=True, slots=True)
class Named:
    """Evidence with the name that a table shows it under."""

    name: str
    view: EvidenceView


def sealed_evidence(directory: Path | None) -> SealedEvidence:
    """The evidence below a sealed area's root. Raises ContractError when the directory is no such root."""
    return SealedEvidence(Area(str(sealed_root(directory))))


def lying(option: str, directory: Path) -> Named:
    """The evidence in one directory, report.json and pairs.jsonl.gz. Raises ContractError that names the option."""
    if not directory.is_dir():
        raise ContractError(option, f"{directory} is no directory", "give one that holds report.json and pairs.jsonl.gz")
    try:
        digest, found = SealedEvidence(Area(str(directory.resolve().parent))).lying(directory.resolve().name)
    except GatevalveError as error:
        raise ContractError(option, f"{directory} holds no evidence: {error}", "give a directory that an evaluation wrote") from error
    return Named(found.report.test_entry, EvidenceView(found.report.test_entry, digest, found.report, found.rows))


async def of_entry(log: LogState, directory: Path | None, entry: str) -> Named:
    """The evidence that the verdict on a Test entry rests on, or the end of a sentinel. Raises ContractError, StoreError."""
    found = next((given for given in (*given_verdicts(log), *given_sentinels(log)) if name_of(given.test) == entry), None)
    if found is None:
        raise ContractError("--from-evidence", f"no verdict rests on evidence of {entry}", "give a Test entry that was judged")
    return await _read(log, directory, found)


async def newest_same(log: LogState, directory: Path | None) -> Named:
    """The evidence of the newest sentinel that measured the incumbent against itself. Raises ContractError, StoreError."""
    same = [given for given in given_sentinels(log) if given.test.sentinel is not None and given.test.sentinel.kind == "Same"]
    if not same:
        problem = "its log holds no sentinel that measured the incumbent against itself"
        raise ContractError("channel", problem, "wait for one (policy: sentinels.everyCandidates), or give --evidence")
    return await _read(log, directory, same[-1])


async def _read(log: LogState, directory: Path | None, given: GivenVerdict) -> Named:
    view = await recorded(given, log, sealed_evidence(directory))
    if view.report is None:
        raise ContractError(
            "--sealed", f"the evidence of {name_of(given.test)}: {view.problem or 'it is gone'}", "restore it, or name other"
        )
    return Named(name_of(given.test), view)
