"""Readiness: whether this pod may get traffic, and why not."""

from __future__ import annotations

from gatevalve.contracts.errors import ServingError
from gatevalve_serving.channel import Channel
from gatevalve_serving.pod import Pod


async def readiness(pod: Pod) -> tuple[bool, list[str]]:
    """Ready or not, with reasons.

    Until the pod was ready once, it waits for every channel it knows of. From then on a failed promotion leaves it ready on the old
    release; only the engine's health and a failed way back count, because then the pod answers from a release that was taken back.
    """
    reasons = [f"channel {channel.name}: {_why(channel)}" for channel in pod.channels.values() if channel.way_back_failed]
    if not pod.warm:
        reasons.append("the engine has not generated its first token")
    if not pod.was_ready:
        reasons += [f"channel {channel.name}: {_why(channel)}" for channel in pod.channels.values() if not channel.serves]
    if not await _healthy(pod):
        reasons.append("the engine does not answer its health check")
    if reasons:
        return False, reasons
    pod.was_ready = True
    return True, [] if pod.channels else ["no channel document has arrived: no alias is served"]


def _why(channel: Channel) -> str:
    problem = channel.problem
    return f"{problem.reason}: {problem.message}" if problem else "its first document is being applied"


async def _healthy(pod: Pod) -> bool:
    try:
        return await pod.bench.engine.healthy()
    except ServingError:
        return False
