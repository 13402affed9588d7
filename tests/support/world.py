"""A small world around the pure decisions: objects, a log, Jobs that end as scripted, pods that obey documents.

It keeps the rules of the real parts that matter to a decision (names are compare-and-swap, pods refuse older revisions, a copy precedes
what follows) and nothing else; the real parts have their own tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from gatevalve.build.jobs import Place
from gatevalve.contracts.canonical import digest_of_json
from gatevalve.contracts.files import SCORE_ONE, EvidenceReport, FileFact, PairRow, SuiteFact
from gatevalve.contracts.jobs import AdapterResult, DrawInput, EvaluateInput, EvidenceResult, RoundResult, SnapshotResult, Termination
from gatevalve.contracts.kinds import (
    AdapterCandidateSpec,
    AdapterCandidateStatus,
    AdapterChannelSpec,
    AdapterChannelStatus,
    AdapterReleaseSpec,
    AdapterReleaseStatus,
    Approval,
)
from gatevalve.contracts.names import ENV_JOB, entry_name
from gatevalve.contracts.policy import GatePolicySpec
from gatevalve.contracts.serving import (
    AdapterReport,
    AdapterState,
    ChannelDocument,
    EngineLimits,
    PodReport,
    RefusedRequest,
    SignedDocument,
)
from gatevalve.decide.channel import decide
from gatevalve.decide.log import name_of
from gatevalve.decide.plan import (
    AnnotatePod,
    AppendEntry,
    CandidateStatusUpdate,
    ChannelStatusUpdate,
    CommitDocument,
    CopyEntry,
    CreateJob,
    DeleteJob,
    Plan,
    PushDocument,
    ReleaseStatusUpdate,
    RestoreKeys,
)
from gatevalve.decide.view import (
    CandidateView,
    ChannelView,
    EntryView,
    EvidenceView,
    JobView,
    LogView,
    ObjectMeta,
    PodView,
    PolicyView,
    PoolView,
    Settings,
    View,
)
from support.thresholds import THRESHOLDS

START = datetime(2026, 1, 1, tzinfo=UTC)
KEY_ID = "sha256:" + "c" * 64
BASE_DIGEST = "sha256:" + "b" * 64
ITEMS = 60
LIMITS = EngineLimits(max_loras=4, max_lora_rank=16, max_cpu_loras=8, runtime_lora=True)

PLACE = Place(
    namespace="team",
    trainer_image="gatevalve/trainer:test",
    serving_image="gatevalve/serving:test",
    data_claim="gatevalve-data",
    sealed_claim="gatevalve-sealed",
    models_claim=None,
    models_host_path="/models",
    run_as_user=1000,
)
SETTINGS = Settings(place=PLACE, operator_version="0.1.0", key_id=KEY_ID, started_at=START)


def digest(text: str) -> str:
    """A digest that stands for some content."""
    return digest_of_json(text)


def policy(max_tests: int = 10, min_effect: int = 50, margin: int = 2000) -> GatePolicySpec:
    """A small policy: one generated Primary, one fixed Guard."""
    return GatePolicySpec.parse(
        {
            "suites": [
                {
                    "name": "target",
                    "role": "Primary",
                    "items": {"generator": "word-problems", "count": ITEMS},
                    "verifier": "word-problems",
                    "sampling": {"temperature": "1.0", "maxTokens": 48},
                    "decodes": 2,
                    "minEffectBasisPoints": min_effect,
                    "minDetectableEffectBasisPoints": 1000,
                },
                {
                    "name": "regression",
                    "role": "Guard",
                    "items": {"uri": "suites/regression.jsonl", "digest": digest("regression")},
                    "verifier": "exact-match",
                    "sampling": {"temperature": "0", "maxTokens": 48},
                    "decodes": 1,
                    "marginBasisPoints": margin,
                    "floorBasisPoints": 5000,
                },
            ],
            "round": {"alphaBasisPoints": 500, "maxTests": max_tests},
            **THRESHOLDS,
        }
    )


def channel_spec(**changes: Any) -> AdapterChannelSpec:
    """A channel on pool `support`."""
    spec: dict[str, Any] = {
        "alias": "support",
        "base": {"name": "tiny-words", "uri": "file:///models/tiny-words", "digest": BASE_DIGEST},
        "adapter": {"rank": 8, "alpha": 16, "targetModules": ["q_proj"]},
        "serving": {"pool": "support", "rolloutSeconds": 60},
        "gatePolicy": "support-v1",
    }
    return AdapterChannelSpec.parse(spec | changes)


@dataclass
class SimPod:
    """A serving pod: takes newer documents, verifies adapters at the next tick, flips when the routed adapter is verified."""

    name: str
    fails: bool = False
    reason: str | None = None
    reachable: bool = True
    limits: EngineLimits = LIMITS
    document: ChannelDocument | None = None
    verified: set[str] = field(default_factory=set)
    answering: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    forged: set[str] = field(default_factory=set)
    foreign: tuple[str, ...] = ()
    refused: RefusedRequest | None = None

    def take(self, document: ChannelDocument) -> None:
        """PUT: older revisions are refused."""
        if self.reachable and (self.document is None or tuple(document.revision) > tuple(self.document.revision)):
            self.document = document

    def tick(self) -> None:
        """Load, verify, flip."""
        if self.document is None or not self.reachable:
            return
        if not self.fails:
            self.verified |= {adapter.digest for adapter in self.document.adapters}
        self.verified &= {adapter.digest for adapter in self.document.adapters}
        if self._flippable(self.document):
            self.answering = self.document.routes[0].entry

    def _flippable(self, document: ChannelDocument) -> bool:
        by_name = {adapter.name: adapter.digest for adapter in document.adapters}
        return all(route.adapter is None or by_name[route.adapter] in self.verified for route in document.routes)

    def view(self) -> PodView:
        """What gather would see."""
        return PodView(
            name=self.name,
            uid=f"uid-{self.name}",
            ip="127.0.0.1",
            running=True,
            ready=True,
            ready_since=START,
            annotations=dict(self.annotations),
            report=self._report() if self.reachable else None,
            error=None if self.reachable else "connection refused",
            answering_entry=self.answering if self.reachable else None,
        )

    def _report(self) -> PodReport:
        document = self.document
        return PodReport(
            pod=self.name,
            pod_uid=f"uid-{self.name}",
            boot="boot",
            channel="support",
            base_name="tiny-words",
            base_digest=BASE_DIGEST,
            key_id=KEY_ID,
            limits=self.limits,
            revision=document.revision if document else (),
            document_digest=document.digest_of() if document else None,
            committed=document is not None and self.answering == document.routes[0].entry,
            routes=document.routes if document else (),
            reason=self.reason,
            foreign_adapters=self.foreign,
            refused=self.refused,
            adapters=tuple(self._adapter(a.name, a.digest) for a in document.adapters) if document else (),
        )

    def _adapter(self, name: str, adapter: str) -> AdapterReport:
        if adapter in self.forged:
            return AdapterReport(name=name, digest=adapter, state=AdapterState.FAILED, reason="DigestMismatch", message="other bytes")
        if adapter in self.verified:
            return AdapterReport(name=name, digest=adapter, state=AdapterState.VERIFIED)
        if self.fails:
            return AdapterReport(name=name, digest=adapter, state=AdapterState.FAILED, reason="ProbeFailed", message="as scripted")
        return AdapterReport(name=name, digest=adapter, state=AdapterState.LOADING)


@dataclass
class SimJob:
    """A Job that ends as the world's script says."""

    manifest: dict[str, Any]
    started: datetime
    view: JobView


Exit = int
Script = Callable[[str, int], Exit]
"""(step, attempt) -> exit code."""


def always_done(step: str, attempt: int) -> int:
    """Every attempt succeeds."""
    return 0


class Killed(Exception):
    """The operator was killed after an action."""


@dataclass
class World:
    """Everything a reconcile of channel `support` sees and changes."""

    spec: AdapterChannelSpec = field(default_factory=channel_spec)
    policy: GatePolicySpec = field(default_factory=policy)
    now: datetime = START
    channel_uid: str = "channel-1"
    annotations: dict[str, str] = field(default_factory=dict)
    pods: list[SimPod] = field(default_factory=lambda: [SimPod("pod-a")])
    script: Script = always_done
    gain: float = 0.5
    gain_of_sentinels: float = 0.0
    adapter_of: Callable[[str], str] = lambda uid: digest(f"adapter of {uid}")
    log: list[EntryView] = field(default_factory=list)
    log_problem: str | None = None
    log_finding: str | None = None
    candidates: dict[str, CandidateView] = field(default_factory=dict)
    jobs: dict[str, SimJob] = field(default_factory=dict)
    committed: SignedDocument | None = None
    channel_status: AdapterChannelStatus = field(default_factory=AdapterChannelStatus)
    events: list[str] = field(default_factory=list)
    actions: int = 0
    kill_after: int | None = None
    store_down: bool = False
    policy_deleted: bool = False
    started_at: datetime = START
    alias_owner: str | None = None
    names_evidence: bool = True
    evidence_problem: str | None = None
    evidence_forged: bool = False
    document_problem: str | None = None
    keys_problem: str | None = None
    version: int = 1
    evidence_digest: str | None = None
    says: str | None = None

    # ---- what people do

    def apply(self, name: str, **spec: Any) -> str:
        """kubectl apply of a candidate; gives its uid."""
        body = {"channel": "support", "train": {"recipe": "SFT", "snapshot": {"last": "1h"}}} | spec
        body = {key: value for key, value in body.items() if value is not None}
        uid = f"uid-{name}"
        meta = ObjectMeta(name, uid, created_at=self.now)
        self.candidates[uid] = CandidateView(meta, "support", AdapterCandidateSpec.parse(body), AdapterCandidateStatus())
        return uid

    def delete(self, uid: str) -> None:
        """kubectl delete of a candidate: its Jobs go with it."""
        del self.candidates[uid]
        self.jobs = {name: job for name, job in self.jobs.items() if job.view.candidate_uid != uid}

    def edit(self, **changes: Any) -> None:
        """kubectl edit of the channel."""
        self.spec = AdapterChannelSpec.parse(self.spec.wire() | changes)

    def approve(self, uid: str, decision: str, evidence: str) -> None:
        """A person decides on an accepted candidate."""
        known = self.candidates[uid]
        approval = Approval.parse({"decision": decision, "by": "ann", "evidenceDigest": evidence})
        self.candidates[uid] = replace(known, spec=known.spec.model_copy(update={"approval": approval}) if known.spec else None)

    def forge(self, uid: str, **status: Any) -> None:
        """What somebody writes into a candidate's status by hand."""
        known = self.candidates[uid]
        self.candidates[uid] = replace(known, status=AdapterCandidateStatus.parse({**known.status.wire(), **status}))

    def replay(self, document: SignedDocument | None, problem: str | None = None) -> None:
        """What somebody writes into the pool's ConfigMap by hand; with a problem it does not verify."""
        self.committed, self.document_problem = document, problem
        self.version += 1

    # ---- the operator

    def view(self) -> View:
        """What gather would build."""
        return View(
            now=self.now,
            settings=replace(SETTINGS, started_at=self.started_at),
            name="support",
            channel=ChannelView(ObjectMeta("support", self.channel_uid, annotations=self.annotations), self.spec, self.channel_status),
            policy=None if self.policy_deleted else PolicyView("support-v1", self.policy, self.policy.digest_of()),
            log=LogView(tuple(self.log), self.log_problem, finding=self.log_finding),
            candidates=tuple(self.candidates.values()),
            jobs=tuple(job.view for job in self.jobs.values()),
            pool=PoolView(
                document=self.committed,
                document_problem=self.document_problem,
                resource_version=str(self.version),
                pods=tuple(pod.view() for pod in self.pods),
                alias_owner=self.alias_owner,
                keys_problem=self.keys_problem,
            ),
            evidence=self._evidence(),
        )

    def reconcile(self) -> bool:
        """One gather, decide, execute; True when something changed."""
        plan = decide(self.view())
        for action in plan.actions:
            self._act(action)
        for update in plan.statuses:
            self._write(update)
        self.events += [f"{event.reason}: {event.message}" for event in plan.events]
        return bool(plan.actions or plan.statuses)

    def run(self, ticks: int = 200) -> None:
        """Reconcile and let the world move until nothing changes; a killed operator is started again."""
        quiet = 0
        for _ in range(ticks):
            try:
                changed = self.reconcile()
            except Killed:
                changed = True
            moved = self._tick()
            quiet = 0 if changed or moved else quiet + 1
            self.now += timedelta(seconds=10 * quiet)
            if quiet == 3:
                return
        raise AssertionError(f"the world did not settle in {ticks} ticks; last plan: {decide(self.view())}")

    # ---- results

    def story(self) -> list[str]:
        """The log as `Action:Reason`."""
        return [f"{entry.spec.action}:{entry.spec.reason}" for entry in self.log]

    def state(self, uid: str) -> str:
        """A candidate's state."""
        return str(self.candidates[uid].status.state)

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of a channel condition."""
        found = next(c for c in self.channel_status.conditions if c.type == kind)
        return found.status, found.reason

    def tampering(self) -> str | None:
        """The reason of the newest tampering that the channel's status tells of."""
        return self.channel_status.tampering.reason if self.channel_status.tampering else None

    def told(self, reason: str) -> list[str]:
        """Events of a reason."""
        return [event for event in self.events if event.startswith(f"{reason}: ")]

    def answering(self) -> set[str | None]:
        """The entries that pods answer from."""
        return {pod.answering for pod in self.pods}

    # ---- execution

    def _act(self, action: Any) -> None:
        match action:
            case AppendEntry(entry=entry, copy_first=copied):
                self._append(entry, copied)
            case CopyEntry(sequence=sequence):
                self.log[sequence] = replace(self.log[sequence], exported=not self.store_down)
            case CreateJob(manifest=manifest):
                self._create_job(manifest)
            case DeleteJob(name=name):
                self.jobs.pop(name, None)
            case PushDocument(pod=name, document=document):
                next(pod for pod in self.pods if pod.name == name).take(document)
            case CommitDocument(document=document):
                self.replay(SignedDocument(document=document, signature="signed"))
            case RestoreKeys():
                self.keys_problem = None
            case AnnotatePod(pod=name, channel=channel, entry=entry):
                next(pod for pod in self.pods if pod.name == name).annotations[f"gatevalve.dev/{channel}"] = entry
        self.actions += 1
        if self.kill_after is not None and self.actions == self.kill_after:
            raise Killed

    def _append(self, draft: AdapterReleaseSpec, exported: bool) -> None:
        if draft.sequence != len(self.log):
            return
        assert self.log_problem is None, "nothing is appended to a broken log"
        assert self.log_finding is None or draft.action == "Rollback", "after a finding only a way back is appended"
        previous = self.log[-1].spec.digest if self.log else None
        chained = draft.model_copy(update={"previous_digest": previous})
        entry = chained.model_copy(update={"digest": digest_of_json(chained.wire()), "signature": "signed"})
        self.log.append(EntryView(entry, AdapterReleaseStatus(), exported and not self.store_down))

    def _create_job(self, manifest: dict[str, Any]) -> None:
        name, labels = manifest["metadata"]["name"], manifest["metadata"]["labels"]
        if name in self.jobs:
            return
        view = JobView(
            name=name,
            candidate_uid=labels["gatevalve.dev/candidate-uid"],
            step=labels["gatevalve.dev/step"],
            attempt=int(labels["gatevalve.dev/attempt"]),
            started_at=self.now,
            finished=False,
            succeeded=False,
            parent_digest=_parent(manifest),
        )
        self.jobs[name] = SimJob(manifest, self.now, view)

    def _write(self, update: Any) -> None:
        match update:
            case CandidateStatusUpdate(uid=uid, status=status):
                if uid in self.candidates:
                    self.candidates[uid] = replace(self.candidates[uid], status=status)
            case ReleaseStatusUpdate(name=name, status=status):
                index = next(i for i, entry in enumerate(self.log) if name_of(entry.spec) == name)
                self.log[index] = replace(self.log[index], status=status)
            case ChannelStatusUpdate(status=status):
                self.channel_status = status

    # ---- the world moves

    def _tick(self) -> bool:
        before = [(pod.answering, frozenset(pod.verified)) for pod in self.pods]
        self.now += timedelta(seconds=1)
        for pod in self.pods:
            pod.tick()
        running = [job for job in self.jobs.values() if not job.view.finished]
        for job in running:
            self._end(job)
        return bool(running) or before != [(pod.answering, frozenset(pod.verified)) for pod in self.pods]

    def _end(self, job: SimJob) -> None:
        code = self.script(job.view.step, job.view.attempt)
        termination = Termination(step=job.view.step, exit_code=code, message=self.says or f"exit {code}")
        if code == 0:
            termination = termination.model_copy(update=self._result(job.view))
        job.view = replace(job.view, finished=True, succeeded=code == 0, exit_code=code, termination=termination, finished_at=self.now)

    def _result(self, job: JobView) -> dict[str, Any]:
        if job.step == "draw":
            return {"round": RoundResult(round=self._draw_input(job.name).round, items=ITEMS)}
        if job.step == "snapshot":
            return {"snapshot": SnapshotResult(snapshot_digest=digest(job.candidate_uid), rows=640, rewarded=640)}
        if job.step in ("train", "fetch"):
            return {"adapter": AdapterResult(adapter_digest=self.adapter_of(job.candidate_uid), steps=12)}
        if not self.names_evidence:
            return {}
        report = self._report(self._job_input(job.name))
        return {"evidence": EvidenceResult(evidence_digest=report.digest_of(), pairs_digest=report.pairs.sha256)}

    def _draw_input(self, name: str) -> DrawInput:
        container = self.jobs[name].manifest["spec"]["template"]["spec"]["containers"][0]
        return DrawInput.parse_json(next(item["value"] for item in container["env"] if item["name"] == ENV_JOB))

    def _job_input(self, name: str) -> EvaluateInput:
        container = self.jobs[name].manifest["spec"]["template"]["spec"]["containers"][0]
        return EvaluateInput.parse_json(next(item["value"] for item in container["env"] if item["name"] == ENV_JOB))

    def _evidence(self) -> EvidenceView | None:
        for job in self.jobs.values():
            if job.view.succeeded and self._is_measured(job.view):
                task = self._job_input(job.view.name)
                report = self._report(task)
                if not any(name_of(e.spec) == task.test_entry for e in self.log):
                    continue
                named = self.evidence_digest or report.digest_of()
                view = EvidenceView(task.test_entry, named, report, self._rows_for(task), self.evidence_problem, self.evidence_forged)
                if not self._has_verdict(task):
                    return view
        return None

    def _is_measured(self, job: JobView) -> bool:
        return job.step == "sentinel" or (job.step == "evaluate" and job.candidate_uid in self.candidates)

    def _has_verdict(self, task: EvaluateInput) -> bool:
        told = [e.spec for e in self.log if e.spec.verdict]
        if task.sentinel is not None:
            return any(spec.sentinel == task.sentinel for spec in told)
        return any(spec.candidate is not None and spec.candidate.uid == task.candidate_uid for spec in told)

    def _gain(self, task: EvaluateInput) -> float:
        return self.gain if task.sentinel is None else self.gain_of_sentinels

    def _report(self, task: EvaluateInput) -> EvidenceReport:
        pairs = FileFact(path="pairs.jsonl.gz", size=1, sha256=digest(f"pairs with gain {self._gain(task)}"))
        return report_of(task, self.policy, pairs)

    def _rows(self) -> tuple[PairRow, ...]:
        return rows_of(self.policy, self.gain)

    def _rows_for(self, task: EvaluateInput) -> tuple[PairRow, ...]:
        return self._rows() if task.sentinel is None else rows_of(self.policy, self.gain_of_sentinels)


def report_of(task: EvaluateInput, rules: GatePolicySpec, pairs: FileFact) -> EvidenceReport:
    """What an evaluation reports of its task."""
    suites = tuple(
        SuiteFact(name=suite.name, path=f"items-{suite.name}.jsonl", items=ITEMS, sha256=suite.items.digest or digest(suite.name))
        for suite in rules.suites
    )
    return EvidenceReport(
        test_entry=task.test_entry,
        test_digest=task.test_digest,
        channel_uid=task.channel_uid,
        candidate_uid=task.candidate_uid,
        round=task.round,
        policy_digest=task.policy_digest,
        base_digest=task.base.digest,
        candidate_digest=task.candidate_digest,
        incumbent_digest=task.incumbent_digest,
        anchor_digest=task.anchor_digest,
        stage="Full",
        suites=suites,
        pairs=pairs,
        engine="sim",
        arms={"candidate": task.arms["candidate"], "incumbent": task.arms["incumbent"], "anchor": task.arms["anchor"]},
    )


@lru_cache
def rows_of(rules: GatePolicySpec, gain: float) -> tuple[PairRow, ...]:
    """Incumbent and anchor are right on every fifth item; the candidate gains on a share `gain` of all items."""
    rows = []
    for suite in rules.suites:
        for index in range(ITEMS):
            weak = suite.role == "Primary" and index % 5 != 0
            better = index % 10 < gain * 10
            old = (0 if weak else SCORE_ONE,) * suite.decodes
            new = (SCORE_ONE if not weak or better else 0,) * suite.decodes
            rows.append(_row(suite.name, index, suite.decodes, new, old))
    return tuple(rows)


def _row(suite: str, index: int, decodes: int, new: tuple[int, ...], old: tuple[int, ...]) -> PairRow:
    texts = (digest(f"{suite} {index}"),) * decodes
    return PairRow(
        suite=suite,
        item=f"item-{index:03d}",
        cluster=f"item-{index:03d}",
        scores={"candidate": new, "incumbent": old, "anchor": old},
        tokens={"candidate": (10,) * decodes, "incumbent": (10,) * decodes, "anchor": (10,) * decodes},
        finishes={"candidate": ("stop",) * decodes, "incumbent": ("stop",) * decodes, "anchor": ("stop",) * decodes},
        texts={"candidate": texts, "incumbent": texts, "anchor": texts},
        failures={"candidate": (None,) * decodes, "incumbent": (None,) * decodes, "anchor": (None,) * decodes},
    )


def _parent(manifest: dict[str, Any]) -> str:
    for item in manifest["spec"]["template"]["spec"]["containers"][0]["env"]:
        if item["name"] == ENV_JOB:
            job = json.loads(item["value"])
            return str(job.get("parentDigest") or job.get("incumbentDigest") or "")
    return ""


def entry(sequence: int) -> str:
    """The name of an entry of channel `support`."""
    return entry_name("support", sequence)


__all__ = ["ITEMS", "Plan", "SimPod", "World", "channel_spec", "digest", "entry", "policy"]
