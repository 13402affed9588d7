"""A channel's whole life as it is left behind: a signed log, its external copies, and the evidence of every test."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from gatevalve.contracts.canonical import canonical_json, sha256
from gatevalve.contracts.files import EvidenceReport, FileFact
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.kinds import AdapterReleaseSpec, AdapterReleaseStatus
from gatevalve.contracts.names import CERTIFICATE_FILE, evidence_dir, log_file
from gatevalve.decide.view import EntryView
from gatevalve.engine.chain import copy_of
from gatevalve.io.ports import KubeObject
from gatevalve.io.signing import Signer
from support.engine_world import release_object, signer
from support.world import World


@dataclass
class AuditedWorld(World):
    """A world whose entries are signed and whose evaluations leave real evidence below `sealed`."""

    signer: Signer | None = None
    sealed: Path = field(default_factory=Path)

    def _append(self, draft: AdapterReleaseSpec, exported: bool) -> None:
        assert self.signer is not None
        if draft.sequence == len(self.log):
            entry = self.signer.seal(draft, self.log[-1].spec.digest if self.log else None)
            self.log.append(EntryView(entry, AdapterReleaseStatus(), exported))

    def _report(self, task: EvaluateInput) -> EvidenceReport:
        """The files lie there once; a report that is asked for again is the one that was written."""
        directory = self.sealed / evidence_dir(task.channel_uid, task.test_entry)
        if (directory / "report.json").exists():
            return EvidenceReport.parse_json((directory / "report.json").read_bytes())
        packed = gzip.compress(b"".join(canonical_json(row.wire()) + b"\n" for row in self._rows_for(task)), mtime=0)
        fact = FileFact(path="pairs.jsonl.gz", size=len(packed), sha256=sha256(packed))
        report = super()._report(task).model_copy(update={"pairs": fact})
        directory.mkdir(parents=True)
        (directory / "pairs.jsonl.gz").write_bytes(packed)
        (directory / "report.json").write_bytes(report.canonical())
        return report


@dataclass
class Life:
    """What a channel's life left behind below `root`: objects of the API server, `log/`, `sealed/`, and the key."""

    root: Path
    key: Signer
    things: list[KubeObject]

    def copied_to(self, root: Path) -> Life:
        """The same life in another directory, for a test that changes it."""
        shutil.copytree(self.root, root)
        return Life(root, self.key, deepcopy(self.things))

    @property
    def certificate(self) -> bytes:
        return (self.root / "signing-operator" / CERTIFICATE_FILE).read_bytes()

    @property
    def uid(self) -> str:
        found: str = self.things[0]["spec"]["channel"]["uid"]
        return found

    @property
    def specs(self) -> list[AdapterReleaseSpec]:
        return [AdapterReleaseSpec.parse(thing["spec"]) for thing in self.things]

    def copy(self, sequence: int) -> Path:
        return self.root / "log" / log_file(self.things[sequence]["spec"]["channel"]["uid"], sequence)

    def evidence(self, sequence: int) -> Path:
        """The directory of the evidence that a verdict entry rests on."""
        return self.root / "sealed" / str(self.things[sequence]["spec"]["gate"]["evidence"]["uri"])

    def resign(self, sequence: int, change: Callable[[AdapterReleaseSpec], AdapterReleaseSpec]) -> None:
        """What somebody with the key can do: another entry, and everything behind it signed anew, with its copies."""
        self.sign([change(spec) if spec.sequence == sequence else spec for spec in self.specs])

    def sign(self, specs: Sequence[AdapterReleaseSpec]) -> None:
        previous: str | None = None
        self.things = []
        for spec in specs:
            sealed = self.key.seal(spec.model_copy(update={"digest": None, "signature": None}), previous)
            previous = sealed.digest
            self.things.append(release_object(sealed))
        self.export()

    def export(self) -> None:
        for sequence, thing in enumerate(self.things):
            path = self.copy(sequence)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(copy_of(thing["spec"]))


ACTIONS = ["Open", "Test", "Accept", "Promote", "Test", "Reject", "Rollback", "Test", "Reject", "Test", "Reject", "Reject"]
"""What `lived` leaves: accepted and promoted, not better, a pin, unreadable evidence, a candidate deleted in its test, a diverged one."""

ACCEPTED, PROMOTED, NOT_BETTER, PINNED, UNREADABLE, DELETED, DIVERGED = 2, 3, 5, 6, 8, 10, 11


def lived(root: Path) -> Life:
    """A channel that has seen every kind of entry but an adoption."""
    world = AuditedWorld(signer=signer(root), sealed=root / "sealed")
    world.apply("good")
    world.run()
    world.gain = 0.0
    world.apply("no-better")
    world.run()
    world.edit(pin={"entry": "support-000000", "reason": "complaints", "by": "jo"})
    world.run()
    world.edit(pin=None)
    world.evidence_problem = "its bytes are not what the Job named"
    world.apply("unreadable")
    world.run()
    world.evidence_problem, world.names_evidence = None, True
    _deleted_in_its_test(world)
    world.script = lambda step, attempt: 12 if step == "train" else 0
    world.apply("diverging")
    world.run()
    life = Life(root, world.signer or signer(root), [release_object(view.spec) for view in world.log])
    life.export()
    return life


def _deleted_in_its_test(world: World) -> None:
    tests = len(world.log)
    uid = world.apply("deleted")
    while len(world.log) == tests:
        world.reconcile()
        world._tick()
    world.delete(uid)
    world.run()
