"""Supply: whether a round has the fresh items that its tests need, and what is said while it has not."""

from __future__ import annotations

from gatevalve.contracts.reasons import Action, Step
from gatevalve.decide.attempts import of_step, shortage
from gatevalve.decide.case import is_over
from gatevalve.decide.log import LogState
from gatevalve.decide.view import CandidateView, View

USED_UP = "the fixed Primary suite's budget is used up; name a policy with fresh items"
"""A fixed file pays for no test after its first Accept or its last test: what could be learnt of it may have been learnt."""


def used_up(log: LogState) -> str | None:
    """Why no test can be opened under the policy in force, whatever is drawn; None when one can."""
    policy, digest = log.policy, log.policy_digest
    if policy is None or digest is None:
        return None
    return USED_UP if log.next_test(policy, digest, log.incumbent_digest) is None else None


def shortage_of(view: View, log: LogState) -> str | None:
    """What the channel waits for; what a drawing found counts as long as a candidate waits for it."""
    if (text := used_up(log)) is not None:
        return text
    waiting = (candidate.meta.uid for candidate in view.candidates if _may_wait(log, candidate))
    return next((text for uid in waiting if (text := shortage(of_step(view.jobs, uid, Step.DRAW))) is not None), None)


def _may_wait(log: LogState, candidate: CandidateView) -> bool:
    over = candidate.meta.deleting or is_over(log, candidate)
    return not over and log.of_candidate(candidate.meta.uid, Action.TEST) is None
