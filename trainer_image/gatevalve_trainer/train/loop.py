"""The training loop: micro-batches into one gradient, one optimiser step, figures; whole between steps, so that it can stop and resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from gatevalve.contracts.recipes import Recipe
from gatevalve_trainer.adapter.logprobs import token_logprobs
from gatevalve_trainer.errors import Diverged, Terminated
from gatevalve_trainer.stopping import StopSignal
from gatevalve_trainer.train.batch import Batch
from gatevalve_trainer.train.losses import cross_entropy, is_clipped, k3, masked_sum, ppo_clip, ratios
from gatevalve_trainer.train.parameters import Parameters
from gatevalve_trainer.train.rows import TrainRow, micro_batches

BETAS = (0.9, 0.99)

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Objective:
    """What a step minimises: the recipe's loss over the rows, divided by a constant that does not depend on batching.

    SFT divides by the step's loss tokens; LoggedRL by rows times the snapshot's mean reply length, so that a long reply weighs by its
    tokens and not less (Liu et al. 2025, Dr. GRPO, section 3).
    """

    recipe: Recipe
    parameters: Parameters
    mean_reply_tokens: float

    def normaliser(self, rows: Sequence[TrainRow]) -> float:
        """The constant of one step."""
        if self.recipe == "SFT":
            return float(sum(row.loss_tokens for row in rows))
        return len(rows) * self.mean_reply_tokens

    def loss_sum(self, logprobs_BT: Tensor, batch: Batch) -> Tensor:
        """The summed loss of a micro-batch."""
        if self.recipe == "SFT":
            return masked_sum(cross_entropy(logprobs_BT), batch.mask_BT, batch.weight_B)
        parameters = self.parameters
        loss_BT = ppo_clip(logprobs_BT, batch.behavior_BT, batch.advantage_B, parameters.clip_low, parameters.clip_high)
        if parameters.kl_weight:
            loss_BT = loss_BT + parameters.kl_weight * k3(logprobs_BT, batch.behavior_BT)  # rows are the parent's own: behaviour = parent
        return masked_sum(loss_BT, batch.mask_BT, batch.weight_B)


@dataclass(slots=True)
class Progress:
    """Optimiser steps done and their figures."""

    step: int = 0
    series: list[Figures] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loop:
    """Everything a step needs."""

    model: nn.Module
    trainable: Sequence[nn.Parameter]
    optimizer: AdamW
    objective: Objective
    rows: Sequence[TrainRow]
    steps: Sequence[Sequence[int]]
    token_budget: int
    device: torch.device

    def run(
        self,
        progress: Progress,
        stop: StopSignal,
        save: Callable[[], None],
        save_due: Callable[[], bool],
        report: Callable[[Figures], None],
    ) -> None:
        """Do the remaining steps, saving when due; raises Terminated after a save when told to stop, Diverged when a loss is not finite."""
        with stop.deferred():
            while progress.step < len(self.steps):
                figures = self._step(progress.step, stop)
                if figures is not None:
                    progress.step += 1
                    progress.series.append(figures)
                    report(figures)
                if stop.requested:
                    save()
                    raise Terminated(f"told to stop (SIGTERM) after step {progress.step} of {len(self.steps)}; the checkpoint is saved")
                if save_due():
                    save()

    def _step(self, step: int, stop: StopSignal) -> Figures | None:
        """One optimiser step; None when told to stop before the gradient was whole."""
        rows = [self.rows[number] for number in self.steps[step]]
        normaliser, sums = self.objective.normaliser(rows), _Sums()
        self.optimizer.zero_grad(set_to_none=True)
        for rows_of_batch in micro_batches(rows, self.token_budget):
            if stop.requested:
                return None
            batch = Batch.of(rows_of_batch, self.device)
            logprobs_BT = token_logprobs(self.model, batch.tokens_BS)
            loss = self.objective.loss_sum(logprobs_BT, batch) / normaliser
            loss.backward()  # type: ignore[no-untyped-call]
            sums.add(float(loss.detach()), logprobs_BT.detach(), batch, self.objective.parameters)
        return self._apply(step, sums)

    def _apply(self, step: int, sums: _Sums) -> Figures:
        parameters = self.objective.parameters
        norm = float(nn.utils.clip_grad_norm_(self.trainable, parameters.max_grad_norm))
        if not (math.isfinite(sums.loss) and math.isfinite(norm)):
            raise Diverged(f"step {step + 1}: loss {sums.loss}, gradient norm {norm}; look at the scores, or lower parameters.learningRate")
        for group in self.optimizer.param_groups:
            group["lr"] = parameters.learning_rate * min(1.0, (step + 1) / max(1, parameters.warmup_steps))
        self.optimizer.step()
        return {"step": step + 1, "loss": sums.loss, "gradNorm": norm, **sums.means()}


def optimizer_of(trainable: Sequence[nn.Parameter], learning_rate: float) -> AdamW:
    """A fresh AdamW without weight decay."""
    return AdamW(trainable, lr=learning_rate, betas=BETAS, weight_decay=0.0)


@dataclass(slots=True)
class _Sums:
    """Sums over the loss tokens of one step."""

    loss: float = 0.0
    tokens: int = 0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0

    def add(self, loss: float, logprobs_BT: Tensor, batch: Batch, parameters: Parameters) -> None:
        """Add one micro-batch."""
        ratio_BT, mask_BT = ratios(logprobs_BT, batch.behavior_BT), batch.mask_BT
        self.loss += loss
        self.tokens += int(mask_BT.sum())
        self.ratio += float(ratio_BT[mask_BT].sum())
        self.ratio_max = max(self.ratio_max, float(ratio_BT[mask_BT].max()))
        self.clipped += float(is_clipped(ratio_BT, batch.advantage_B, parameters.clip_low, parameters.clip_high)[mask_BT].sum())
        self.kl += float(k3(logprobs_BT, batch.behavior_BT)[mask_BT].sum())

    def means(self) -> Figures:
        """Figures per loss token."""
        return {
            "tokens": self.tokens,
            "ratioMean": self.ratio / self.tokens,
            "ratioMax": self.ratio_max,
            "clippedShare": self.clipped / self.tokens,
            "klToParent": self.kl / self.tokens,
        }
