"""The operator as a process on a real API server, without pods: it watches, writes its log, tells of itself, and stops when told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from minicluster import Cluster
from support import world
from support.engine_world import write_key

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "crds"


@dataclass
class Operator:
    """A running operator process."""

    cluster: Cluster
    namespace: str
    port: int
    root: Path
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except URLError:
            return 0, ""

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "gatevalve.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        path = self.root / f"{kind}-{name}.json"
        path.write_text(json.dumps(body))
        self.cluster.kubectl("apply", "-f", str(path))

    def read(self, kind: str, name: str) -> dict[str, Any]:
        text = self.cluster.kubectl("-n", self.namespace, "get", kind, name, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found

    def condition(self, kind: str) -> str | None:
        conditions = self.read("adapterchannel", "support").get("status", {}).get("conditions", [])
        return next((c["reason"] for c in conditions if c["type"] == kind), None)


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    started = start(cluster, namespace, tmp_path)
    try:
        eventually(lambda: started.get("/readyz")[0] == 200, "ready", seconds=90)
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def start(cluster: Cluster, namespace: str, root: Path) -> Operator:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "GATEVALVE_NAMESPACE": namespace,
        "GATEVALVE_TRAINER_IMAGE": "trainer:1",
        "GATEVALVE_SERVING_IMAGE": "serving:1",
        "GATEVALVE_DATA_CLAIM": "data",
        "GATEVALVE_SEALED_CLAIM": "sealed",
        "GATEVALVE_MODELS_HOST_PATH": "/models",
        "GATEVALVE_SEALED_URL": f"file://{root}/sealed",
        "GATEVALVE_LOG_URL": f"file://{root}/log",
        "GATEVALVE_SIGNING_DIR": str(write_key(root / "signing")),
        "GATEVALVE_METRICS_PORT": str(port),
    }
    with (root / "operator.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "gatevalve.engine.main"], env=env, stdout=log, stderr=log)
    return Operator(cluster, namespace, port, root, process)


def eventually(holds: Callable[[], object], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


def test_the_operator_opens_a_channel_tells_its_state_and_leaves_no_mark_of_kopf(operator: Operator) -> None:
    operator.apply("GatePolicy", "support-v1", world.policy().wire())
    operator.apply("AdapterChannel", "support", world.channel_spec().wire())
    eventually(lambda: operator.condition("Ready") == "NoPods", "the channel says that it has no pods")
    entry = operator.read("adapterrelease", "support-000000")
    assert entry["spec"]["action"] == "Open"
    uid = entry["spec"]["channel"]["uid"]
    assert json.loads((operator.root / "log" / uid / "000000.json").read_text()) == entry["spec"]
    for kind, name in (("adapterchannel", "support"), ("gatepolicy", "support-v1"), ("adapterrelease", "support-000000")):
        metadata = operator.read(kind, name)["metadata"]
        assert "finalizers" not in metadata
        assert not [key for key in metadata.get("annotations", {}) if "kopf" in key]
    assert 'gatevalve_log_valid{channel="support"} 1.0' in operator.get("/metrics")[1]
    assert operator.get("/healthz") == (200, "ok")


def test_a_watch_tells_of_a_change_long_before_the_next_resync(operator: Operator) -> None:
    operator.apply("AdapterChannel", "support", world.channel_spec().wire())
    eventually(lambda: operator.condition("Ready") == "PolicyMissing", "the channel misses its policy")
    operator.apply("GatePolicy", "support-v1", world.policy().wire())
    started = time.monotonic()
    eventually(lambda: operator.read("adapterrelease", "support-000000"), "Open")
    assert time.monotonic() - started < 5.0


def test_an_operator_that_is_killed_and_started_again_writes_no_second_entry(operator: Operator) -> None:
    operator.apply("GatePolicy", "support-v1", world.policy().wire())
    operator.apply("AdapterChannel", "support", world.channel_spec().wire())
    eventually(lambda: operator.read("adapterrelease", "support-000000"), "Open")
    operator.process.kill()
    operator.process.wait()
    again = start(operator.cluster, operator.namespace, operator.root)
    try:
        eventually(lambda: 'gatevalve_log_head_sequence{channel="support"} 0.0' in again.get("/metrics")[1], "the log is read")
        assert again.condition("LogValid") == "AsExpected"
    finally:
        again.process.kill()
        again.process.wait()


def test_the_operator_stops_in_a_few_seconds_when_told(operator: Operator) -> None:
    operator.process.send_signal(signal.SIGTERM)
    assert operator.process.wait(timeout=10) == 0


def test_the_operator_says_in_one_sentence_what_it_misses(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "gatevalve.engine.main"], env={}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert (
        done.stderr.strip() == "gatevalve-operator: GATEVALVE_NAMESPACE: is not set; set it in the operator's environment; the chart does"
    )
