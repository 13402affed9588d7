"""How long one verdict takes."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from gatevalve.contracts.reasons import Verdict
from gatevalve.gate.judge import judge
from support.gate_cases import case_of, drawn_rows, guard_rows, manners_rows, policy_of

ITEMS, DECODES = 2000, 4


def verdict_figures(times: int) -> dict[str, Any]:
    """The median time of a verdict on 2,000 items, 4 decodes and 3 arms, and a guard as large as the demo's; rows read already."""
    policy, rng = policy_of(items=ITEMS, decodes=DECODES), random.Random(4)
    rows = [*drawn_rows("target", [(0.6, 0.5)] * ITEMS, DECODES, rng), *guard_rows(3, 600), *manners_rows()]
    evidence, ledger = case_of(policy, rows)
    milliseconds = []
    for _ in range(times):
        began = time.perf_counter()
        verdict = judge(policy, evidence, ledger).verdict
        milliseconds.append(1000 * (time.perf_counter() - began))
        assert verdict is Verdict.ACCEPTED
    return {"verdict_ms": round(statistics.median(milliseconds))}
