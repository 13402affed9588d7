"""What the docs show is true: YAML is loaded by the contracts, bash is run by tests, links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.objects import BASE, SUITES, manifest
from gatevalve.contracts.hashing import directory_digest, file_fact
from gatevalve.contracts.kinds import AdapterCandidateSpec, AdapterChannelSpec
from gatevalve.contracts.model import Contract
from gatevalve.contracts.names import API_VERSION
from gatevalve.contracts.policy import GatePolicySpec

pytestmark = pytest.mark.docs

REPO = Path(__file__).parents[2]
PAGES = sorted([REPO / "README.md", *(REPO / "docs").rglob("*.md"), REPO / "tests" / "minicluster" / "README.md"])
SPECS: dict[str, type[Contract]] = {
    "GatePolicy": GatePolicySpec,
    "AdapterChannel": AdapterChannelSpec,
    "AdapterCandidate": AdapterCandidateSpec,
}
RUN_BY_TESTS = {
    "make demo": "tests/cluster/test_story.py tells the same story, shorter",
    "make test": ".ci/run",
    "make cluster": "tests/cluster/test_rig.py starts clusters by the same code",
    "make cluster-down": "tests/cluster/test_rig.py stops them",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(language: str) -> Iterator[Any]:
    for page in PAGES:
        for index, (found, text) in enumerate(FENCE.findall(page.read_text())):
            if found == language:
                yield pytest.param(text, id=f"{page.relative_to(REPO)}-{index}")


def manifests() -> Iterator[Any]:
    for path in sorted((REPO / "demo" / "manifests").glob("*.yaml")):
        yield pytest.param(path.read_text(), id=path.name)


@pytest.mark.parametrize("text", [*blocks("yaml"), *manifests()])
def test_every_yaml_shown_is_a_valid_object(text: str):
    for loaded in yaml.safe_load_all(text):
        if isinstance(loaded, dict) and loaded.get("apiVersion") == API_VERSION:
            assert set(loaded) == {"apiVersion", "kind", "metadata", "spec"}
            SPECS[loaded["kind"]].parse(loaded["spec"])


@pytest.mark.parametrize("text", [*blocks("bash")])
def test_every_command_shown_as_bash_is_run_by_a_test(text: str):
    for line in filter(None, map(str.strip, text.splitlines())):
        command = line.split("#")[0].strip()
        if command.startswith("make "):
            assert " ".join(command.split()[:2]) in RUN_BY_TESTS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_to_a_file_leads_somewhere(page: Path):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_demo_names_its_base_and_suites_by_the_digests_they_have():
    assert manifest("channel")["spec"]["base"]["digest"] == directory_digest(BASE)
    fixed = [suite["items"] for suite in manifest("policy")["spec"]["suites"] if "uri" in suite["items"]]
    assert [items["digest"] for items in fixed] == [file_fact(SUITES, SUITES / Path(items["uri"]).name).sha256 for items in fixed]
