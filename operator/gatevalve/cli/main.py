"""The command line: parse, read, print."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gatevalve.cli.cluster import Reader
from gatevalve.cli.verify import Question, Verification, verify
from gatevalve.contracts.errors import ClusterError, ContractError, GatevalveError
from gatevalve.io.ports import KubeObject

PLAIN_WIDTH = 200


def main(argv: list[str] | None = None) -> int:
    """Entry point of `kubectl gatevalve`; 0 = fine, 1 = the log is not sound, 2 = it could not be read whole."""
    args = _parser().parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    try:
        return _history(console, args) if args.command == "history" else _verify(console, args)
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


def _history(console: Console, args: argparse.Namespace) -> int:
    reader = Reader.connect(args.kubeconfig, args.namespace)
    things = reader.entries(args.channel)
    if not things:
        raise _nothing(args.channel, reader)
    console.print(history(args.channel, things))
    return 0


def _verify(console: Console, args: argparse.Namespace) -> int:
    found = asyncio.run(verify(_question(args)))
    if args.json:
        sys.stdout.write(json.dumps(found.wire(), indent=2) + "\n")
    else:
        for line in told(found):
            console.print(line, markup=False, soft_wrap=True)
    return 1 if found.problems else 2 if found.unread else 0


def _question(args: argparse.Namespace) -> Question:
    """What is at hand; the cluster is asked only for what no file gives."""
    if args.offline and args.log is None:
        raise ContractError("--offline", "reads entries from the external log", "give its directory with --log")
    reader = None if args.offline and args.certificate else Reader.connect(args.kubeconfig, args.namespace)
    certificates = [_file(args.certificate)] if args.certificate else reader.certificates() if reader else []
    things = reader.entries(args.channel) if reader and not args.offline else None
    if things == [] and args.log is None and reader is not None:
        raise _nothing(args.channel, reader)
    return Question(args.channel, things, certificates, args.key_sha256, args.log, args.sealed)


def told(found: Verification) -> list[str]:
    """A verification in sentences."""
    lines = [f"note: {lost}" for lost in found.lost]
    if found.problems or found.unread:
        wrong = [f"NOT SOUND: {problem}" for problem in found.problems] + [f"NOT READ: {unread}" for unread in found.unread]
        return [*lines, *wrong, f"{found.entries} entries from the start are sound in hash, signature and chain"]
    copies = "not compared with the external log" if found.compared is None else f"equal to {found.compared} external copies"
    verdicts = "verdicts not judged anew" if found.judged is None else f"{found.judged} verdicts judged anew from their evidence"
    return [*lines, f"sound: {found.entries} entries, gapless, chained, signed by {found.key_id}; {copies}; {verdicts}"]


def _nothing(channel: str, reader: Reader) -> ClusterError:
    return ClusterError(f"no entry of channel {channel} in namespace {reader.namespace}; check the name, or give --namespace")


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ContractError("--certificate", f"{path} cannot be read: {error.strerror}", "give the signing key's certificate") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl gatevalve", description="What people ask of the release log.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("channel", help="name of the AdapterChannel")
    common.add_argument("--namespace", "-n", help="default: the current context's")
    common.add_argument("--kubeconfig", help="default: $KUBECONFIG or ~/.kube/config")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("history", parents=[common], help="print the log")
    check = commands.add_parser("verify", parents=[common], help="verify the log whole: hashes, signatures, chain, copies and verdicts")
    check.add_argument("--key-sha256", help="the signing key's digest you trust (NOTES prints it); default: the one that Open names")
    check.add_argument("--certificate", type=Path, help="the signing key's certificate; default: those in ConfigMap gatevalve-keys")
    check.add_argument("--log", type=Path, help="root of the external log; every entry must have its copy there")
    check.add_argument("--offline", action="store_true", help="read the entries from --log instead of the API server")
    check.add_argument("--sealed", type=Path, help="root of the sealed area; every verdict is judged anew from its evidence")
    check.add_argument("--json", action="store_true", help="print what was found as JSON")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
