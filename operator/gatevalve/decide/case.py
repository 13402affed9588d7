"""One candidate in its channel: everything a step of its path is decided from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from gatevalve.build.jobs import Owner
from gatevalve.contracts.kinds import (
    AdapterCandidateSpec,
    AdapterCandidateStatus,
    AdapterChannelSpec,
    AdapterReleaseSpec,
    Facts,
    Lineage,
)
from gatevalve.contracts.reasons import Action, CandidateState, EventReason, Step, Verdict
from gatevalve.contracts.recipes import Recipe
from gatevalve.decide.attempts import StepState, of_step, step_state
from gatevalve.decide.conditions import instant, timestamp
from gatevalve.decide.durations import duration
from gatevalve.decide.log import LogState, name_of, served_digest
from gatevalve.decide.plan import Event
from gatevalve.decide.view import CandidateView, View
from gatevalve.gate.rounds import NextTest

ENDS_WITHOUT_ENTRY = frozenset({CandidateState.SKIPPED, CandidateState.ERRORED, CandidateState.ABORTED})
"""Ends that no entry tells of: a status is all there is of them. Whoever forges one has done no more than delete the candidate."""

CLOCK_SLACK = timedelta(minutes=5)
"""The API server's clock, which says when a candidate was created, may differ from ours by so much."""

INCUMBENT_CHANGED, POLICY_CHANGED = "the incumbent changed", "another policy came into force"


@dataclass(frozen=True, slots=True)
class Case:
    """One candidate in its channel; nothing here is remembered elsewhere."""

    view: View
    channel: AdapterChannelSpec
    channel_uid: str
    log: LogState
    candidate: CandidateView
    spec: AdapterCandidateSpec

    @property
    def uid(self) -> str:
        """The candidate's uid."""
        return self.candidate.meta.uid

    @property
    def status(self) -> AdapterCandidateStatus:
        """The candidate's status as last written."""
        return self.candidate.status

    @property
    def test(self) -> AdapterReleaseSpec | None:
        """The candidate's Test entry."""
        return self.log.of_candidate(self.uid, Action.TEST)

    @property
    def verdict(self) -> AdapterReleaseSpec | None:
        """The candidate's Accept or Reject entry."""
        return self.log.of_candidate(self.uid, Action.ACCEPT, Action.REJECT)

    @property
    def owner(self) -> Owner:
        """The owner of the candidate's Jobs."""
        return Owner(self.candidate.meta.name, self.uid, self.view.name)

    @property
    def recipe(self) -> Recipe | None:
        """The recipe it is trained with; None for an artifact."""
        return (self.spec.train.recipe or self.channel.training.recipe) if self.spec.train else None

    @property
    def facts(self) -> Facts:
        """The facts fixed at dequeue. Of a status, which anybody may have written, only what the log bears out is taken, and the start."""
        gate, window = self.test.gate if self.test else None, self.window
        return Facts(
            incumbent_entry=self._incumbent_entry,
            incumbent_digest=gate.incumbent_digest if gate else self._incumbent_digest,
            policy=self.channel.gate_policy,
            policy_digest=(gate.policy_digest if gate else self.log.policy_digest) or "",
            started_at=self._started_at,
            window_from=precise(window[0]) if window else None,
            window_to=precise(window[1]) if window else None,
        )

    @property
    def _incumbent_entry(self) -> str:
        if self.status.facts is not None:
            return self.status.facts.incumbent_entry
        return name_of(self.log.live.spec) if self.log.live else f"{self.view.name}-000000"

    @property
    def _incumbent_digest(self) -> str | None:
        entry = self.log.serving_entry(self._incumbent_entry)
        return served_digest(entry) if entry else self.log.incumbent_digest

    @property
    def _started_at(self) -> str:
        """Not before it was created and not in the future: a deadline cannot be put off."""
        now, created = self.view.now, self.candidate.meta.created_at or self.view.now
        if self.status.facts is None:
            return self.test.decided_at if self.test else timestamp(now)
        told = self.status.facts.started_at
        return told if created - CLOCK_SLACK <= instant(told) <= now + CLOCK_SLACK else timestamp(created)

    @property
    def window(self) -> tuple[datetime, datetime] | None:
        """The traffic it learns from; None for an artifact or a given snapshot."""
        train = self.spec.train
        if train is None or train.snapshot.digest is not None:
            return None
        if train.snapshot.last is not None:
            created = self.candidate.meta.created_at or self.view.now
            return created - duration(train.snapshot.last), created
        return instant(train.snapshot.from_ or ""), instant(train.snapshot.to or "")

    @property
    def seconds_left(self) -> float:
        """Until its deadline, counted from the moment it left the queue."""
        end = instant(self.facts.started_at) + duration(self.spec.deadline)
        return (end - self.view.now).total_seconds()

    @property
    def overtaken(self) -> str | None:
        """What made it stale: another entry serves than the one it was started from, or another policy than its test was paid under."""
        if self.test is not None:
            return self.overtaken_since(self.test)
        live, facts = self.log.live, self.status.facts
        return INCUMBENT_CHANGED if facts is not None and live is not None and facts.incumbent_entry != name_of(live.spec) else None

    def overtaken_since(self, entry: AdapterReleaseSpec) -> str | None:
        """What has changed since its Test or Accept: what was measured then says nothing of now."""
        if self.log.served_after(entry):
            return INCUMBENT_CHANGED
        return POLICY_CHANGED if self.log.policy_changed_after(entry) else None

    @property
    def due(self) -> NextTest | None:
        """The place of its test, were it opened now; None when the policy in force pays for no other."""
        policy, digest = self.log.policy, self.log.policy_digest
        return self.log.next_test(policy, digest, self.facts.incumbent_digest) if policy is not None and digest is not None else None

    @property
    def has_begun(self) -> bool:
        """A Job of it was started, or a test was paid for it."""
        return self.test is not None or any(job.candidate_uid == self.uid for job in self.view.jobs)

    def attempts(self, step: Step) -> StepState:
        """What the attempts of a step ask for."""
        return step_state(of_step(self.view.jobs, self.uid, step), self.view.now)

    def lineage(self, adapter_digest: str, snapshot_digest: str | None) -> Lineage:
        """Where its adapter came from."""
        artifact = self.spec.artifact
        return Lineage(
            parent_digest=self.facts.incumbent_digest if artifact is None else None,
            base_digest=self.channel.base.digest,
            adapter_digest=adapter_digest,
            snapshot_digest=snapshot_digest,
            artifact_digest=artifact.digest if artifact else None,
            trainer_image=self.channel.training.pod.image or self.view.settings.place.trainer_image,
            recipe=self.recipe,
        )

    def event(self, reason: EventReason, message: str, warning: bool = False) -> Event:
        """An Event on the candidate."""
        return Event("AdapterCandidate", self.candidate.meta.name, self.uid, reason, message, warning)


def precise(moment: datetime) -> str:
    """A UTC instant with its microseconds: the edges of a window. (strftime writes years before 1000 with fewer than four digits.)"""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def has_verdict(log: LogState, candidate: CandidateView) -> bool:
    """The log holds the candidate's Accept or Reject."""
    return log.of_candidate(candidate.meta.uid, Action.ACCEPT, Action.REJECT) is not None


def is_witnessed(log: LogState, candidate: CandidateView) -> bool:
    """The log holds the verdict or promotion that the candidate's state names; states that name none need no witness."""
    uid, state = candidate.meta.uid, candidate.status.state
    if state in (CandidateState.ACCEPTED, CandidateState.PROMOTED):
        return log.of_candidate(uid, Action.ACCEPT if state is CandidateState.ACCEPTED else Action.PROMOTE) is not None
    if state in (CandidateState.REJECTED, CandidateState.INCONCLUSIVE):
        entry = log.of_candidate(uid, Action.REJECT)
        return entry is not None and (entry.verdict is Verdict.REJECTED) == (state is CandidateState.REJECTED)
    return True


def is_over(log: LogState, candidate: CandidateView) -> bool:
    """The candidate has reached its end. The log tells, and the status only of ends before a test, of which there is no entry."""
    uid = candidate.meta.uid
    if log.of_candidate(uid, Action.PROMOTE, Action.REJECT) is not None:
        return True
    return candidate.status.state in ENDS_WITHOUT_ENTRY and log.of_candidate(uid, Action.TEST) is None


def is_in_flight(log: LogState, candidate: CandidateView) -> bool:
    """The candidate has left the queue and has no verdict yet."""
    if has_verdict(log, candidate) or is_over(log, candidate):
        return False
    return candidate.status.facts is not None or log.of_candidate(candidate.meta.uid, Action.TEST) is not None
