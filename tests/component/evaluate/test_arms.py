"""From check to use: what the engine loads is what was verified, whatever happens to the data area after the check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gatevalve.build.jobs import Owner, evaluate_job
from gatevalve.contracts.jobs import EvaluateInput, PublishInput
from gatevalve.contracts.kinds import AdapterChannelSpec
from gatevalve.contracts.names import ARMS_PATH, DATA_PATH, adapter_dir, work_dir
from gatevalve_trainer.adapter.files import adapter_digest
from gatevalve_trainer.publish import run
from support import evaluation
from support.made_adapters import made_adapter
from support.training import CANDIDATE_UID, CHANNEL_UID, SHAPE, job, tiny_base
from support.world import PLACE, channel_spec

pytestmark = pytest.mark.component


def spec() -> AdapterChannelSpec:
    return channel_spec(base=tiny_base().wire(), adapter=SHAPE.wire())


def published(root: Path) -> tuple[PublishInput, EvaluateInput]:
    """An incumbent that serves, a candidate in work/, and their evaluation's first container, done."""
    data, attempt = root / "data", f"{work_dir(CHANNEL_UID, CANDIDATE_UID)}/train-1"
    incumbent = made_adapter(data / attempt, b"incumbent")
    run(publishing(root, incumbent, arms=(root / "earlier").as_uri()))
    candidate = made_adapter(data / attempt, b"candidate")
    told = publishing(root, candidate, incumbent_digest=incumbent, anchor_digest=incumbent)
    run(told)
    arms = {"candidate": "candidate-1", "incumbent": "incumbent-1", "anchor": "incumbent-1"}
    measured = {"candidate_digest": candidate, "incumbent_digest": incumbent, "anchor_digest": incumbent, "arms": arms}
    return told, evaluation.job(root, channel_uid=CHANNEL_UID, **measured)


def publishing(root: Path, digest: str, **fields: str) -> PublishInput:
    wanted = {"arms": (root / "arms").as_uri(), "base": tiny_base(), "adapter": SHAPE, "adapter_digest": digest, "produced_by": "train-1"}
    return PublishInput(**job("publish", root / "data", **{**wanted, **fields}))


def what_the_engine_loads(root: Path, told: PublishInput, measured: EvaluateInput) -> dict[str, str]:
    """Digest of the files under each of the engine's models, with the Pod's paths below `root`."""
    manifest = evaluate_job(PLACE, Owner("monday", CANDIDATE_UID, "support"), spec(), 1, told, measured, 60)
    args = manifest["spec"]["template"]["spec"]["initContainers"][1]["args"]
    modules = dict(argument.split("=") for argument in args[args.index("--lora-modules") + 1 :])
    places = {name: path.replace(ARMS_PATH, f"{root}/arms").replace(DATA_PATH, f"{root}/data") for name, path in modules.items()}
    return {name: adapter_digest({file.name: file.read_bytes() for file in Path(place).iterdir()}) for name, place in places.items()}


def overwritten(directory: Path) -> None:
    (directory / "adapter_model.safetensors").write_bytes(b"swapped")


def another_directory_in_its_place(directory: Path) -> None:
    directory.rename(directory.with_name("gone"))
    directory.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (directory / name).write_bytes(b"swapped")


def a_link_in_its_place(directory: Path) -> None:
    another_directory_in_its_place(directory)
    directory.rename(directory.with_name("planted"))
    directory.symlink_to("planted")


SWAPS: dict[str, Callable[[Path], None]] = {
    "overwritten": overwritten,
    "another directory in its place": another_directory_in_its_place,
    "a link in its place": a_link_in_its_place,
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
@pytest.mark.parametrize("arm", ["candidate_digest", "incumbent_digest"])
def test_bytes_swapped_in_the_data_area_after_the_check_are_not_measured(tmp_path: Path, arm: str, swap: Callable[[Path], None]) -> None:
    told, measured = published(tmp_path)
    swap(tmp_path / "data" / adapter_dir(CHANNEL_UID, getattr(measured, arm)))
    loaded = what_the_engine_loads(tmp_path, told, measured)
    assert loaded == {"candidate-1": measured.candidate_digest, "incumbent-1": measured.incumbent_digest}
