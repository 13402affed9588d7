"""Adapters made elsewhere: written by PEFT as people do, accepted or refused with field and remedy."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gatevalve.contracts.errors import ContractError, IntegrityError
from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.jobs import AdapterResult, FetchInput, Termination
from gatevalve.contracts.kinds import Artifact
from gatevalve.contracts.names import ADAPTER_CONFIG, ADAPTER_WEIGHTS, ENV_JOB, MANIFEST, work_dir
from gatevalve.contracts.reasons import CandidateState, ConditionReason
from gatevalve.decide.attempts import Ended, step_state
from gatevalve.decide.view import JobView
from gatevalve_trainer.fetch.main import run
from gatevalve_trainer.main import run_step
from support.bad_adapters import BAD_ADAPTERS, BadAdapter, peft_directory, spoilt
from support.training import CANDIDATE_UID, CHANNEL_UID, SHAPE, job, tiny_base

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return peft_directory(tmp_path_factory.mktemp("elsewhere") / "adapter")


@pytest.fixture
def artifact(elsewhere: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    copy = tmp_path / "artifact"
    copy.mkdir()
    for file in elsewhere.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def fetch(directory: Path, data: Path, **fields: Any) -> AdapterResult:
    named = Artifact(uri=directory.as_uri(), digest=directory_digest(directory))
    wanted = {"base": tiny_base(), "adapter": SHAPE, "artifact": named}
    return run(FetchInput(**job("fetch", data, **{**wanted, **fields})))


def written(data: Path) -> Path:
    return data / work_dir(CHANNEL_UID, CANDIDATE_UID) / "fetch-1"


def test_an_adapter_saved_by_peft_becomes_one_of_ours(artifact: Path, tmp_path: Path) -> None:
    result = fetch(artifact, tmp_path / "data")
    manifest = AdapterManifest.parse_json((written(tmp_path / "data") / MANIFEST).read_bytes())
    assert (manifest.digest, manifest.files_digest()) == (result.adapter_digest, result.adapter_digest)
    assert (manifest.rank, manifest.alpha, manifest.target_modules) == (4, 8, ("q_proj", "v_proj"))
    assert (manifest.artifact_digest, manifest.base_digest) == (directory_digest(artifact), tiny_base().digest)
    ours, theirs = (load_file(directory / ADAPTER_WEIGHTS) for directory in (written(tmp_path / "data"), artifact))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())
    assert {path.name for path in written(tmp_path / "data").iterdir()} == {ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST}
    assert len(manifest.probes) == 8


def test_the_same_artifact_gives_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    fetch(artifact, tmp_path / "one")
    fetch(artifact, tmp_path / "two")
    one, two = ({path.name: path.read_bytes() for path in written(tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("bad", BAD_ADAPTERS.values(), ids=BAD_ADAPTERS)
def test_what_cannot_be_served_as_trained_ends_the_candidate_as_errored_with_field_and_remedy(
    artifact: Path, tmp_path: Path, bad: BadAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Artifact(uri=artifact.as_uri(), digest=spoilt(artifact, bad))
    job_input = FetchInput(**job("fetch", tmp_path / "data", base=tiny_base(), adapter=SHAPE, artifact=named))
    monkeypatch.setenv(ENV_JOB, job_input.model_dump_json(by_alias=True, exclude_none=True))
    end = what_follows(run_step("fetch"))
    assert (end.state, end.reason) == (CandidateState.ERRORED, ConditionReason.CONTRACT_BROKEN)
    assert re.search(bad.says, end.message)
    assert not (written(tmp_path / "data") / MANIFEST).exists()


def what_follows(ending: Termination) -> Ended:
    """What the operator makes of a Job that ended so."""
    now = datetime.now(UTC)
    view = JobView("c1-fetch-1", CANDIDATE_UID, "fetch", 1, now, True, False, ending.exit_code, termination=ending, finished_at=now)
    state = step_state((view,), now)
    assert isinstance(state, Ended)
    return state


def test_other_bytes_than_the_candidate_names_are_refused(artifact: Path, tmp_path: Path) -> None:
    named = Artifact(uri=artifact.as_uri(), digest=f"sha256:{'0' * 64}")
    with pytest.raises(IntegrityError, match=r"artifact\.digest: .*copy it again or correct the digest"):
        fetch(artifact, tmp_path / "data", artifact=named)


def test_an_artifact_that_is_not_there_is_refused(artifact: Path, tmp_path: Path) -> None:
    named = Artifact(uri=(tmp_path / "absent").as_uri(), digest=f"sha256:{'0' * 64}")
    with pytest.raises(ContractError, match=r"artifact\.uri: .* is not a directory"):
        fetch(artifact, tmp_path / "data", artifact=named)


def test_a_rank_that_the_engine_cannot_hold_is_refused(artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="rank 4 is above the engine's 2"):
        fetch(artifact, tmp_path / "data", max_rank=2)
