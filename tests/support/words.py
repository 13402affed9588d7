"""The tiny base answering word problems: scored traffic for training, and accuracy on problems nobody trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from gatevalve.contracts.files import AdapterManifest
from gatevalve.contracts.jobs import PublishInput, SnapshotInput, TrainInput
from gatevalve.contracts.names import ADAPTER_WEIGHTS, ENV_SPLIT_KEY, MANIFEST, adapter_dir
from gatevalve_trainer.adapter.files import COVERED, adapter_digest, file_facts
from gatevalve_trainer.publish import run as publish
from gatevalve_trainer.snapshot.main import run as snapshot
from gatevalve_trainer.store import Area
from gatevalve_trainer.tasks import word_problems
from gatevalve_trainer.tasks.plugin import first_user_message
from gatevalve_trainer.train.main import run as train
from support.sampler import prompt_ids, sample
from support.training import (
    BASE_DIRECTORY,
    CHANNEL_UID,
    SHAPE,
    SPLIT_KEY,
    Record,
    job,
    scored_traffic,
    snapshot_job,
    tiny_base,
    train_job,
    with_replies,
    write_segment,
)

SMALL_STEPS = {"minibatch": "48"}
"""Twice the default's steps: a clear gain from few replies."""


def load_model() -> PreTrainedModel:
    """A fresh copy of the tiny base."""
    return AutoModelForCausalLM.from_pretrained(BASE_DIRECTORY, dtype=torch.float32)


@dataclass(frozen=True)
class Words:
    """The tiny base and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @classmethod
    def load(cls) -> Words:
        """Load both; torch keeps to one thread from here on."""
        torch.set_num_threads(1)
        return cls(load_model(), AutoTokenizer.from_pretrained(BASE_DIRECTORY))

    def traffic(self, count: int, served: TrainedOnce | None = None) -> list[Record]:
        """Replies of the base, or of a served adapter, to `count` problems, each with its verifier's score."""
        items = word_problems.stream(count, seed=1)
        prompts = [first_user_message(item) for item in items]
        model = self.model if served is None else PeftModel.from_pretrained(load_model(), str(served.published))
        replies = [each[0] for each in sample(model, self.tokenizer, prompts, 1.0, 48, seed=2)]
        scores = [word_problems.verify(item, reply.text) for item, reply in zip(items, replies, strict=True)]
        records = scored_traffic(prompts, replies, [prompt_ids(self.tokenizer, prompt) for prompt in prompts], scores)
        return records if served is None else with_replies(records, lambda _: {"adapter_digest": served.digest})

    def accuracy(self, adapter: Path | None = None, held_out: int = 240) -> float:
        """Share of right answers of base or adapter to held-out problems at temperature 1."""
        items = word_problems.held_out(held_out, seed=3)
        model = self.model if adapter is None else PeftModel.from_pretrained(load_model(), str(adapter))
        replies = sample(model, self.tokenizer, [first_user_message(item) for item in items], 1.0, 48, seed=4)
        return sum(word_problems.verify(item, each[0].text) for item, each in zip(items, replies, strict=True)) / held_out


def cut(data: Path, records: list[Record], **fields: str) -> str:
    """Cut a snapshot of records in a data area; returns its digest."""
    write_segment(data, records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENV_SPLIT_KEY, SPLIT_KEY.hex())
        return snapshot(SnapshotInput(**snapshot_job(data, **fields))).snapshot_digest


@dataclass(frozen=True)
class TrainedOnce:
    """A data area with one snapshot of the base's replies and the adapter trained on it, published."""

    data: Path
    snapshot: str
    digest: str

    @classmethod
    def make(cls, data: Path, traffic: list[Record]) -> TrainedOnce:
        """Cut, train and publish."""
        snapshot = cut(data, traffic)
        digest = train(TrainInput(**train_job(data, snapshot, parameters=SMALL_STEPS))).adapter_digest
        wanted = {"arms": (data.parent / "arms").as_uri(), "base": tiny_base(), "adapter": SHAPE, "adapter_digest": digest}
        publish(PublishInput(**job("publish", data, **wanted, produced_by="train-1")))
        return cls(data, snapshot, digest)

    def publish_changed(self, data: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> str:
        """Publish the adapter with changed tensors in another data area, past every check; returns its digest."""
        files = {name: (self.published / name).read_bytes() for name in COVERED}
        files[ADAPTER_WEIGHTS] = save(change(load_file(self.published / ADAPTER_WEIGHTS)))
        digest = adapter_digest(files)
        manifest = AdapterManifest.parse_json((self.published / MANIFEST).read_bytes())
        changed = manifest.model_copy(update={"digest": digest, "files": file_facts(files)})
        Area(data.as_uri()).publish(adapter_dir(CHANNEL_UID, digest), {**files, MANIFEST: changed.canonical()})
        return digest

    @property
    def published(self) -> Path:
        """Where the adapter lies."""
        return self.data / adapter_dir(CHANNEL_UID, self.digest)
