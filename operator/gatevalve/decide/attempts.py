"""Attempts: what follows from the exit codes of a step's Jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.jobs import Termination
from gatevalve.contracts.reasons import CandidateState, ConditionReason, Step
from gatevalve.decide.view import JobView

UNKNOWN_ATTEMPTS = 3
RESUMES = 10
BACKEND_ATTEMPTS = 10
MEMORY_ATTEMPTS = 2
BACKOFF_SECONDS = 10
BACKOFF_LIMIT_SECONDS = 300
MISSING_POD_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Start:
    """Start attempt `attempt`, with the token budget divided by `token_budget_divisor`; `after` tells how the one before failed."""

    attempt: int
    token_budget_divisor: int = 1
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """The attempt runs; `waiting` says why its Pod has not started."""

    job: JobView


@dataclass(frozen=True, slots=True)
class Pause:
    """Look again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The step is done."""

    job: JobView
    termination: Termination


@dataclass(frozen=True, slots=True)
class Ended:
    """The step ended for good without a result."""

    job: JobView
    state: CandidateState
    reason: ConditionReason
    message: str
    diverged: bool = False


StepState = Start | Running | Pause | Done | Ended


def of_step(jobs: Iterable[JobView], candidate_uid: str, step: Step) -> tuple[JobView, ...]:
    """The attempts of one step of a candidate, oldest first."""
    chosen = (job for job in jobs if job.candidate_uid == candidate_uid and job.step == step)
    return tuple(sorted(chosen, key=lambda job: job.attempt))


def step_state(attempts: tuple[JobView, ...], now: datetime) -> StepState:
    """What the attempts of a step so far ask for."""
    if not attempts:
        return Start(1)
    last = attempts[-1]
    if not last.finished:
        return Running(last)
    if last.succeeded and last.termination is not None:
        return Done(last, last.termination)
    if last.exit_code is None and not last.disrupted and not last.deadline_exceeded and _just_finished(last, now):
        return Pause(1)
    return _after_failure(attempts, last, now)


def shortage(attempts: tuple[JobView, ...]) -> str | None:
    """What the newest attempt that has ended says of too few fresh items; None when it says something else."""
    ended = [job for job in attempts if job.finished]
    return _message(ended[-1]) if ended and _is_supply(ended[-1]) else None


def _just_finished(job: JobView, now: datetime) -> bool:
    return job.finished_at is None or now - job.finished_at < timedelta(seconds=MISSING_POD_SECONDS)


def _after_failure(attempts: tuple[JobView, ...], last: JobView, now: datetime) -> StepState:
    text = _message(last)
    if last.exit_code is not None and (final := _FINAL.get(last.exit_code)) is not None:
        state, reason = final
        return Ended(last, state, reason, text, diverged=last.exit_code == ExitCode.DIVERGED)
    if last.deadline_exceeded:
        return Ended(last, CandidateState.ERRORED, ConditionReason.DEADLINE_EXCEEDED, f"{last.name} ran past its deadline")
    if _is_memory(last):
        return _retry(attempts, MEMORY_ATTEMPTS, _is_memory, text, divisor=2)
    if _is_backend(last):
        return _retry_later(attempts, BACKEND_ATTEMPTS, _is_backend, text, now)
    if _is_supply(last):
        return _again_later(Start(last.attempt + 1), last, last.attempt, now)
    if _is_interruption(last):
        return _retry(attempts, RESUMES, _is_interruption, text)
    return _retry_later(attempts, UNKNOWN_ATTEMPTS, _is_unknown, text, now)


_FINAL: dict[int, tuple[CandidateState, ConditionReason]] = {
    ExitCode.CONTRACT: (CandidateState.ERRORED, ConditionReason.CONTRACT_BROKEN),
    ExitCode.NO_SIGNAL: (CandidateState.SKIPPED, ConditionReason.NO_SIGNAL),
    ExitCode.DIVERGED: (CandidateState.REJECTED, ConditionReason.STEP_FAILED),
    ExitCode.REPLAY_MISMATCH: (CandidateState.ERRORED, ConditionReason.CAPTURE_BROKEN),
}


def _is_memory(job: JobView) -> bool:
    return job.out_of_memory or job.exit_code == ExitCode.OUT_OF_MEMORY


def _is_interruption(job: JobView) -> bool:
    return not _is_memory(job) and (job.disrupted or job.exit_code is None or job.exit_code == ExitCode.TERMINATED)


def _is_backend(job: JobView) -> bool:
    return job.exit_code == ExitCode.BACKEND_UNAVAILABLE


def _is_supply(job: JobView) -> bool:
    return job.exit_code == ExitCode.ITEM_SUPPLY


def _is_unknown(job: JobView) -> bool:
    known = job.exit_code in _FINAL or _is_backend(job) or _is_supply(job)
    return not (known or _is_memory(job) or _is_interruption(job) or job.deadline_exceeded)


def _retry(attempts: tuple[JobView, ...], limit: int, same: Callable[[JobView], bool], text: str, divisor: int = 1) -> StepState:
    last = attempts[-1]
    count = sum(1 for job in attempts if same(job))
    if count >= limit:
        return Ended(last, CandidateState.ERRORED, ConditionReason.STEP_FAILED, f"{text} ({count} attempts)")
    return Start(last.attempt + 1, divisor, text)


def _retry_later(attempts: tuple[JobView, ...], limit: int, same: Callable[[JobView], bool], text: str, now: datetime) -> StepState:
    """Another attempt, up to a limit, after a pause that doubles with each failure of the kind."""
    again = _retry(attempts, limit, same, text)
    return _again_later(again, attempts[-1], sum(1 for job in attempts if same(job)), now)


def _again_later(again: StepState, last: JobView, failures: int, now: datetime) -> StepState:
    """An end at once; another attempt after a pause that doubles with each failure."""
    wait = min(BACKOFF_SECONDS * 2 ** (failures - 1), BACKOFF_LIMIT_SECONDS)
    left = wait - (now - (last.finished_at or now)).total_seconds()
    return again if isinstance(again, Ended) or left <= 0 else Pause(left)


def _message(job: JobView) -> str:
    if job.termination is not None and job.termination.message:
        return job.termination.message
    if job.exit_code is None:
        return f"the Pod of {job.name} is gone"
    return f"{job.name} ended with exit code {job.exit_code}; see its log"
