"""Traffic, snapshots and Jobs for tests of the trainer: sampled from the tiny base, written as serving pods write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from gatevalve.contracts.files import FeedbackRecord, TrafficRecord
from gatevalve.contracts.hashing import directory_digest
from gatevalve.contracts.jobs import Termination
from gatevalve.contracts.kinds import AdapterShape, Base
from gatevalve.contracts.names import ENV_JOB, ENV_SPLIT_KEY, traffic_dir
from gatevalve_trainer.termination import ENV_TERMINATION_LOG

BASE_DIRECTORY = Path(__file__).resolve().parents[2] / "demo/base/tiny-words"
CHANNEL_UID, CANDIDATE_UID = "channel-uid", "candidate-uid"
SPLIT_KEY = bytes(range(32))
SHAPE = AdapterShape(rank=8, alpha=16, target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
WINDOW = {"window_from": "2026-05-04T12:00:00Z", "window_to": "2026-05-04T13:00:00Z"}

Record = TrafficRecord | FeedbackRecord


@cache
def tiny_base() -> Base:
    """The demo's base as a channel names it."""
    return Base(name="tiny-words", uri=BASE_DIRECTORY.as_uri(), digest=directory_digest(BASE_DIRECTORY))


def job(step: str, data: Path, **fields: Any) -> dict[str, Any]:
    """The fields of a Job's input in the data area at a path."""
    common = {"channel": "support", "channel_uid": CHANNEL_UID, "candidate": "c1", "candidate_uid": CANDIDATE_UID}
    return {**common, "attempt": f"{step}-1", "data": data.as_uri(), **fields}


def snapshot_job(data: Path, **fields: Any) -> dict[str, Any]:
    """A snapshot Job over the test window, on the base's own replies."""
    return job("snapshot", data, **{**WINDOW, "base_digest": tiny_base().digest, "close_wait_seconds": 1, **fields})


def train_job(data: Path, snapshot_digest: str, recipe: str = "SFT", **fields: Any) -> dict[str, Any]:
    """A training Job on a snapshot of the base's replies."""
    wanted = {"base": tiny_base(), "adapter": SHAPE, "recipe": recipe, "snapshot_digest": snapshot_digest}
    return job("train", data, **{**wanted, **fields})


def reply(number: int = 0, **changes: Any) -> TrafficRecord:
    """A served reply of the base to its own question, inside the window."""
    facts: dict[str, Any] = {
        "id": f"chatcmpl-{number:04d}",
        "choice": 0,
        "at": at(number),
        "channel": "support",
        "entry": "support-000000",
        "base_digest": tiny_base().digest,
        "route": "chat",
        "messages": [{"role": "user", "content": f"question {number}"}],
        "prompt_token_ids": [5, 6, 7, number % 500],
        "token_ids": [8, 9],
        "logprobs": [-0.5, -0.25],
        "text": "hi",
        "finish_reason": "stop",
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "exact": True,
    }
    return TrafficRecord(**{**facts, **changes})


def feedback(number: int = 0, score: float = 1.0, **changes: Any) -> FeedbackRecord:
    """A score for `reply(number)`, given inside the window."""
    return FeedbackRecord(**{"id": f"chatcmpl-{number:04d}", "at": at(number + 1), "score": score, **changes})


def at(seconds: float) -> str:
    """A moment of the window, in seconds after its start."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def write_segment(
    data: Path, records: Iterable[Record], name: str = "pod-0-b1-0.jsonl.zst", frames: int = 2, date: str = "2026-05-04"
) -> Path:
    """Write records as a segment of whole frames, as serving pods do."""
    lines = [record.model_dump_json(by_alias=True, exclude_none=True) for record in records]
    size = max(1, -(-len(lines) // frames))
    parts = [lines[start : start + size] for start in range(0, len(lines), size)]
    path = data / traffic_dir(CHANNEL_UID) / date / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(("\n".join(part) + "\n").encode()) for part in parts))
    return path


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trainer process ended."""

    code: int
    said: Termination
    log: str


def trainer_environment(data: Path, fields: dict[str, Any], contract: Callable[..., Any]) -> dict[str, str]:
    """The environment of a Job's container."""
    return {
        **os.environ,
        ENV_JOB: contract(**fields).model_dump_json(by_alias=True, exclude_none=True),
        ENV_SPLIT_KEY: SPLIT_KEY.hex(),
        ENV_TERMINATION_LOG: str(data / "termination.json"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def run_trainer(step: str, contract: Callable[..., Any], data: Path, fields: dict[str, Any]) -> Ended:
    """Run a step as its container does, in a process of its own."""
    command = [sys.executable, "-m", "gatevalve_trainer.main", step]
    return finished(
        subprocess.run(command, env=trainer_environment(data, fields, contract), capture_output=True, text=True, check=False), data
    )


def finished(process: subprocess.CompletedProcess[str], data: Path) -> Ended:
    """What a finished process said."""
    return Ended(process.returncode, Termination.parse_json((data / "termination.json").read_bytes()), process.stderr)


def log_lines(text: str) -> list[dict[str, Any]]:
    """The structured lines of a trainer's log."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def scored_traffic(
    prompts: Sequence[str], replies: Sequence[Any], prompt_ids: Sequence[list[int]], scores: Sequence[float]
) -> list[Record]:
    """Traffic and feedback records of sampled replies, in the order of the prompts."""
    records: list[Record] = []
    for number, (prompt, one, ids, score) in enumerate(zip(prompts, replies, prompt_ids, scores, strict=True)):
        records.append(
            reply(
                number,
                messages=[{"role": "user", "content": prompt}],
                prompt_token_ids=ids,
                token_ids=one.token_ids,
                logprobs=one.logprobs,
                text=one.text,
                finish_reason="stop" if one.finished else "length",
            )
        )
        records.append(feedback(number, score))
    return records


def with_replies(records: Iterable[Record], change: Callable[[TrafficRecord], dict[str, Any]]) -> list[Record]:
    """The same records with every reply changed."""
    return [record.model_copy(update=change(record)) if isinstance(record, TrafficRecord) else record for record in records]
