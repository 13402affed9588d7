"""Verdicts of the past: kept evidence gives the very bytes that were written down with it, in whatever process it is judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.golden_verdicts import CASES, GOLDEN, JUDGEMENT, judgement_bytes

TESTS = Path(__file__).parents[2]
ELSEWHERE = {"PYTHONHASHSEED": "77", "TZ": "Pacific/Chatham", "LC_ALL": "C", "PYTHONPATH": str(TESTS)}
JUDGE = "import sys; from pathlib import Path; from support.golden_verdicts import judgement_bytes as judged; "


@pytest.mark.parametrize("name", CASES)
def test_kept_evidence_is_judged_to_the_very_bytes_that_were_kept_with_it(name: str) -> None:
    assert judgement_bytes(GOLDEN / name) == (GOLDEN / name / JUDGEMENT).read_bytes()


def test_the_kept_verdicts_are_one_of_each_kind() -> None:
    kept = [(GOLDEN / name / JUDGEMENT).read_text() for name in CASES]
    assert [[f'"verdict":"{verdict}"' in text for text in kept] for verdict in ("Accepted", "Rejected", "Inconclusive")] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


def test_another_process_with_other_hashes_another_zone_and_another_locale_gives_the_same_bytes() -> None:
    say = f"{JUDGE}[sys.stdout.buffer.write(judged(Path(name))) for name in sys.argv[1:]]"
    command = [sys.executable, "-c", say, *(str(GOLDEN / name) for name in CASES)]
    done = subprocess.run(command, env=os.environ | ELSEWHERE, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"".join((GOLDEN / name / JUDGEMENT).read_bytes() for name in CASES)
