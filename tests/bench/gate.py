"""What the gate's promises come to, measured with its own functions: `python tests/bench/gate.py [--quick] [--out FILE]`.

The last line of stdout is one JSON object. Simulations are seeded: the same code gives the same figures, only times vary. Exits 1 when a
figure is beyond its bound. `--quick` measures less of each (under a minute) and starts no engine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.false_accepts import false_accept_figures, power_figures
from bench.hillclimb import adaptive_figures
from bench.ratchet import fixed_guard_figures, ratchet_figures
from bench.verdict_time import verdict_figures

Figures = dict[str, Any]
Measure = Callable[[], Figures]

BOUNDS: dict[str, tuple[str, float]] = {
    "round_false_accept": ("<=", 0.083),
    "round_false_accept_of_other_models": ("<=", 0.083),
    "naive_false_accept": (">=", 0.5),
    "power_at_mde": (">=", 0.75),
    "ratchet_loss_bp.with_anchor": ("<=", 300),
    "ratchet_loss_bp.without_anchor": (">=", 500),
    "adaptive_gain_bp": ("<=", 100),
    "adaptive_gain_seeing_scores_bp": (">=", 500),
    "verdict_ms": ("<=", 1500),
    "eval_cost_ratio": ("<=", 0.5),
}
"""What each figure must keep to; contrasts must show what they are there to show. 0.083: 400 rounds at alpha 0.05, three deviations up."""


def _evaluation_figures(times: int) -> Figures:
    """Imported where it is asked for: what asks no engine needs neither torch nor vLLM."""
    from bench.evaluation_cost import evaluation_figures

    return evaluation_figures(times)


QUICK: tuple[Measure, ...] = (
    lambda: false_accept_figures(400, 100),
    lambda: power_figures(100),
    lambda: ratchet_figures(1),
    lambda: adaptive_figures(1, 1),
    lambda: verdict_figures(3),
)
FULL: tuple[Measure, ...] = (
    lambda: false_accept_figures(400, 400),
    lambda: power_figures(400),
    lambda: ratchet_figures(3),
    lambda: fixed_guard_figures(3),
    lambda: adaptive_figures(20, 4),
    lambda: verdict_figures(11),
    lambda: _evaluation_figures(2),
)


def value(figures: Figures, name: str) -> float | None:
    """A figure by its dotted name; None when it was not measured."""
    found: Any = figures
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return None if found is None else float(found)


def beyond(figures: Figures) -> Iterator[str]:
    """A sentence for every figure that does not keep to its bound."""
    for name, (sign, bound) in BOUNDS.items():
        measured = value(figures, name)
        if measured is not None and not (measured <= bound if sign == "<=" else measured >= bound):
            yield f"{name} is {measured}, but must be {sign} {bound}"


def measured(measures: tuple[Measure, ...]) -> Figures:
    """All figures, one group after the other; a line on stderr for each."""
    figures: Figures = {}
    for measure in measures:
        began = time.monotonic()
        found = measure()
        print(f"{time.monotonic() - began:6.1f} s  {json.dumps(found)}", file=sys.stderr, flush=True)
        figures |= found
    return figures


def main() -> int:
    """Measure, print, and compare with the bounds."""
    parser = argparse.ArgumentParser(prog="tests/bench/gate.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer draws, no engine")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    figures = {"mode": "quick" if arguments.quick else "full"} | measured(QUICK if arguments.quick else FULL)
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    problems = list(beyond(figures))
    print(*problems, sep="\n", file=sys.stderr)
    print(json.dumps(figures))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
