"""How a step may end other than done; each type has one exit code in `gatevalve_trainer.main`."""

from __future__ import annotations

from gatevalve.contracts.errors import GatevalveError


class NoSignal(GatevalveError):
    """There is nothing to learn: too few rows, or no spread in their scores."""


class ItemSupply(GatevalveError):
    """There are too few fresh items for a round. The message holds counts only."""


class Diverged(GatevalveError):
    """A loss, a gradient or a weight is not finite."""


class ReplayMismatch(GatevalveError):
    """Logged log-probabilities do not replay on the adapter that produced them."""


class OutOfMemory(GatevalveError):
    """The device or the container has no memory left for the step."""


class BackendUnavailable(GatevalveError):
    """An engine or another backend does not answer, or is not done yet: the step is worth another try after a pause."""


class Terminated(GatevalveError):
    """The process was told to stop (SIGTERM)."""
