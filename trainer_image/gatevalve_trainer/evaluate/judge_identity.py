"""A judge is never what it judges: neither the base, nor an arm, nor the evaluation engine, nor an alias that moves with releases."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import EvaluateInput
from gatevalve.contracts.policy import GatePolicySpec, Judge

ANOTHER = "name a model that is no relation of the channel's base"
SHOWN_MODELS = 10
PORTS = {"http": 80, "https": 443}


def check_judge(policy: GatePolicySpec, base_name: str) -> None:
    """Raises ContractError when a suite's judge is the base by name, or its url names no host; needs no endpoint."""
    for suite, judge in judges_in(policy):
        _check_name(suite, judge, [base_name])
        _place(suite, judge)


def check_judges_of(job: EvaluateInput) -> None:
    """`check_judge` with what only a test knows: raises ContractError when a judge is an arm by name, or the evaluation engine."""
    check_judge(job.policy, job.base.name)
    for suite, judge in judges_in(job.policy):
        _check_name(suite, judge, job.arms.values())
        if _place(suite, judge) == _address(urlsplit(job.engine_url)):
            raise ContractError(f"suite {suite}.judge.url", "is the evaluation engine, which serves what is judged", ANOTHER)


def check_served(suite: str, judge: Judge, cards: Iterable[Mapping[str, Any]], job: EvaluateInput) -> None:
    """Raises ContractError unless an endpoint's model cards hold the judge, and nothing that is judged."""
    cards = list(cards)
    judged = {job.base.name, job.base.uri.removeprefix("file://"), *job.arms.values()}
    for card in cards:
        if found := judged.intersection(str(card.get(key)) for key in ("id", "root", "parent")):
            raise ContractError(f"suite {suite}.judge.url", f"serves {min(found)}, which is judged", ANOTHER)
    served = sorted(str(card.get("id")) for card in cards)
    if judge.model not in served:
        known = ", ".join(served[:SHOWN_MODELS]) or "none"
        raise ContractError(f"suite {suite}.judge.model", f"{judge.url} does not serve {judge.model}", f"name one that it lists: {known}")


def judges_in(policy: GatePolicySpec) -> Iterator[tuple[str, Judge]]:
    """Name and judge of each suite that has one, in the policy's order."""
    return ((suite.name, suite.judge) for suite in policy.suites if suite.judge is not None)


def _check_name(suite: str, judge: Judge, judged: Iterable[str]) -> None:
    if judge.model in judged:
        raise ContractError(f"suite {suite}.judge.model", f"{judge.model} is what is judged", ANOTHER)


def _place(suite: str, judge: Judge) -> tuple[str, int]:
    """Host and port of a judge; raises ContractError when its url has none."""
    field, remedy = f"suite {suite}.judge.url", "give the endpoint's root, for example https://judge.example/v1"
    try:
        parts = urlsplit(judge.url)
        place = _address(parts)
    except ValueError as error:
        raise ContractError(field, f"cannot be read: {error}", remedy) from error
    if not place[0] or parts.query or parts.fragment or parts.username is not None:
        raise ContractError(field, "must name a host, and no user, query or fragment", remedy)
    return place


def _address(parts: SplitResult) -> tuple[str, int]:
    """Host and port; every name and address of the Pod itself is one host."""
    host = (parts.hostname or "").rstrip(".")
    return ("localhost" if _is_here(host) else host), parts.port or PORTS.get(parts.scheme, 0)


def _is_here(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)
