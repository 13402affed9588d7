"""GatePolicies at hand as manifests, before anybody applies them."""

from __future__ import annotations

from pathlib import Path

import yaml

from gatevalve.contracts.errors import ContractError
from gatevalve.contracts.names import API_VERSION
from gatevalve.contracts.policy import GatePolicySpec

KIND = "GatePolicy"


def read_policy(path: Path) -> GatePolicySpec:
    """The one GatePolicy of a YAML file. Raises ContractError when the file is none, or its spec breaks the contract."""
    found = [thing for thing in _documents(path) if isinstance(thing, dict) and thing.get("kind") == KIND]
    if len(found) != 1:
        raise ContractError("--policy", f"{path} holds {len(found)} objects of kind {KIND}", "give a file with one")
    if (version := found[0].get("apiVersion")) != API_VERSION:
        raise ContractError("--policy", f"{path} has apiVersion {version}", f"give {API_VERSION}")
    try:
        return GatePolicySpec.parse(found[0].get("spec"))
    except ContractError as error:
        raise ContractError(f"{path}: {error.field.replace(GatePolicySpec.__name__, 'spec', 1)}", error.problem, error.remedy) from error


def _documents(path: Path) -> list[object]:
    try:
        return list(yaml.safe_load_all(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError("--policy", f"{path} cannot be read: {error}", f"give the file of a {KIND}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ContractError("--policy", f"{path} is no YAML: {' '.join(str(error).split())}", f"give the file of a {KIND}") from error
