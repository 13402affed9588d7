"""docs/install.md: its commands render, its table tells the chart's defaults, and its objects are ones that the contracts accept."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gatevalve.codegen.resources import RESOURCES
from gatevalve.io.signing import Signer
from support.chart import CHART, Helm

pytestmark = pytest.mark.timeout(1200)  # the first run on a machine builds helm

ROOT = CHART.parents[1]
PAGE = (ROOT / "docs" / "install.md").read_text()
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
ROWS = re.findall(r"^\| `([a-zA-Z.]+)` \| (?:`(.*?)`)? *\|", PAGE, re.MULTILINE)
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize(("key", "default"), ROWS)
def test_the_table_tells_the_charts_default(key: str, default: str) -> None:
    value: Any = VALUES
    for part in key.split("."):
        value = value[part]
    assert (value if isinstance(value, str) else json.dumps(value)) == default


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 10


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_a_shown_object_is_one_that_the_contracts_accept(block: str) -> None:
    shown = yaml.safe_load(block)
    resource = next(resource for resource in RESOURCES if resource.kind == shown["kind"])
    resource.spec.parse(shown["spec"])


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("helm install")])
def test_a_shown_install_renders(helm: Helm, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = helm.run(*shlex.split(command)[1:], "--dry-run=client")
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the shown commands need openssl")
def test_a_key_made_as_shown_is_one_that_the_chart_takes(helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (command for command in COMMANDS if command.startswith("openssl")):
        subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    assert Signer.from_directory(tmp_path).key_id.startswith("sha256:")
    monkeypatch.chdir(tmp_path)
    shown = next(command for command in COMMANDS if command.startswith("helm template"))
    result = helm.run(*shlex.split(shown.replace("helm/gatevalve", str(CHART)))[1:])
    assert result.returncode == 0, result.stderr
    assert json.dumps((tmp_path / "tls.crt").read_text()) in result.stdout
