"""The command line: parse, read, print."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from gatevalve.cli.cluster import Reader
from gatevalve.cli.gate import add_gate, run_gate
from gatevalve.cli.source import cluster_options, log_options, nothing_of, question
from gatevalve.cli.verify import Verification, verify
from gatevalve.contracts.errors import GatevalveError
from gatevalve.io.ports import KubeObject

PLAIN_WIDTH = 200


def main(argv: list[str] | None = None) -> int:
    """Entry point of `kubectl gatevalve`; 0 = fine, 1 = the log is not sound, 2 = it could not be read whole."""
    args = _parser().parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    try:
        return _RUNS[args.command](console, args)
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
        raise nothing_of(args.channel, reader)
    console.print(history(args.channel, things))
    return 0


def _verify(console: Console, args: argparse.Namespace) -> int:
    found = asyncio.run(verify(question(args, args.channel)))
    if args.json:
        sys.stdout.write(json.dumps(found.wire(), indent=2) + "\n")
    else:
        for line in told(found):
            console.print(line, markup=False, soft_wrap=True)
    return 1 if found.problems else 2 if found.unread else 0


def told(found: Verification) -> list[str]:
    """A verification in sentences."""
    lines = [f"note: {lost}" for lost in found.lost]
    if found.problems or found.unread:
        wrong = [f"NOT SOUND: {problem}" for problem in found.problems] + [f"NOT READ: {unread}" for unread in found.unread]
        return [*lines, *wrong, f"{found.entries} entries from the start are sound in hash, signature and chain"]
    copies = "not compared with the external log" if found.compared is None else f"equal to {found.compared} external copies"
    verdicts = "verdicts not judged anew" if found.judged is None else f"{found.judged} verdicts judged anew from their evidence"
    return [*lines, f"sound: {found.entries} entries, gapless, chained, signed by {found.key_id}; {copies}; {verdicts}"]


_RUNS: dict[str, Callable[[Console, argparse.Namespace], int]] = {"history": _history, "verify": _verify, "gate": run_gate}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl gatevalve", description="What people ask of the release log.")
    channel = argparse.ArgumentParser(add_help=False)
    channel.add_argument("channel", help="name of the AdapterChannel")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("history", parents=[channel, cluster_options()], help="print the log")
    whole = "verify the log whole: hashes, signatures, chain, copies and verdicts"
    commands.add_parser("verify", parents=[channel, log_options()], help=whole)
    add_gate(commands)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
