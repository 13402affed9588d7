"""The table of good and bad objects: contracts, generated schemas and the real API server are put to the same one."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
OBJECTS: dict[str, dict[str, Any]] = TABLE["objects"]


def cases(part: str, *judges: str) -> list[Any]:
    """The rows of a part of the table, by their sentence; only those refused by one of `judges`, if any are named."""
    rows = [row for row in TABLE[part] if not judges or row["by"] in judges]
    return [pytest.param(row, id=row["sentence"]) for row in rows]


def changed(case: dict[str, Any], value: dict[str, Any] | None = None) -> dict[str, Any]:
    """The case's object: `value`, or the good object of its kind, with `remove` taken away and `set` written."""
    value = copy.deepcopy(OBJECTS[case["kind"]] if value is None else value)
    for path in case.get("remove", []):
        parent, key = _place(value, path)
        del parent[key]
    for path, new in case.get("set", {}).items():
        parent, key = _place(value, path)
        parent[key] = copy.deepcopy(new)
    return value


def _place(value: Any, path: str) -> tuple[Any, Any]:
    """Where a dotted path ends: the thing that holds it and its key in there."""
    *above, last = path.split(".")
    for part in above:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value, int(last) if isinstance(value, list) else last
