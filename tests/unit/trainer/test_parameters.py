"""Recipe parameters: strings, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.recipes import SPECS
from gatevalve_trainer.train.parameters import read_parameters

DOCS = Path(__file__).parents[3] / "docs/training.md"


def test_every_parameter_has_its_default() -> None:
    found = read_parameters("LoggedRL", {})
    assert (found.learning_rate, found.epochs, found.minibatch, found.warmup_steps) == (3e-3, 2, 96, 3)
    assert (found.clip_low, found.clip_high, found.kl_weight, found.max_grad_norm, found.token_budget) == (0.2, 0.28, 0.0, 1.0, 8192)


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("learningRate", "4e-3", "learning_rate", 0.004),
        ("learningRate", "0.0001", "learning_rate", 0.0001),
        ("epochs", "6", "epochs", 6),
        ("minibatch", "1", "minibatch", 1),
        ("klWeight", "0.05", "kl_weight", 0.05),
    ],
)
def test_a_given_value_wins(name: str, text: str, attribute: str, value: float) -> None:
    assert getattr(read_parameters("LoggedRL", {name: text}), attribute) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("learningRate", "nan"),
        ("learningRate", "inf"),
        ("learningRate", "-1e-3"),
        ("learningRate", "0"),
        ("learningRate", "2"),
        ("learningRate", "1_0e-3"),
        ("learningRate", " 3e-3"),
        ("learningRate", "fast"),
        ("learningRate", ""),
        ("epochs", "2.0"),
        ("epochs", "0"),
        ("epochs", "101"),
        ("epochs", "９"),
        ("minibatch", "1e2"),
        ("clipLow", "1"),
        ("klWeight", "11"),
    ],
)
def test_a_value_that_is_no_number_in_range_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ContractError, match=rf"parameters\.{name}: .*; the default is"):
        read_parameters("LoggedRL", {name: text})


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(ContractError, match=r"parameters\.learnignRate: is no parameter of SFT; use epochs, learningRate, maxGradNorm"):
        read_parameters("SFT", {"learnignRate": "1e-3"})


@pytest.mark.parametrize("name", ["clipLow", "clipHigh", "klWeight"])
def test_sft_has_no_ratio_to_clip(name: str) -> None:
    with pytest.raises(ContractError, match=rf"parameters\.{name}: is no parameter of SFT"):
        read_parameters("SFT", {name: "0.1"})


def test_the_docs_show_every_parameter_with_its_default_and_range() -> None:
    text = DOCS.read_text()
    for spec in SPECS:
        assert f"| `{spec.name}` | {spec.default} | {'–'.join(spec.bounds())} | {', '.join(spec.recipes)} | {spec.sentence} |" in text
