"""The reference pages show every field and every sentence, and nothing that breaks a table."""

import inspect

import pytest

from gatevalve.codegen.reference import SECTIONS, exit_codes_page, kinds_page, metrics_page, prose, reasons_page
from gatevalve.contracts import reasons
from gatevalve.contracts.exits import ExitCode
from gatevalve.contracts.metrics import METRICS, SERVING_METRICS, Metric
from gatevalve.contracts.reasons import Explained

PAGES = {"kinds": kinds_page(), "reasons": reasons_page(), "exit codes": exit_codes_page(), "metrics": metrics_page()}


def test_every_enum_with_sentences_has_a_section() -> None:
    enums = {thing for _, thing in inspect.getmembers(reasons, inspect.isclass) if issubclass(thing, Explained)} - {Explained}
    assert {enum for enum, _ in SECTIONS} == enums


@pytest.mark.parametrize("enum", [enum for enum, _ in SECTIONS])
def test_every_member_stands_beside_its_sentence(enum: type[Explained]) -> None:
    for member in enum:
        assert f"| `{member.value}` | {prose(member.sentence)} |" in PAGES["reasons"]


def test_every_exit_code_stands_beside_its_sentence() -> None:
    for code in ExitCode:
        assert f"| {int(code)} | `{code.name}` | {prose(code.sentence)} |" in PAGES["exit codes"]


@pytest.mark.parametrize("metric", [*METRICS, *SERVING_METRICS], ids=lambda metric: metric.full_name)
def test_every_metric_stands_beside_its_labels_and_sentence(metric: Metric) -> None:
    assert f"| `{metric.full_name}` | {metric.kind} | {', '.join(metric.labels)} | {prose(metric.sentence)} |" in PAGES["metrics"]


@pytest.mark.parametrize(
    "row",
    [
        "| `spec.suites[].minEffectBasisPoints` | integer, 0..10000 | Primary: the least worthwhile gain over the incumbent. |",
        "| `spec.serving.drainSeconds` | integer, 0..3600, default `30` |",
        "| `spec.adapter.targetModules[]` | list of string, at most 32, required |",
        "| `status.conditions[].reason` | string, required |",
    ],
)
def test_a_field_shows_its_place_type_limits_and_default(row: str) -> None:
    assert row in PAGES["kinds"]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_table_row_has_as_many_cells_as_its_header(page: str) -> None:
    width = 0
    for line in page.splitlines():
        cells = line.replace("\\|", "").count("|")
        width = (width or cells) if line.startswith("|") else 0
        assert cells == width
        assert "<" not in line.replace("\\<", "").replace("<!--", "")
