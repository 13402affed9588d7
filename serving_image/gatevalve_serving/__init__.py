"""gatevalve, serving package."""
