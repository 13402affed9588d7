"""What helm prints after an install: the key, and a first candidate that the contracts accept."""

import re

import pytest
import yaml

from gatevalve.contracts.kinds import AdapterCandidateSpec
from support.chart import CHART, Helm

pytestmark = pytest.mark.timeout(1200)  # the first run on a machine builds helm


@pytest.fixture(scope="module")
def printed(helm: Helm) -> str:
    """Objects and notes of an install that is not carried out."""
    result = helm.run("install", "gatevalve", str(CHART), "--namespace", "team", "--dry-run=client", "--set", "pool.enabled=true")
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_key_that_is_printed_is_the_one_that_pods_trust(printed: str) -> None:
    objects, notes = printed.split("NOTES:")
    told = re.search(r"signing key: +(sha256:[0-9a-f]{64})", notes)
    trusted = re.search(r"name: GATEVALVE_KEY_SHA256\n +value: \"(sha256:[0-9a-f]{64})\"", objects)
    assert told is not None
    assert trusted is not None
    assert told[1] == trusted[1]


def test_the_first_candidate_is_one_that_the_contracts_accept(printed: str) -> None:
    shown = yaml.safe_load(printed.partition("<<END\n")[2].partition("\nEND")[0])
    assert (shown["kind"], shown["metadata"]["name"]) == ("AdapterCandidate", "support-first")
    assert AdapterCandidateSpec.parse(shown["spec"]).channel == "support"
