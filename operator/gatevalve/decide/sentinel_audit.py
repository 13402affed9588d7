"""What the entries of a sentinel may say after the entries before them, and whether its end is what its evidence gives."""

from __future__ import annotations

from collections.abc import Iterator

from gatevalve.contracts.kinds import AdapterReleaseSpec
from gatevalve.contracts.names import evidence_dir
from gatevalve.contracts.reasons import EntryReason
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.sentinel_schedule import traffic_round
from gatevalve.decide.sentinel_verdict import VERDICTS, Probed
from gatevalve.gate.probing import sentinels_off


def sentinel_problems(before: LogState, entry: AdapterReleaseSpec) -> Iterator[str]:
    """What no decision could have written into an entry that begins or ends a sentinel."""
    if entry.sentinel is None or entry.gate is None:
        yield "it does not say which sentinel it is about, and under what"
        return
    if entry.candidate is not None or entry.lineage is not None:
        yield "it names a candidate or an adapter, which no sentinel has"
    yield from _begun(before, entry) if entry.reason is EntryReason.SENTINEL_OPENED else _ended(before, entry)


def sentinel_differs(entry: AdapterReleaseSpec, found: Probed) -> str | None:
    """Why the end of a sentinel is not what its evidence gives; None when it is."""
    if entry.reason is found.reason:
        return None
    return f"{name_of(entry)} says {entry.reason}, but its evidence gives {found.reason}"


def _begun(before: LogState, entry: AdapterReleaseSpec) -> Iterator[str]:
    sentinel, gate = entry.sentinel, entry.gate
    if sentinel is None or gate is None:
        return
    if before.frozen_by is not None:
        yield f"{name_of(before.frozen_by)} froze the channel, and nobody had lifted it"
    if before.policy is not None and (off := sentinels_off(before.policy)) is not None:
        yield f"it begins although {off}"
    if before.open_sentinel is not None:
        yield f"{name_of(before.open_sentinel)} began a sentinel that has not ended"
    numbers = [known.sentinel.number for known in before.sentinels if known.sentinel]
    if sentinel.number <= max(numbers, default=0) or (gate.round, gate.test) != (sentinel.number, 1):
        yield f"sentinel {sentinel.number} has a number that was used, or another round than its number"
    if sentinel.traffic_round != (spent := traffic_round(before)):
        yield f"it is asked the traffic of round {sentinel.traffic_round}, while round {spent} was the newest that had ended"
    if gate.policy_digest != before.policy_digest:
        yield f"it begins under policy {gate.policy_digest}, while {before.policy_digest} was in force"
    if (gate.incumbent_digest, gate.anchor_digest) != (before.incumbent_digest, before.anchor.digest):
        yield "it is measured against another incumbent or anchor than were in force"
    if entry.verdict is not None or gate.evidence is not None:
        yield "it has a verdict or evidence before anything was measured"


def _ended(before: LogState, entry: AdapterReleaseSpec) -> Iterator[str]:
    opened, gate = before.open_sentinel, entry.gate
    if opened is None or opened.sentinel != entry.sentinel or opened.gate is None or gate is None:
        yield "it ends a sentinel that had not begun"
        return
    if gate.model_copy(update={"evidence": None}) != opened.gate:
        yield f"it judges something else than {name_of(opened)} began"
    if entry.reason not in VERDICTS or entry.verdict is not VERDICTS[entry.reason]:
        yield f"verdict {entry.verdict} does not go with reason {entry.reason}"
    if gate.evidence is None and entry.reason is not EntryReason.SENTINEL_INCONCLUSIVE:
        yield "it judges without evidence"
    if gate.evidence is not None and gate.evidence.uri != evidence_dir(before.store_uid, name_of(opened)):
        yield f"its evidence lies in {gate.evidence.uri}, where no evidence of {name_of(opened)} belongs"
