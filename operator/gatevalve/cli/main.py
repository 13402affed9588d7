"""The command line: parse, read, print."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gatevalve.cli.cluster import Reader
from gatevalve.cli.verify import verify
from gatevalve.contracts.errors import ClusterError, GatevalveError
from gatevalve.io.ports import KubeObject

PLAIN_WIDTH = 200


def main(argv: list[str] | None = None) -> int:
    """Entry point of `kubectl gatevalve`; 0 = fine, 1 = the log is not sound, 2 = the question could not be asked."""
    args = _parser().parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    try:
        reader = Reader.connect(args.kubeconfig, args.namespace)
        things = reader.entries(args.channel)
        if not things:
            raise ClusterError(f"no entry of channel {args.channel} in namespace {reader.namespace}; check the name, or give --namespace")
        if args.command == "history":
            console.print(history(args.channel, things))
            return 0
        return _verify(console, args, reader, things)
    except GatevalveError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def history(channel: str, things: list[KubeObject]) -> Table:
    """The log as a table."""
    table = Table(title=f"log of channel {channel}", box=None, title_justify="left")
    for column in ("entry", "action", "reason", "serves"):
        table.add_column(column, no_wrap=True)
    for column in ("candidate", "decided", "by"):
        table.add_column(column)
    for thing in things:
        spec = thing["spec"]
        serves = spec.get("serves") or {}
        table.add_row(
            thing["metadata"]["name"],
            spec["action"],
            spec["reason"],
            serves.get("adapter") or ("the base" if serves.get("base") else ""),
            (spec.get("candidate") or {}).get("name", ""),
            spec["decidedAt"],
            spec["actor"],
        )
    return table


def _verify(console: Console, args: argparse.Namespace, reader: Reader, things: list[KubeObject]) -> int:
    found = verify(args.channel, things, reader.certificates(), args.key_sha256, args.log)
    if found.problem is not None:
        console.print(f"NOT SOUND: {found.problem} (after {found.entries} sound entries)", markup=False, soft_wrap=True)
        return 1
    copies = "not compared with the external log" if found.compared is None else f"equal to {found.compared} external copies"
    console.print(f"sound: {found.entries} entries, gapless, chained, signed by {found.key_id}; {copies}", markup=False, soft_wrap=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl gatevalve", description="What people ask of the release log.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("channel", help="name of the AdapterChannel")
    common.add_argument("--namespace", "-n", help="default: the current context's")
    common.add_argument("--kubeconfig", help="default: $KUBECONFIG or ~/.kube/config")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("history", parents=[common], help="print the log")
    check = commands.add_parser("verify", parents=[common], help="re-hash the log and check signatures, chain and gaps")
    check.add_argument("--key-sha256", help="the signing key's digest you trust (NOTES prints it); default: the one that Open names")
    check.add_argument("--log", type=Path, help="directory of the external log; every entry must have its copy there")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
