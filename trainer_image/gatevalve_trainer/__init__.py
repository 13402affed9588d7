"""gatevalve, trainer package."""
