"""The stage: a cluster, the chart, base and suites, and the calls the story makes on them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from demo import objects
from minicluster import Cluster, ClusterError

REPO = Path(__file__).parent.parent
NAMESPACE = "default"
CHANNEL = "support"
POOL_URL = "http://support"
TERMINAL = {"Promoted", "Rejected", "Inconclusive", "Skipped", "Errored", "Aborted"}
JOB_SECONDS, CANDIDATE_SECONDS, POD_SECONDS = 600, 1200, 600


class StoryError(Exception):
    """The story cannot go on; the message says what was seen and where to look."""


@dataclass
class Stage:
    """A cluster with the product on it."""

    cluster: Cluster
    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, title: str, key: str | None = None) -> Iterator[None]:
        """Show a step with its seconds, and add them to the report under `key`."""
        started = time.monotonic()
        with self.console.status(f"{title} …"):
            yield
        took = time.monotonic() - started
        self.console.print(f"  [green]✓[/] {title} [dim]{took:.1f} s[/]")
        if key is not None:
            self.seconds[key] = round(self.seconds.get(key, 0.0) + took, 1)

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 120) -> str:
        """kubectl in the story's namespace; the timeout is in seconds."""
        return self.cluster.kubectl("--namespace", NAMESPACE, *args, input=stdin, timeout=timeout)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object."""
        loaded: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "--output", "json"))
        return loaded

    def items(self, kind: str, *args: str) -> list[dict[str, Any]]:
        """Objects of a kind."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "--output", "json", *args))["items"]
        return items

    def user(self) -> str:
        """Who the API server takes us for: what a pin must name."""
        who: dict[str, Any] = json.loads(self.kubectl("auth", "whoami", "--output", "json"))
        return str(who["status"]["userInfo"]["username"])

    def releases(self) -> list[dict[str, Any]]:
        """The entries of the log, in order."""
        return sorted(self.items("adapterreleases"), key=lambda release: release["spec"]["sequence"])

    def apply(self, manifest: dict[str, Any]) -> None:
        """kubectl apply of one object, as a user would."""
        self.kubectl("apply", "--server-side", "--filename", "-", stdin=json.dumps(manifest))

    def wait_for(self, what: str, seconds: float, probe: Callable[[], Any]) -> Any:
        """The first true answer of a probe; StoryError with what was awaited when it does not come in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if answer := probe():
                return answer
            time.sleep(0.5)
        raise StoryError(f"{what} did not happen within {seconds:.0f} s.\n{self.diagnosis()}")

    def diagnosis(self) -> str:
        """What a person would look at first."""
        parts = [self.kubectl("get", "acand,arel,achan,jobs,pods")]
        parts.append(self.kubectl("get", "events", "--sort-by", ".lastTimestamp")[-3000:])
        return "\n".join(parts)

    # ---- setting up

    def install(self) -> None:
        """helm install, with base and suites on their claims."""
        self.apply(objects.manifest("models-claim"))
        self._config_map("demo-client", [REPO / "demo" / "client.py", REPO / "demo" / "copy_files.py"])
        self._config_map("demo-base", sorted(objects.BASE.iterdir()))
        self._config_map("demo-suites", sorted(objects.SUITES.glob("*.jsonl")))
        values = REPO / "demo" / "manifests" / "values.yaml"
        chart = REPO / "helm" / "gatevalve"
        kinds = ["--set", "crds.install=false"] if self._has_kinds() else []
        self.cluster.helm("install", "gatevalve", str(chart), "--namespace", NAMESPACE, "--values", str(values), *kinds)
        self.run_job(objects.copy_job())

    def _has_kinds(self) -> bool:
        """Another release has brought the four kinds, which the whole cluster shares."""
        return bool(self.kubectl("get", "crd", "adaptercandidates.gatevalve.dev", "--ignore-not-found").strip())

    def uninstall(self) -> None:
        """Take everything away again: channel, chart, and what the chart keeps."""
        self.kubectl("delete", "adapterchannels,adaptercandidates,gatepolicies", "--all")
        self.cluster.helm("uninstall", "gatevalve", "--namespace", NAMESPACE, "--wait")
        self.wait_for("the admission policies to end", 60, self._log_deleted)
        self.kubectl("delete", "jobs", "--selector", "app.kubernetes.io/part-of=gatevalve-demo")
        self.kubectl("delete", "configmap", "demo-client", "demo-base", "demo-suites", "gatevalve-pool-support")
        self.kubectl("delete", "secret", "gatevalve-signing", "gatevalve-seal")
        self.kubectl("delete", "pvc", "demo-models", "gatevalve-data", "gatevalve-sealed", "gatevalve-log", "--wait=false")

    def _log_deleted(self) -> bool:
        """An admission policy that was deleted is enforced for a moment longer."""
        try:
            self.kubectl("delete", "adapterreleases", "--all")
        except ClusterError:
            return False
        return True

    def _config_map(self, name: str, files: list[Path]) -> None:
        arguments = [f"--from-file={path.name}={path}" for path in files]
        self.kubectl("create", "configmap", name, *arguments)

    def open_channel(self) -> None:
        """Apply policy and channel."""
        self.apply(objects.manifest("policy"))
        self.apply(objects.manifest("channel"))

    def wait_for_pool(self) -> None:
        """The channel is Ready: vLLM serves the base through the alias."""
        self.wait_for("channel support Ready", POD_SECONDS, lambda: self.condition("adapterchannel", CHANNEL, "Ready") == "True")

    def condition(self, kind: str, name: str, condition: str) -> str:
        """The status of a condition."""
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((entry["status"] for entry in conditions if entry["type"] == condition), "Unknown")

    # ---- jobs and candidates

    def run_job(self, manifest: dict[str, Any]) -> str:
        """Run a Job to its end and give its log."""
        name = manifest["metadata"]["name"]
        self.start_job(manifest)
        return self.finish_job(name)

    def start_job(self, manifest: dict[str, Any]) -> None:
        """Create a Job."""
        self.kubectl("create", "--filename", "-", stdin=json.dumps(manifest))

    def finish_job(self, name: str) -> str:
        """Wait for a Job and give its log; StoryError when it failed."""

        def ended() -> str | None:
            status = self.get("job", name).get("status", {})
            return "failed" if status.get("failed") else "succeeded" if status.get("succeeded") else None

        outcome = self.wait_for(f"Job {name}", JOB_SECONDS, ended)
        log = self.kubectl("logs", f"job/{name}")
        if outcome == "failed":
            raise StoryError(f"Job {name} failed:\n{log[-3000:]}")
        return log

    def client(self, name: str, mode: str, *args: str) -> dict[str, Any]:
        """Run a client Job and read its report."""
        log = self.run_job(objects.client_job(name, POOL_URL, CHANNEL, mode, *args))
        return read_report(log)

    def finish_candidate(self, name: str) -> dict[str, Any]:
        """Wait for a candidate's end."""

        def ended() -> dict[str, Any] | None:
            seen = self.get("adaptercandidate", name)
            return seen if seen.get("status", {}).get("state") in TERMINAL else None

        finished: dict[str, Any] = self.wait_for(f"the verdict on {name}", CANDIDATE_SECONDS, ended)
        return finished

    def wait_live(self, entry: str) -> dict[str, Any]:
        """Wait until an entry is live on the pods."""

        def live() -> dict[str, Any] | None:
            seen = self.get("adapterrelease", entry)
            return seen if seen.get("status", {}).get("liveSince") else None

        release: dict[str, Any] = self.wait_for(f"{entry} live", POD_SECONDS, live)
        return release

    def pool_pods(self) -> list[str]:
        """The running pods of the pool."""
        pods = self.items("pods", "--selector", "gatevalve.dev/pool=support")
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]


def read_report(log: str) -> dict[str, Any]:
    """The JSON object on the last line of a client's log."""
    report: dict[str, Any] = json.loads(log.strip().splitlines()[-1])
    if report["failed"]:
        raise StoryError(f"{report['failed']} of {report['requests']} client requests failed; the first: {report['error']}")
    return report
