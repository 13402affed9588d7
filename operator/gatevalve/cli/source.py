"""Where a command reads a channel's log and evidence from: options, and the question that they add up to."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from gatevalve.cli.areas import log_root
from gatevalve.cli.cluster import Reader
from gatevalve.cli.verify import Question
from gatevalve.contracts import patterns
from gatevalve.contracts.errors import ClusterError, ContractError
from gatevalve.io.signing import VerifyKey


def cluster_options() -> argparse.ArgumentParser:
    """Options of every command that asks a cluster."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--namespace", "-n", help="default: the current context's")
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG or ~/.kube/config")
    return parser


def log_options() -> argparse.ArgumentParser:
    """Options of every command that reads a log whole."""
    parser = argparse.ArgumentParser(add_help=False, parents=[cluster_options()])
    parser.add_argument("--key-sha256", help="the signing key's digest you trust (NOTES prints it); default: the one that Open names")
    parser.add_argument("--certificate", type=Path, help="the signing key's certificate; default: those in ConfigMap gatevalve-keys")
    parser.add_argument("--log", type=Path, help="root of the external log; verify compares every entry with its copy there")
    parser.add_argument("--offline", action="store_true", help="read the entries from --log instead of the API server")
    parser.add_argument("--sealed", type=Path, help="root of the sealed area, to judge from its evidence")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    return parser


def question(args: argparse.Namespace, channel: str) -> Question:
    """What is at hand; the cluster is asked only for what no file gives. Raises ContractError, ClusterError."""
    if args.offline and args.log is None:
        raise ContractError("--offline", "reads entries from the external log", "give its directory with --log")
    if args.log is not None:
        log_root(args.log)
    if args.key_sha256 is not None and not re.fullmatch(patterns.DIGEST, args.key_sha256):
        raise ContractError("--key-sha256", f"{args.key_sha256} is no digest", "give sha256: and 64 hexadecimal digits, as NOTES prints it")
    certificate = _certificate(args.certificate) if args.certificate else None
    reader = None if args.offline and certificate else _reader(args)
    certificates = [certificate] if certificate else reader.certificates() if reader else []
    things = reader.entries(channel) if reader and not args.offline else None
    if things == [] and args.log is None and reader is not None:
        raise nothing_of(channel, reader)
    return Question(channel, things, certificates, args.key_sha256, args.log, args.sealed)


def _reader(args: argparse.Namespace) -> Reader:
    try:
        return Reader.connect(args.kubeconfig, args.namespace)
    except ClusterError as error:
        raise ClusterError(f"{error}{'; with --certificate no cluster is asked' if args.offline else ''}") from error


def nothing_of(channel: str, reader: Reader) -> ClusterError:
    """The API server holds no entry of a channel."""
    return ClusterError(f"no entry of channel {channel} in namespace {reader.namespace}; check the name, or give --namespace")


def _certificate(path: Path) -> bytes:
    try:
        return VerifyKey.from_certificate(path.read_bytes()).certificate
    except OSError as error:
        raise ContractError("--certificate", f"{path} cannot be read: {error.strerror}", "give the signing key's certificate") from error
    except ContractError as error:
        raise ContractError("--certificate", f"{path}: {error}", "give the signing key's certificate") from error
