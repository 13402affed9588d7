"""Prometheus' own programs: promtool over rules, and a server that scrapes, evaluates and parses."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from minicluster.programs import PROMETHEUS_VERSION

START_SECONDS = 60

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Promtool:
    """The promtool program, with its files kept in a directory of the tests."""

    program: Path
    home: Path

    def check(self, groups: list[dict[str, Any]]) -> str:
        """What promtool says of rules that it finds wrong; empty when it finds nothing."""
        result = self._run("check", "rules", "--lint=all", "--lint-fatal", str(self._write("checked.yml", {"groups": groups})))
        return result.stdout + result.stderr if result.returncode else ""

    def compare(
        self, groups: list[dict[str, Any]], series: Mapping[str, str], interval: str, at: str, query: str, expected: tuple[Labels, ...]
    ) -> str:
        """What promtool says when a query answers other labels than expected, each with value 1; otherwise nothing."""
        self._write("rules.yml", {"groups": groups})
        samples = [{"labels": "{" + ", ".join(f'{name}="{value}"' for name, value in one.items()) + "}", "value": 1} for one in expected]
        case = {
            "interval": interval,
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": samples}],
        }
        result = self._run(
            "test", "rules", str(self._write("case.yml", {"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": [case]}))
        )
        return result.stdout + result.stderr if result.returncode else ""

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        path = self.home / name
        path.write_text(yaml.safe_dump(content))
        return path

    def _run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *args], capture_output=True, text=True, timeout=120)


@dataclass(frozen=True)
class Prometheus:
    """A running server, by the address of its API."""

    url: str

    def parsed(self, query: str) -> dict[str, Any]:
        """The syntax tree of a query; raises AssertionError with what the server says of one that it cannot parse."""
        tree: dict[str, Any] = self._get("parse_query", query=query)
        return tree

    def query(self, query: str) -> list[dict[str, Any]]:
        """The samples that a query answers now; raises AssertionError with what the server says of one that it refuses."""
        found: list[dict[str, Any]] = self._get("query", query=query)["result"]
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        try:
            with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@contextmanager
def running(program: Path, home: Path, config: dict[str, Any]) -> Iterator[Prometheus]:
    """A server on a loopback port, stopped in the end."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [str(program), f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data", f"--web.listen-address={address}"]
    with (home / "prometheus.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_until_ready(f"http://{address}/-/ready", process, home / "prometheus.log")
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=1):
                return
        except URLError:
            time.sleep(0.1)
    raise AssertionError(f"Prometheus is not ready:\n{log.read_text()[-2000:]}")


# ---- in a cluster

NAME = "gatevalve-test-prometheus"
IMAGE = f"prom/prometheus:v{PROMETHEUS_VERSION}"
CONFIG_PATH, DATA_PATH, PORT = "/gatevalve/prometheus", "/gatevalve/metrics", 9090

RBAC = "rbac.authorization.k8s.io/v1"

Manifest = dict[str, Any]


def scrape_configs(monitor: Manifest) -> list[Manifest]:
    """What the Prometheus operator makes of a PodMonitor, for the fields that the chart uses."""
    namespace, name = monitor["metadata"]["namespace"], monitor["metadata"]["name"]
    selector = monitor["spec"]["selector"]
    keeps = [_keep(f"label_{_name(label)}", value) for label, value in selector.get("matchLabels", {}).items()]
    keeps += [_keep(f"labelpresent_{_name(expression['key'])}", "true") for expression in selector.get("matchExpressions", ())]
    targets = {"namespace": "namespace", "pod": "pod_name", "container": "pod_container_name"}
    adds = [{"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target} for target, source in targets.items()]
    return [
        {
            "job_name": f"podMonitor/{namespace}/{name}/{index}",
            "metrics_path": endpoint["path"],
            "scrape_interval": endpoint["interval"],
            "scrape_timeout": endpoint["interval"],
            "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
            "relabel_configs": [*keeps, _keep("container_port_name", endpoint["port"]), *adds],
        }
        for index, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


def _keep(source: str, value: str) -> Manifest:
    return {"source_labels": [f"__meta_kubernetes_pod_{source}"], "regex": re.escape(value), "action": "keep"}


def _name(label: str) -> str:
    return re.sub(r"\W", "_", label)


def in_cluster(namespace: str, monitors: list[Manifest], rule: Manifest, interval: str) -> list[Manifest]:
    """A Prometheus in a Pod that may see the namespace's Pods, scrapes what the monitors select, and evaluates the rules."""
    config = {
        "global": {"evaluation_interval": interval},
        "scrape_configs": [config for monitor in monitors for config in scrape_configs(monitor)],
        "rule_files": [f"{CONFIG_PATH}/rules.yml"],
    }
    files = {"prometheus.yml": yaml.safe_dump(config), "rules.yml": yaml.safe_dump(rule["spec"])}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    return [
        _object("v1", "ServiceAccount", namespace),
        _object("v1", "ConfigMap", namespace, data=files),
        _object(RBAC, "Role", namespace, rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]),
        _object(RBAC, "RoleBinding", namespace, roleRef=reference, subjects=[subject]),
        _object("v1", "Pod", namespace, spec=_pod()),
    ]


def _object(version: str, kind: str, namespace: str, **content: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": NAME, "namespace": namespace}, **content}


def _pod() -> Manifest:
    arguments = [f"--config.file={CONFIG_PATH}/prometheus.yml", f"--storage.tsdb.path={DATA_PATH}", f"--web.listen-address=:{PORT}"]
    mounts = [{"name": "config", "mountPath": CONFIG_PATH}, {"name": "data", "mountPath": DATA_PATH}]
    return {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "prometheus", "image": IMAGE, "args": arguments, "ports": [{"containerPort": PORT}], "volumeMounts": mounts}
        ],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}, {"name": "data", "emptyDir": {}}],
    }
