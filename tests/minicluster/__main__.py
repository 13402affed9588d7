"""The command line: build, up, down, status and env."""

import argparse
import sys
from pathlib import Path

from minicluster.cache import clusters_root, is_locked
from minicluster.cluster import Cluster, remove_directory
from minicluster.errors import ClusterError
from minicluster.images import product_images
from minicluster.machine import preflight
from minicluster.programs import PROGRAMS, build_programs

_REPO = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.command(args)
    except ClusterError as e:
        print(f"minicluster: {e}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="minicluster", description="A real Kubernetes on this machine, without a container engine.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, command: object, text: str, named: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        if named:
            sub.add_argument("--name", default="gatevalve", help="name of the cluster (default: %(default)s)")
        return sub

    add("build", _build, "Build the programs: those of a cluster, which up does as well, Prometheus and promtool.", named=False)
    up = add("up", _up, "Start a cluster that runs until down; one that runs already is left alone.")
    up.add_argument("--venv", type=Path, default=_REPO / ".venv", help="virtual environment of the product's images (default: %(default)s)")
    up.add_argument("--gpus", type=int, default=8, help="GPUs that the node pretends to have (default: %(default)s)")
    up.add_argument("--audit", action="store_true", help="write the API server's audit log")
    add("down", _down, "Stop a cluster and remove all that it left.")
    add("status", _status, "List the clusters on this machine.", named=False)
    add("env", _env, 'Print the settings of kubectl and helm for a shell: eval "$(... env)".')
    return parser


def _build(_: argparse.Namespace) -> int:
    for name, path in build_programs(PROGRAMS).items():
        print(f"{name}\t{path}")
    return 0


def _up(args: argparse.Namespace) -> int:
    if problems := preflight():
        raise ClusterError("this machine cannot run a cluster: " + "; ".join(problems))
    if Cluster.find(args.name):
        print(f"cluster {args.name} runs already")
    else:
        Cluster.start(args.name, images=product_images(_REPO, args.venv), gpus=args.gpus, audit=args.audit, detached=True)
    return 0


def _down(args: argparse.Namespace) -> int:
    if cluster := Cluster.find(args.name):
        cluster.stop()
        print(f"cluster {args.name} is down")
    else:
        remove_directory(clusters_root() / args.name)
        print(f"no cluster {args.name} runs")
    return 0


def _status(_: argparse.Namespace) -> int:
    for directory in sorted(clusters_root().glob("*")):
        state = "stopped" if not is_locked(directory) else "up" if (directory / "ready").exists() else "starting"
        print(f"{directory.name}\t{state}\t{directory}")
    return 0


def _env(args: argparse.Namespace) -> int:
    cluster = Cluster.find(args.name)
    if cluster is None:
        raise ClusterError(f"no cluster {args.name} runs: start it with `minicluster up --name {args.name}`")
    for name in ("KUBECONFIG", "KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
        print(f"export {name}='{cluster.env[name]}'")
    print(f"export PATH='{cluster.kubectl_bin.parent}:{cluster.helm_bin.parent}':\"$PATH\"")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
