"""The programs of a cluster, built from source once and then kept in the user's cache by their content."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from minicluster.cache import REPORT_INTERVAL_SECONDS, cache_root, locked
from minicluster.errors import ClusterError
from minicluster.toolchain import Toolchain, environment, find_toolchain

Report = Callable[[str], None]

KEEP_UNUSED_SECONDS = 14 * 24 * 3600
_HERE = Path(__file__).resolve().parent
_STRIP = "-s -w"
_KUBERNETES_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Program:
    """One Go program: what to build, and under which other names it can be called."""

    name: str
    module: Path
    package: str
    ldflags: str = _STRIP
    aliases: tuple[str, ...] = ()
    tags: str = ""

    def sources(self) -> list[Path]:
        """Return the files of ours that make the program what it is, in a fixed order."""
        own = sorted(p for p in (self.module / self.package).glob("*.go") if not p.name.endswith("_test.go"))
        return [self.module / "go.mod", self.module / "go.sum", *own]

    def key(self, toolchain: Toolchain) -> str:
        """Return the name of the program's content: equal keys mean equal programs."""
        digest = hashlib.sha256()
        for text in (toolchain.version, self.package, self.ldflags, *self.aliases, *filter(None, [self.tags])):
            digest.update(text.encode() + b"\0")
        for source in self.sources():
            digest.update(source.name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
        return f"{self.name}-{digest.hexdigest()[:16]}"


KUBE = Program(
    "kube",
    _HERE / "src",
    "./kube",
    f"{_STRIP} -X {_KUBERNETES_VERSION}.gitVersion=v1.37.2 -X {_KUBERNETES_VERSION}.gitMajor=1 -X {_KUBERNETES_VERSION}.gitMinor=37",
    aliases=("kubectl",),
)
MINI = Program("mini", _HERE / "src", "./mini")
ADDONS = Program("addons", _HERE / "src", "./addons")
HELM = Program("helm", _HERE / "helm", "helm.sh/helm/v4/cmd/helm", f"{_STRIP} -X helm.sh/helm/v4/internal/version.version=v4.3.2")
PROMETHEUS_VERSION = "3.15.1"
_PROMETHEUS = "github.com/prometheus/prometheus/cmd"
_DISCOVERY = "remove_all_sd,enable_kubernetes_sd"
PROMETHEUS = Program(
    "prometheus",
    _HERE / "prometheus",
    f"{_PROMETHEUS}/prometheus",
    f"{_STRIP} -X github.com/prometheus/common/version.Version={PROMETHEUS_VERSION}",
    tags=_DISCOVERY,
)
PROMTOOL = Program("promtool", _HERE / "prometheus", f"{_PROMETHEUS}/promtool", tags=_DISCOVERY)
CLUSTER_PROGRAMS = (KUBE, MINI, ADDONS, HELM)
PROGRAMS = (*CLUSTER_PROGRAMS, PROMETHEUS, PROMTOOL)


def print_report(line: str) -> None:
    """Show a line of progress to the person who waits."""
    print(f"minicluster: {line}", file=sys.stderr, flush=True)


def build_programs(programs: Iterable[Program] = CLUSTER_PROGRAMS, report: Report = print_report) -> dict[str, Path]:
    """Return the path of each program by its names, building those that are not in the cache.

    Raises ClusterError if there is no Go toolchain or a build fails.
    """
    root = cache_root() / "bin"
    toolchain = find_toolchain(report)
    paths: dict[str, Path] = {}
    for program in programs:
        directory = root / program.key(toolchain)
        if not directory.exists():
            with locked(root, report):
                if not directory.exists():
                    _publish(program, toolchain, directory, report)
                    _remove_unused(root)
        os.utime(directory)
        paths |= {name: directory / name for name in (program.name, *program.aliases)}
    return paths


def _publish(program: Program, toolchain: Toolchain, directory: Path, report: Report) -> None:
    """Build a program aside and let its directory appear in one step."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as scratch:
        complete = Path(scratch) / "complete"
        complete.mkdir()
        _build(program, toolchain, complete / program.name, report)
        for alias in program.aliases:
            (complete / alias).symlink_to(program.name)
        complete.rename(directory)


def _build(program: Program, toolchain: Toolchain, output: Path, report: Report) -> None:
    started = time.monotonic()
    report(f"building {program.name} with {toolchain.version}")
    go = str(toolchain.go)
    tags = ["-tags", program.tags] if program.tags else []
    packages = _run_go([go, "list", "-deps", *tags, program.package], program, report)
    build = [go, "build", "-v", *tags, "-ldflags", program.ldflags, "-o", str(output), program.package]
    _run_go(build, program, report, total=len(packages.split()))
    report(f"built {program.name} in {_elapsed(started)}")


def _run_go(command: list[str], program: Program, report: Report, total: int = 0) -> str:
    """Run a Go command, with a line of progress now and then, and return what it wrote to stdout."""
    started = time.monotonic()
    lines: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as stdout,
        subprocess.Popen(command, cwd=program.module, env=environment(), stdout=stdout, stderr=subprocess.PIPE, text=True) as process,
    ):
        reader = Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
        reader.start()
        for _ in _ticks(process):
            report(f"{program.name}: {_progress(lines, total)}, {_elapsed(started)}")
        reader.join()
        if process.returncode != 0:
            raise ClusterError(f"{' '.join(command)} in {program.module} failed:\n{''.join(lines[-30:])}")
        stdout.seek(0)
        return stdout.read()


def _ticks(process: subprocess.Popen[str]) -> Iterator[None]:
    """Yield at every report interval until the process ends; end it when the caller goes away."""
    try:
        while True:
            try:
                process.wait(REPORT_INTERVAL_SECONDS)
                return
            except subprocess.TimeoutExpired:
                yield
    finally:
        process.kill()
        process.wait()


def _progress(lines: list[str], total: int) -> str:
    downloads = sum(line.startswith("go: downloading") for line in lines)
    if not total:
        return f"{downloads} modules downloaded"
    return f"{len(lines) - downloads} packages compiled, at most {total} to compile"


def _elapsed(started: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    return f"{minutes}m{seconds:02}s"


def _remove_unused(root: Path) -> None:
    """Remove the programs that nobody has asked for in a while."""
    for directory in root.iterdir():
        if time.time() - directory.stat().st_mtime > KEEP_UNUSED_SECONDS:
            shutil.rmtree(directory, ignore_errors=True)
