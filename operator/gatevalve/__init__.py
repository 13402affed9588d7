"""gatevalve, operator package."""
