"""Running out of memory, told apart from other errors of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gatevalve_trainer.errors import OutOfMemory

CPU_ALLOCATION_FAILED = "DefaultCPUAllocator"
"""What torch's CPU allocator says in its RuntimeError when it gets no memory; it has no type of its own."""


@contextmanager
def out_of_memory_typed() -> Iterator[None]:
    """Within, torch's own out-of-memory errors become OutOfMemory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"the device has no memory left: {error}") from error
    except RuntimeError as error:
        if CPU_ALLOCATION_FAILED not in str(error):
            raise
        raise OutOfMemory(f"the container has no memory left: {error}") from error
