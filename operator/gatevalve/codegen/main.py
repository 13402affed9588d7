"""`gatevalve-codegen [--check] [--root DIR]`: write a checkout's generated files, or show how they differ."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from gatevalve.codegen.reference import exit_codes_page, kinds_page, metrics_page, reasons_page
from gatevalve.codegen.resources import RESOURCES, custom_resource_definition
from gatevalve.codegen.yaml_text import yaml_document
from gatevalve.contracts import names
from gatevalve.contracts.errors import ContractError

CRDS = ("crds", "helm/gatevalve/files/crds")
"""Directories that hold the CRDs and nothing else: what `kubectl apply` takes, and what the chart carries."""

REFERENCE = "docs/reference"


@cache
def generated_files() -> Mapping[str, str]:
    """Every generated file's text by its path below the checkout."""
    crds = {f"{names.GROUP}_{resource.plural}.yaml": yaml_document(custom_resource_definition(resource)) for resource in RESOURCES}
    pages = {"kinds.md": kinds_page(), "reasons.md": reasons_page(), "exit-codes.md": exit_codes_page(), "metrics.md": metrics_page()}
    files = {f"{folder}/{name}": text for folder in CRDS for name, text in crds.items()}
    return MappingProxyType(files | {f"{REFERENCE}/{name}": text for name, text in pages.items()})


def drift(root: Path) -> str:
    """A unified diff from the checkout to what would be generated; empty when they are the same."""
    wanted = generated_files()
    paths = sorted({*wanted, *_present_crds(root)})
    return "".join(_diff(path, _read(root / path), wanted.get(path, "")) for path in paths)


def write(root: Path) -> None:
    """Write every generated file and remove CRDs that are generated no more."""
    wanted = generated_files()
    for path in _present_crds(root) - set(wanted):
        (root / path).unlink()
    for path, text in wanted.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns 1 when --check finds a difference and 2 when the directory is no checkout."""
    parser = argparse.ArgumentParser(
        prog="gatevalve-codegen", description="Generate CRDs, chart copies and reference pages from the contracts."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; print a diff and exit 1 when something is out of date")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: the current directory)")
    options = parser.parse_args(argv)
    try:
        _require_checkout(options.root)
    except ContractError as error:
        print(error, file=sys.stderr)
        return 2
    return _check(options.root) if options.check else _write(options.root)


def _check(root: Path) -> int:
    difference = drift(root)
    if difference:
        print(f"{difference}\ngenerated files are out of date; run: gatevalve-codegen")
    return 1 if difference else 0


def _write(root: Path) -> int:
    write(root)
    print(f"wrote {len(generated_files())} files")
    return 0


def _require_checkout(root: Path) -> None:
    if not (root / "helm" / "gatevalve" / "Chart.yaml").is_file():
        raise ContractError("--root", f"{root.resolve()} is not a checkout of gatevalve", "run it in the repository's root or give --root")


def _present_crds(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for folder in CRDS for path in (root / folder).glob("*.yaml")}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _diff(path: str, old: str, new: str) -> str:
    return "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"{path} (in the checkout)", f"{path} (generated)"))
