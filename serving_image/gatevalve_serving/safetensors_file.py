"""Shapes and finiteness of safetensors files, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
from safetensors import safe_open

Shapes = Mapping[str, tuple[int, ...]]

EXPONENTS = {"F32": (np.uint32, 0x7F80_0000), "BF16": (np.uint16, 0x7F80), "F16": (np.uint16, 0x7C00)}
"""Element as unsigned integer and its exponent bits: all of them set means infinity or NaN (IEEE 754)."""


def shapes_below(directory: Path) -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes of every safetensors file directly in a directory; reads headers only."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        shapes |= shapes_in(path)
    return shapes


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes of one file; raises safetensors.SafetensorError when it is none."""
    with safe_open(path, framework="np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 -- not a mapping


def not_finite(path: Path) -> list[str]:
    """Tensors that hold a NaN or an infinity, or are of another type than F32, F16 and BF16."""
    tensors = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]  # from Rust, without types
    return [name for name, tensor in tensors if not _finite(tensor["dtype"], tensor["data"])]


def _finite(dtype: str, data: bytes) -> bool:
    if dtype not in EXPONENTS:
        return False
    element, exponent = EXPONENTS[dtype]
    return not bool(((np.frombuffer(data, element) & exponent) == exponent).any())
