"""How long a rollout took: from the first preload to the commit, and from the commit to the last pod that answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gatevalve.contracts.kinds import Timings


@dataclass(slots=True)
class _Rollout:
    entry: str
    preload: float | None = None
    commit: float | None = None
    answers: dict[str, float] = field(default_factory=dict)


class RolloutTimes:
    """Moments of each channel's newest rollout, on the monotonic clock. A hint kept in memory: a restart in mid-rollout loses it."""

    def __init__(self) -> None:
        """Start empty."""
        self._rollouts: dict[str, _Rollout] = {}

    def preloading(self, channel: str, entry: str, at: float) -> None:
        """A pod was told to preload an entry's adapter."""
        rollout = self._of(channel, entry)
        rollout.preload = at if rollout.preload is None else rollout.preload

    def committed(self, channel: str, entry: str, at: float) -> None:
        """The commit write of an entry began."""
        rollout = self._of(channel, entry)
        rollout.commit = at if rollout.commit is None else rollout.commit

    def answered(self, channel: str, entry: str, pod_uid: str, at: float) -> None:
        """A pod answered the alias from an entry."""
        self._of(channel, entry).answers.setdefault(pod_uid, at)

    def timings(self, channel: str, entry: str, pod_uids: Iterable[str]) -> Timings | None:
        """Of an entry that was committed here, once these pods have all answered from it."""
        rollout = self._rollouts.get(channel)
        pods = list(pod_uids)
        if rollout is None or rollout.entry != entry or rollout.commit is None or not pods:
            return None
        answers = [rollout.answers.get(uid) for uid in pods]
        last = [at for at in answers if at is not None]
        if len(last) < len(pods):
            return None
        preload = _milliseconds(rollout.preload, rollout.commit) if rollout.preload is not None else None
        return Timings(preload_ms=preload, flip_ms=_milliseconds(rollout.commit, max(last)))

    def _of(self, channel: str, entry: str) -> _Rollout:
        known = self._rollouts.get(channel)
        if known is None or known.entry != entry:
            known = self._rollouts[channel] = _Rollout(entry)
        return known


def _milliseconds(start: float, end: float) -> int:
    return max(0, round((end - start) * 1000))
