"""One running cluster, and what tests and people do with it."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minicluster.cache import clusters_root, is_locked
from minicluster.errors import ClusterError, CommandError
from minicluster.images import TOOL_IMAGES, Image
from minicluster.machine import preflight
from minicluster.programs import HELM, KUBE, Report, build_programs, print_report

START_SECONDS = 240
STOP_SECONDS = 40
PROCESS_EXIT_SECONDS = 10
FORWARD_SECONDS = 15
LONGEST_DIRECTORY = 72  # the kubelet makes unix sockets 35 characters deeper, and 107 is the kernel's limit
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Cluster:
    """A cluster: one that the rig runs, or any other that a kubeconfig leads to.

    ``name``, ``dir`` (state and logs; for other clusters where the kubeconfig is), ``kubeconfig``, ``kubectl_bin`` and
    ``helm_bin`` say what it is; ``owned`` tells whether the rig runs it; ``env`` is what kubectl and helm need in their
    environment.
    """

    def __init__(self, name: str, directory: Path, kubeconfig: Path, programs: Mapping[str, Path], *, owned: bool) -> None:
        """Describe a cluster that runs already; use ``start``, ``find`` or ``attach``."""
        self.name = name
        self.dir = directory
        self.kubeconfig = kubeconfig
        self.kubectl_bin = programs["kubectl"]
        self.helm_bin = programs["helm"]
        self._programs = programs
        self.owned = owned
        self._launcher: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        name: str,
        *,
        images: Mapping[str, Image] | None = None,
        hide: Sequence[Path] = (),
        binds: Sequence[Path] = (),
        gpus: int = 8,
        audit: bool = False,
        detached: bool = False,
        report: Report = print_report,
    ) -> Self:
        """Start a cluster and return when Pods can be created and scheduled.

        ``images`` maps name patterns to host programs (default: ``tool:*`` is a shell); Pods see the directories in ``hide``,
        and those of all clusters, empty, and the paths in ``binds`` read-only. The cluster ends with this process, whatever
        ends it, unless it is ``detached``. Raises ClusterError if the machine cannot run one, or the name is taken.
        """
        if problems := preflight():
            raise ClusterError("this machine cannot run a cluster: " + "; ".join(problems))
        programs = build_programs(report=report)
        directory = _new_directory(name)
        config = _configuration(programs, images or TOOL_IMAGES, hide, binds, gpus=gpus, audit=audit)
        (directory / "cluster.json").write_text(json.dumps(config, indent=1))
        cluster = cls(name, directory, directory / "admin.kubeconfig", programs, owned=True)
        cluster._launch(detached)
        report(f"cluster {name} is up: export KUBECONFIG={cluster.kubeconfig}")
        return cluster

    @classmethod
    def find(cls, name: str) -> Self | None:
        """Return the cluster of the rig that runs under a name, or None."""
        directory = clusters_root() / name
        if not directory.is_dir() or not is_locked(directory):
            return None
        programs = json.loads((directory / "cluster.json").read_text())["programs"]
        return cls(name, directory, directory / "admin.kubeconfig", {n: Path(p) for n, p in programs.items()}, owned=True)

    @classmethod
    def attach(cls, kubeconfig: Path, *, report: Report = print_report) -> Self:
        """Return any other cluster, which ``stop`` and ``kill`` leave alone."""
        kubeconfig = kubeconfig.resolve(strict=True)
        return cls("attached", kubeconfig.parent, kubeconfig, build_programs([KUBE, HELM], report), owned=False)

    def __enter__(self) -> Self:
        """Use the cluster as a context that stops it."""
        return self

    def __exit__(self, _type: type[BaseException] | None, _value: BaseException | None, _traceback: TracebackType | None) -> None:
        """Stop the cluster."""
        self.stop()

    # ---- what runs it ----

    def _launch(self, detached: bool) -> None:
        command = [str(self._programs["mini"]), "up", "--dir", str(self.dir), *([] if detached else ["--lifeline"])]
        with (self.dir / "launcher.log").open("wb") as log:
            self._launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL if detached else subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        try:
            self._wait_until_ready(self._launcher)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, launcher: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not (self.dir / "ready").exists():
            if launcher.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"cluster {self.name} did not start; its logs are in {self.dir}: {_tail(self.dir / 'launcher.log')}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the cluster and remove all that it left; one that has stopped already, or is not the rig's, is left as it is."""
        if not self.owned:
            return
        if self._is_running():
            self._signal_launcher(signal.SIGTERM)
            if not self._wait_until_gone(STOP_SECONDS):
                self.kill()
        self._reap_launcher()
        remove_directory(self.dir)

    def kill(self) -> None:
        """Kill the launcher, with which the kernel ends every other process of the cluster; its directory stays."""
        if not self.owned:
            return
        self._signal_launcher(signal.SIGKILL)
        if not self._wait_until_gone(PROCESS_EXIT_SECONDS):
            raise ClusterError(f"processes of cluster {self.name} still run {PROCESS_EXIT_SECONDS} s after their launcher was killed")
        self._reap_launcher()

    def _is_running(self) -> bool:
        return self.dir.is_dir() and is_locked(self.dir)

    @property
    def launcher_pid(self) -> int:
        """The process to end for the cluster to end."""
        return self._launcher.pid if self._launcher else int((self.dir / "launcher.pid").read_text())

    def _signal_launcher(self, number: signal.Signals) -> None:
        if self._launcher:
            self._launcher.send_signal(number)
        elif self._is_running():
            os.kill(self.launcher_pid, number)

    def _wait_until_gone(self, limit: float) -> bool:
        """Wait for the last process to end: all of them together hold the lock on the directory."""
        deadline = time.monotonic() + limit
        while self._is_running():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _reap_launcher(self) -> None:
        if self._launcher is None:
            return
        if self._launcher.stdin:
            self._launcher.stdin.close()
        self._launcher.wait()
        self._launcher = None

    # ---- what one does with it ----

    @cached_property
    def env(self) -> dict[str, str]:
        """The environment of kubectl and helm, which keep their caches and settings with the cluster."""
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        if self.owned:
            home = self.dir / "client"
            env |= {"KUBECACHEDIR": str(home / "kube")}
            env |= {f"HELM_{kind}_HOME": str(home / f"helm-{kind.lower()}") for kind in ("CACHE", "CONFIG", "DATA")}
        return env

    @cached_property
    def api_server_url(self) -> str:
        """Where the API server listens."""
        return self.kubectl("config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}")

    def kubectl(self, *args: str, input: str | None = None, check: bool = True, timeout: float = 60) -> str:
        """Run kubectl and return its stdout. Raises CommandError with its stderr if it fails and ``check`` is set."""
        return self._run(self.kubectl_bin, args, input, check, timeout)

    def helm(self, *args: str, input: str | None = None, check: bool = True, timeout: float = 180) -> str:
        """Run helm and return its stdout. Raises CommandError with its stderr if it fails and ``check`` is set."""
        return self._run(self.helm_bin, args, input, check, timeout)

    def _run(self, program: Path, args: Sequence[str], input: str | None, check: bool, timeout: float) -> str:
        command = f"{program.name} {' '.join(args)}"
        try:
            result = subprocess.run([program, *args], input=input, env=self.env, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as e:
            raise ClusterError(f"{command} did not end within {timeout:g} s") from e
        if check and result.returncode != 0:
            raise CommandError(command, result.returncode, result.stdout, result.stderr)
        return result.stdout

    def apply(self, yaml_text: str, *, namespace: str | None = None) -> str:
        """Create or change objects from YAML (or JSON) text."""
        return self.kubectl("apply", *_in(namespace), "--filename", "-", input=yaml_text)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object. Raises CommandError if it does not exist."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, *_in(namespace), "--output", "json"))
        return found

    def logs(self, pod: str, *, namespace: str | None = None, container: str | None = None, previous: bool = False) -> str:
        """Return what a container has written, or its predecessor before the last restart."""
        chosen = ["--container", container] if container else []
        return self.kubectl("logs", pod, *_in(namespace), *chosen, *(["--previous"] if previous else []))

    @contextmanager
    def port_forward(self, namespace: str, target: str, remote_port: int | str) -> Iterator[int]:
        """Forward a free port of 127.0.0.1 to a pod, or to one pod behind ``svc/name`` or ``deploy/name``; yields the port."""
        command = [str(self.kubectl_bin), "port-forward", "--namespace", namespace, "--address", "127.0.0.1", target, f":{remote_port}"]
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield _forwarded_port(process, f"port-forward to {target}")
        finally:
            process.terminate()
            process.communicate()

    def volume(self, name: str, size: str = "1Gi", claim: str | None = None) -> Path:
        """Make a host directory a PersistentVolume of class ``manual``, kept for ``claim`` ("namespace/name") if given."""
        self._require_owned("volumes")
        path = self.dir / "volumes" / name
        path.mkdir()
        path.chmod(0o777)
        spec: dict[str, object] = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "manual",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(path), "type": "Directory"},
        }
        if claim:
            namespace, _, claim_name = claim.partition("/")
            spec["claimRef"] = {"namespace": namespace, "name": claim_name}
        self.apply(json.dumps({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}))
        return path

    def claim_path(self, claim: str, namespace: str) -> Path:
        """Return the host directory behind a bound claim."""
        self._require_owned("claim paths")
        volume = self.get("pvc", claim, namespace)["spec"]["volumeName"]
        return Path(self.get("pv", volume)["spec"]["hostPath"]["path"])

    def kill_container(self, pod: str, container: str, namespace: str) -> None:
        """Send SIGKILL to a running container, as a crash would end it: the kubelet only sees the exit code 137."""
        self._require_owned("killing containers")
        args = ["--dir", str(self.dir), "--namespace", namespace, "--pod", pod, "--container", container]
        self._run(self._programs["mini"], ["kill-container", *args], None, True, 20)

    def _require_owned(self, what: str) -> None:
        if not self.owned:
            raise ClusterError(f"{what} need a cluster of the rig; this one comes from {self.kubeconfig}")


def remove_directory(directory: Path) -> None:
    """Remove a state directory, also what programs in it have made unwritable."""
    for folder, _, _ in os.walk(directory):
        Path(folder).chmod(0o700)
    if directory.exists():
        shutil.rmtree(directory)


def _new_directory(name: str) -> Path:
    """Create the state directory of a cluster in place of what a dead one may have left."""
    directory = clusters_root() / name
    if not _NAME.fullmatch(name):
        raise ClusterError(f"{name!r} is no name for a cluster: use up to 40 lower-case letters, digits and dashes")
    if len(os.fsencode(directory)) > LONGEST_DIRECTORY:
        raise ClusterError(f"{directory} is longer than {LONGEST_DIRECTORY} characters: choose a shorter name or XDG_CACHE_HOME")
    if directory.exists():
        if is_locked(directory):
            raise ClusterError(f"a cluster named {name} runs already: stop it with `minicluster down --name {name}` or choose another name")
        remove_directory(directory)
    directory.mkdir(parents=True)
    return directory


def _configuration(
    programs: Mapping[str, Path], images: Mapping[str, Image], hide: Sequence[Path], binds: Sequence[Path], *, gpus: int, audit: bool
) -> dict[str, object]:
    return {
        "programs": {name: str(path) for name, path in programs.items()},
        "gpus": gpus,
        "audit": audit,
        "hide": [str(clusters_root()), *(str(p.resolve()) for p in hide)],
        "binds": [str(p.resolve()) for p in binds],
        "images": [image.to_config(pattern) for pattern, image in images.items()],
    }


def _in(namespace: str | None) -> list[str]:
    return ["--namespace", namespace] if namespace else []


def _tail(file: Path, lines: int = 5) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


def _forwarded_port(process: subprocess.Popen[str], what: str) -> int:
    """Read the local port from what kubectl says once it listens."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if match := re.match(r"Forwarding from 127\.0\.0\.1:(\d+) ", line):
        return int(match[1])
    process.terminate()
    raise ClusterError(f"{what} failed: {process.communicate()[1].strip()}")
