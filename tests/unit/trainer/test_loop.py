"""The loop between whole states: batching does not matter, stopping and resuming does not show."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gatevalve_trainer.adapter.memory import out_of_memory_typed
from gatevalve_trainer.errors import Diverged, OutOfMemory, Terminated
from gatevalve_trainer.stopping import StopSignal
from gatevalve_trainer.store import Area
from gatevalve_trainer.train.checkpoint import CHECKPOINT, resume, save_checkpoint
from gatevalve_trainer.train.loop import Loop, Objective, Progress, optimizer_of
from gatevalve_trainer.train.parameters import Parameters, read_parameters
from gatevalve_trainer.train.rows import TrainRow, schedule

VOCABULARY, KEY = 11, "inputs"


class Bigram(nn.Module):
    """A language model of one matrix: the next token depends on the last."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3)))
        self.calls: list[int] = []
        self.on_call: Callable[[], None] = lambda: None

    def forward(self, input_ids: Tensor, use_cache: bool) -> SimpleNamespace:
        self.calls.append(input_ids.numel())
        self.on_call()
        return SimpleNamespace(logits=self.logits[input_ids])


def rows(count: int = 30) -> list[TrainRow]:
    draw = torch.Generator().manual_seed(4)
    made = []
    for _ in range(count):
        length = int(torch.randint(3, 9, (1,), generator=draw))
        tokens = torch.randint(0, VOCABULARY, (length,), generator=draw).tolist()
        advantage = float(torch.randn(1, generator=draw))
        made.append(TrainRow(tokens, [False] + [True] * (length - 1), [-2.0] * length, advantage))
    return made


def loop_of(model: Bigram, recipe: Any = "LoggedRL", given: list[TrainRow] | None = None, budget: int = 8192, **values: str) -> Loop:
    parameters: Parameters = read_parameters(recipe, {"minibatch": "10", "epochs": "2", "learningRate": "0.1", **values})
    training = rows() if given is None else given
    optimizer = optimizer_of([model.logits], parameters.learning_rate)
    steps = schedule(len(training), parameters.minibatch, parameters.epochs, KEY)
    objective = Objective(recipe, parameters, mean_reply_tokens=4.0)
    return Loop(model, [model.logits], optimizer, objective, training, steps, budget, torch.device("cpu"))


def run(loop: Loop, progress: Progress, stop: StopSignal | None = None, save: Callable[[], None] = lambda: None) -> Progress:
    loop.run(progress, stop or StopSignal(), save, lambda: False, lambda figures: None)
    return progress


@pytest.mark.parametrize("recipe", ["SFT", "LoggedRL"])
def test_how_rows_are_batched_does_not_change_the_result(recipe: Any) -> None:
    whole, parts = Bigram(), Bigram()
    one, other = run(loop_of(whole, recipe), Progress()), run(loop_of(parts, recipe, budget=20), Progress())
    assert len(parts.calls) > 2 * len(whole.calls)
    assert torch.allclose(whole.logits, parts.logits, atol=1e-6)
    assert [figures["loss"] for figures in one.series] == pytest.approx([figures["loss"] for figures in other.series], abs=1e-6)


def test_sft_makes_the_replies_likelier() -> None:
    series = run(loop_of(Bigram(), "SFT", epochs="5"), Progress()).series
    assert series[-1]["loss"] < series[0]["loss"] - 0.3


def test_a_steps_loss_is_divided_by_its_tokens_or_by_rows_of_mean_length() -> None:
    given = [TrainRow([1] * length, [False] + [True] * (length - 1), [0.0] * length, 1.0) for length in (3, 5)]
    assert loop_of(Bigram(), "SFT").objective.normaliser(given) == 2 + 4
    assert loop_of(Bigram(), "LoggedRL").objective.normaliser(given) == 2 * 4.0


def test_the_learning_rate_warms_up() -> None:
    model, rates = Bigram(), []
    loop = loop_of(model)
    loop.run(Progress(), StopSignal(), lambda: None, lambda: False, lambda _: rates.append(loop.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.1 / 3, 0.2 / 3, 0.1, 0.1, 0.1, 0.1])


def test_kl_weight_holds_the_policy_at_its_parent() -> None:
    free, held = (run(loop_of(Bigram(), klWeight=weight, epochs="5"), Progress()).series[-1]["klToParent"] for weight in ("0", "5"))
    assert held < free / 2


@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_before_the_step(advantage: float) -> None:
    model = Bigram()
    before = model.logits.detach().clone()
    odd = TrainRow([1, 2, 3], [False, True, True], [-2.0] * 3, advantage)
    with pytest.raises(Diverged, match=r"step 1: loss (nan|inf|-inf), gradient norm nan"):
        run(loop_of(model, given=[odd] * 10), Progress())
    assert torch.equal(model.logits, before)


def first_steps(loop: Loop, count: int) -> Loop:
    """The same loop with fewer steps."""
    return replace(loop, steps=loop.steps[:count])


def test_a_stop_within_a_step_leaves_the_state_after_the_last_whole_one() -> None:
    untouched, model, stop, saved, progress = Bigram(), Bigram(), StopSignal(), [], Progress()
    run(first_steps(loop_of(untouched, budget=20), 1), Progress())
    model.on_call = lambda: stop.request() if len(model.calls) == len(untouched.calls) + 1 else None
    with pytest.raises(Terminated, match=r"after step 1 of 6; the checkpoint is saved"):
        run(loop_of(model, budget=20), progress, stop, lambda: saved.append((progress.step, model.logits.detach().clone())))
    assert [(step, torch.equal(weights, untouched.logits)) for step, weights in saved] == [(1, True)]


def test_a_stopped_run_ends_as_one_that_was_never_stopped(tmp_path: Path) -> None:
    whole, first, second = Bigram(), Bigram(), Bigram()
    expected = run(loop_of(whole), Progress())
    area, stop = Area(tmp_path.as_uri()), StopSignal()
    first.on_call = lambda: stop.request() if len(first.calls) == 4 else None
    loop, progress = loop_of(first), Progress()
    with pytest.raises(Terminated):
        run(loop, progress, stop, lambda: save_checkpoint(area, "a", KEY, {"w": first.logits}, loop.optimizer, progress))
    again = loop_of(second)
    continued = run(again, resume(area, ["a"], KEY, {"w": second.logits}, again.optimizer))
    assert continued.series == expected.series
    assert torch.equal(second.logits, whole.logits)


def checkpoint(area: Area, directory: str, steps: int, key: str = KEY) -> Bigram:
    """A checkpoint after some steps."""
    model = Bigram()
    loop, progress = loop_of(model), Progress()
    run(first_steps(loop, steps), progress)
    save_checkpoint(area, directory, key, {"w": model.logits}, loop.optimizer, progress)
    return model


def resumed_at(area: Area, *directories: str) -> int:
    model = Bigram()
    return resume(area, directories, KEY, {"w": model.logits}, loop_of(model).optimizer).step


def test_the_furthest_checkpoint_is_continued(tmp_path: Path) -> None:
    area = Area(tmp_path.as_uri())
    checkpoint(area, "a", 2)
    checkpoint(area, "b", 4)
    checkpoint(area, "c", 3)
    assert resumed_at(area, "a", "b", "c", "absent") == 4


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def strange_header(path: Path) -> None:
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}")


@pytest.mark.parametrize("spoil", [cut_short, empty, strange_header])
def test_a_checkpoint_that_cannot_be_read_is_passed_over(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    area = Area(tmp_path.as_uri())
    checkpoint(area, "a", 2)
    checkpoint(area, "b", 4)
    spoil(tmp_path / "b" / CHECKPOINT)
    assert resumed_at(area, "a", "b") == 2


def test_a_checkpoint_of_other_inputs_is_passed_over(tmp_path: Path) -> None:
    area = Area(tmp_path.as_uri())
    checkpoint(area, "a", 4, key="other inputs")
    assert resumed_at(area, "a") == 0


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), OutOfMemory),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), OutOfMemory),
        (RuntimeError("shape mismatch"), RuntimeError),
    ],
)
def test_only_a_lack_of_memory_is_called_so(raised: Exception, becomes: type[Exception]) -> None:
    with pytest.raises(becomes) as caught, out_of_memory_typed():
        raise raised
    assert type(caught.value) is becomes
