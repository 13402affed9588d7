"""What a training run is named must be there: trying again cannot help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.jobs import TrainInput
from gatevalve_trainer.store import Area
from gatevalve_trainer.train.inputs import read_parent, read_snapshot
from support.training import train_job

NOWHERE = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("read", "says"),
    [
        pytest.param(
            read_snapshot, r"^snapshotDigest: channel-uid/snapshots/0+/MANIFEST\.json: does not exist; .*cut a new one$", id="snapshot"
        ),
        pytest.param(read_parent, r"^parentDigest: channel-uid/adapters/0+/MANIFEST\.json: does not exist; .*roll back", id="parent"),
    ],
)
def test_what_is_named_and_absent_breaks_the_contract(tmp_path: Path, read: Callable[[Area, TrainInput], object], says: str) -> None:
    job = TrainInput(**train_job(tmp_path, NOWHERE, parent_digest=NOWHERE))
    with pytest.raises(ContractError, match=says):
        read(Area(job.data), job)
