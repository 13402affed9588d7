from pathlib import Path
from typing import Any

import pytest

from gatevalve.contracts.kinds import SentinelRef
from gatevalve_trainer.evaluate.anchor import is_shared
from support.evaluation import job

SHARED: dict[str, tuple[dict[str, Any], bool]] = {
    "an anchor that is nobody else's model": ({}, True),
    "an incumbent that is the anchor": ({"arms": {"candidate": "c", "incumbent": "tiny-words", "anchor": "tiny-words"}}, False),
    "a sentinel, which has items of its own": ({"sentinel": SentinelRef(kind="Same", number=1)}, False),
}


@pytest.mark.parametrize(("changes", "shared"), SHARED.values(), ids=SHARED)
def test_tests_of_a_round_share_the_answers_of(changes: dict[str, Any], shared: bool, tmp_path: Path) -> None:
    assert is_shared(job(tmp_path, **changes)) is shared
