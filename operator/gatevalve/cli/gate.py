"""`gate`: what people ask before they change a policy: parse, read, print."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gatevalve.cli import gate_calibrate, gate_power, gate_replay
from gatevalve.cli.policies import read_policy
from gatevalve.cli.sealed import Named, lying, newest_same, of_entry
from gatevalve.cli.source import log_options, question
from gatevalve.cli.verify import sound_log
from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.policy import GatePolicySpec


def add_gate(commands: Any) -> None:
    """The parsers of `gate replay`, `gate power` and `gate calibrate`."""
    gate = commands.add_parser("gate", help="what a policy would say, sees, and allows")
    kinds = gate.add_subparsers(dest="gate", required=True)
    source = [log_options()]
    replay = kinds.add_parser("replay", parents=source, help="judge every test anew under another policy, from its stored evidence")
    replay.add_argument("channel", help="name of the AdapterChannel")
    replay.add_argument("--policy", type=Path, help="file of the GatePolicy; default: each test's own")
    replay.add_argument("--why", metavar="TEST", help="print every check's result of one Test entry")
    power = kinds.add_parser("power", parents=source, help="the effects that a policy's tests see, and what more items or decodes buy")
    power.add_argument("--policy", type=Path, required=True, help="file of the GatePolicy")
    power.add_argument("--rate", type=float, help="share of right answers to plan with; default: 0.5, at which they vary most")
    power.add_argument("--items", action="append", default=[], metavar="SUITE=NUMBER", help="items of a suite of a fixed file")
    power.add_argument("--from-evidence", nargs="+", default=[], metavar="TEST", help="Test entries, or directories of evidence")
    calibrate = kinds.add_parser("calibrate", parents=source, help="the incumbent's own noise beside each limit of a policy")
    calibrate.add_argument("channel", nargs="?", help="name of the AdapterChannel, for its newest sentinel of the incumbent against itself")
    calibrate.add_argument("--policy", type=Path, help="file of the GatePolicy; default: the one in force")
    calibrate.add_argument("--evidence", type=Path, nargs="+", default=[], metavar="DIR", help="directories of evidence instead")


def run_gate(console: Console, args: argparse.Namespace) -> int:
    """Carry out a `gate` command; the exit status is 2 when evidence that was to be read is missing. Raises GatevalveError."""
    runs: dict[str, Callable[[Console, argparse.Namespace], int]] = {"replay": _replay, "power": _power, "calibrate": _calibrate}
    return runs[args.gate](console, args)


def _replay(console: Console, args: argparse.Namespace) -> int:
    policy = read_policy(args.policy) if args.policy else None
    found = asyncio.run(gate_replay.replay(question(args, args.channel), policy))
    if args.json:
        _json(found.wire() if args.why is None else gate_replay.why_wire(found, args.why))
    elif args.why is not None:
        _lines(console, gate_replay.why(found, args.why))
    else:
        _shown(console, gate_replay.table(found), gate_replay.told(found))
    return 2 if any(line.missing for line in found.lines) else 0


def _power(console: Console, args: argparse.Namespace) -> int:
    policy = read_policy(args.policy)
    if args.rate is not None and not 0 < args.rate < 1:
        raise ContractError("--rate", f"{args.rate} is no share of right answers", "give a number between 0 and 1")
    evidence = [_named(args, text) for text in args.from_evidence]
    found = gate_power.power_table(policy, args.rate, dict(map(_size, args.items)), evidence)
    if args.json:
        _json(found.wire())
    else:
        _shown(console, gate_power.table(found), gate_power.told(found))
    return 0


def _named(args: argparse.Namespace, text: str) -> Named:
    """The evidence in a directory, or of a Test entry."""
    if Path(text).is_dir():
        return lying("--from-evidence", Path(text))
    channel, separator, sequence = text.rpartition("-")
    if not (separator and sequence.isdigit()):
        raise ContractError("--from-evidence", f"{text} is neither a directory nor an entry", "give one, such as support-000007")
    asked = question(args, channel)
    return asyncio.run(of_entry(sound_log(asked), asked.sealed_dir, text))


def _size(text: str) -> tuple[str, int]:
    suite, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit() and len(number) < 8) or int(number) < 2:
        raise ContractError("--items", f"{text} names no number of items", "give SUITE=NUMBER, from 2 to 9999999")
    return suite, int(number)


def _calibrate(console: Console, args: argparse.Namespace) -> int:
    found = list(_tables(args))
    if args.json:
        _json({"tables": [one.wire() for one in found]})
        return 0
    for one in found:
        _shown(console, gate_calibrate.table(one), gate_calibrate.told(one))
    return 0


def _tables(args: argparse.Namespace) -> Iterator[gate_calibrate.CalibrationTable]:
    policy = read_policy(args.policy) if args.policy else None
    if args.evidence:
        for directory in args.evidence:
            yield gate_calibrate.calibration_table(_given(policy, "--policy"), lying("--evidence", directory))
        return
    if args.channel is None:
        raise ContractError("channel", "neither a channel nor evidence is named", "give a channel, or --evidence with directories")
    asked = question(args, args.channel)
    log = sound_log(asked)
    named = asyncio.run(newest_same(log, asked.sealed_dir))
    yield gate_calibrate.calibration_table(_given(policy or log.policy, "--policy"), named, same=True)


def _given(policy: GatePolicySpec | None, option: str) -> GatePolicySpec:
    if policy is None:
        raise ContractError(option, "no policy is at hand to compare with", "give the file of a GatePolicy")
    return policy


def _json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def _shown(console: Console, table: Table, lines: Iterable[str]) -> None:
    console.print(table)
    _lines(console, lines)


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
