"""The engine's model names of an evaluation's arms: with a digest in each, no other engine can answer for this one."""

from __future__ import annotations

from gatevalve.contracts.names import adapter_name


def arm_names(base: str, candidate: str, incumbent: str | None, anchor: str | None) -> dict[str, str]:
    """The model of each arm; a digest of None is the base, and an anchor that is the incumbent is asked under its name."""
    return {
        "candidate": adapter_name("candidate", candidate),
        "incumbent": _model("incumbent", incumbent, base),
        "anchor": _model("incumbent" if anchor == incumbent else "anchor", anchor, base),
    }


def _model(arm: str, digest: str | None, base: str) -> str:
    return adapter_name(arm, digest) if digest is not None else base
