"""One candidate in its channel: everything a step of its path is decided from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gatevalve.build.jobs import Owner
from gatevalve.contracts.kinds import (
    AdapterCandidateSpec,
    AdapterCandidateStatus,
    AdapterChannelSpec,
    AdapterReleaseSpec,
    Facts,
    Lineage,
    Recipe,
)
from gatevalve.contracts.reasons import TERMINAL_STATES, Action, EventReason, Step
from gatevalve.decide.attempts import StepState, of_step, step_state
from gatevalve.decide.conditions import instant, timestamp
from gatevalve.decide.durations import duration
from gatevalve.decide.log import LogState, name_of
from gatevalve.decide.plan import Event
from gatevalve.decide.view import CandidateView, View


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
        """The facts fixed at dequeue; an opened test holds them too, so a wiped status changes nothing."""
        if self.status.facts is not None:
            return self.status.facts
        test, gate = self.test, self.test.gate if self.test else None
        window = self.window
        return Facts(
            incumbent_entry=name_of(self.log.live.spec) if self.log.live else f"{self.view.name}-000000",
            incumbent_digest=gate.incumbent_digest if gate else self.log.incumbent_digest,
            policy=self.channel.gate_policy,
            policy_digest=(gate.policy_digest if gate else self.log.policy_digest) or "",
            started_at=test.decided_at if test else timestamp(self.view.now),
            window_from=precise(window[0]) if window else None,
            window_to=precise(window[1]) if window else None,
        )

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
    def stale(self) -> bool:
        """Another entry serves than the one it was started from."""
        if self.test is not None:
            return self.log.served_after(self.test)
        live, facts = self.log.live, self.status.facts
        return facts is not None and live is not None and facts.incumbent_entry != name_of(live.spec)

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


def is_over(log: LogState, candidate: CandidateView) -> bool:
    """The candidate has reached its end."""
    ended = log.of_candidate(candidate.meta.uid, Action.PROMOTE, Action.REJECT)
    return ended is not None or candidate.status.state in TERMINAL_STATES


def is_in_flight(log: LogState, candidate: CandidateView) -> bool:
    """The candidate has left the queue and has no verdict yet."""
    if has_verdict(log, candidate) or is_over(log, candidate):
        return False
    return candidate.status.facts is not None or log.of_candidate(candidate.meta.uid, Action.TEST) is not None
