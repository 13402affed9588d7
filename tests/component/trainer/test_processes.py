"""Each way a Job may end, by a real process: exit code, termination message, and what is left in the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gatevalve.contracts.jobs import PublishInput, SnapshotInput, TrainInput
from gatevalve.contracts.names import adapter_dir, work_dir
from gatevalve_trainer.train.main import run
from support.training import (
    CANDIDATE_UID,
    CHANNEL_UID,
    SHAPE,
    Ended,
    Record,
    finished,
    job,
    log_lines,
    reply,
    run_trainer,
    snapshot_job,
    tiny_base,
    train_job,
    trainer_environment,
    with_replies,
    write_segment,
)
from support.words import SMALL_STEPS, TrainedOnce, cut

pytestmark = pytest.mark.component


def ending(ended: Ended) -> tuple[int, int, str]:
    """The process's own exit code, the one it wrote, and the reason."""
    return ended.code, ended.said.exit_code, ended.said.reason


def test_0_a_snapshot_is_cut_trained_and_published(tmp_path: Path, traffic: list[Record], trained: TrainedOnce) -> None:
    write_segment(tmp_path, traffic)
    cut_ended = run_trainer("snapshot", SnapshotInput, tmp_path, snapshot_job(tmp_path))
    assert ending(cut_ended) == (0, 0, "")
    assert cut_ended.said.snapshot is not None
    assert cut_ended.said.snapshot.snapshot_digest == trained.snapshot
    fields = train_job(tmp_path, trained.snapshot, parameters=SMALL_STEPS)
    train_ended = run_trainer("train", TrainInput, tmp_path, fields)
    assert ending(train_ended) == (0, 0, "")
    assert train_ended.said.adapter is not None
    assert train_ended.said.adapter.adapter_digest == trained.digest
    events = [event for event, _ in groupby(line["event"] for line in log_lines(train_ended.log))]  # a slow machine tells more steps
    assert events == ["read", "load", "replay", "step", "train", "write", "end"]
    wanted = {
        "base": tiny_base(),
        "adapter": SHAPE,
        "adapter_digest": trained.digest,
        "produced_by": "train-1",
        "arms": (tmp_path / "arms").as_uri(),
    }
    published = run_trainer("publish", PublishInput, tmp_path, job("publish", tmp_path, **wanted))
    assert ending(published) == (0, 0, "")
    assert (tmp_path / adapter_dir(CHANNEL_UID, trained.digest) / "MANIFEST.json").exists()
    assert (tmp_path / "arms" / trained.digest.removeprefix("sha256:") / "adapter_model.safetensors").exists()


def test_10_a_window_that_ends_before_it_starts(tmp_path: Path) -> None:
    ended = run_trainer("snapshot", SnapshotInput, tmp_path, snapshot_job(tmp_path, window_to="2026-05-04T11:00:00Z"))
    assert ending(ended) == (10, 10, "ContractError")
    assert ended.said.message.startswith("windowTo: 2026-05-04T11:00:00Z is not after ")


def test_11_traffic_without_scores(tmp_path: Path) -> None:
    write_segment(tmp_path, [reply(number) for number in range(40)])
    ended = run_trainer("snapshot", SnapshotInput, tmp_path, snapshot_job(tmp_path))
    assert ending(ended) == (11, 11, "NoSignal")
    assert ended.said.message.startswith("0 of ")


def at_the_edge_of_float32(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights that answer as the base does, and whose gradients no float32 can sum."""
    return {name: tensor * 1e25 if "lora_A" in name else torch.full_like(tensor, 1e-33) for name, tensor in tensors.items()}


def test_12_gradients_that_overflow(tmp_path: Path, traffic: list[Record], trained: TrainedOnce) -> None:
    digest = trained.publish_changed(tmp_path, at_the_edge_of_float32)
    snapshot = cut(tmp_path, with_replies(traffic, lambda _: {"adapter_digest": digest}), incumbent_digest=digest)
    ended = run_trainer("train", TrainInput, tmp_path, train_job(tmp_path, snapshot, parent_digest=digest))
    assert ending(ended) == (12, 12, "Diverged")
    assert "gradient norm inf" in ended.said.message
    assert not (tmp_path / work_dir(CHANNEL_UID, CANDIDATE_UID)).exists()


def test_13_log_probabilities_of_another_policy(tmp_path: Path, traffic: list[Record]) -> None:
    snapshot = cut(tmp_path, with_replies(traffic, lambda record: {"logprobs": [value - 0.1 for value in record.logprobs]}))
    ended = run_trainer("train", TrainInput, tmp_path, train_job(tmp_path, snapshot))
    assert ending(ended) == (13, 13, "ReplayMismatch")
    assert "differ by 0.1000 nats per token" in ended.said.message


WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import gatevalve_trainer.train.main
from gatevalve_trainer.main import main
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), resource.RLIM_INFINITY))
sys.exit(main(["train"]))
"""


def test_14_less_memory_than_the_token_budget_needs(tmp_path: Path, trained: TrainedOnce) -> None:
    fields = train_job(trained.data, trained.snapshot, parameters={"minibatch": "8192", "tokenBudget": "1048576"}, attempt="train-9")
    environment = trainer_environment(tmp_path, fields, TrainInput)
    process = subprocess.run([sys.executable, "-c", WITH_LITTLE_MEMORY], env=environment, capture_output=True, text=True, check=False)
    assert ending(finished(process, tmp_path)) == (14, 14, "OutOfMemory")


def test_15_a_segment_that_is_still_written(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [reply(0)], "pod-0-b1-0.jsonl.zst.open")
    os.utime(path, (time.time() + 3600,) * 2)
    ended = run_trainer("snapshot", SnapshotInput, tmp_path, snapshot_job(tmp_path))
    assert ending(ended) == (15, 15, "BackendUnavailable")


def test_143_a_run_told_to_stop_resumes_to_the_same_bytes(tmp_path: Path, traffic: list[Record]) -> None:
    snapshot, parameters = cut(tmp_path, traffic), {"minibatch": "12", "epochs": "1"}
    fields = train_job(tmp_path, snapshot, parameters=parameters)
    command, environment = [sys.executable, "-m", "gatevalve_trainer.main", "train"], trainer_environment(tmp_path, fields, TrainInput)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        read = [next(line for line in process.stderr if '"event": "step"' in line)]
        process.send_signal(signal.SIGTERM)
        read += list(process.stderr)
    stopped = finished(subprocess.CompletedProcess(command, process.returncode, "", "".join(read)), tmp_path)
    assert ending(stopped) == (143, 143, "Terminated")
    attempts = tmp_path / work_dir(CHANNEL_UID, CANDIDATE_UID)
    assert [path.name for path in (attempts / "train-1").iterdir()] == ["checkpoint.safetensors"]
    resumed = run_trainer("train", TrainInput, tmp_path, {**fields, "attempt": "train-2"})
    assert 0 < next(line["step"] for line in log_lines(resumed.log) if line["event"] == "resume") < 16
    assert resumed.said.adapter == run(TrainInput(**{**fields, "candidate_uid": "never-stopped"}))
    reports = [json.loads(path.read_bytes())["series"] for path in tmp_path.rglob("train_report.json")]
    assert reports[0] == reports[1]
