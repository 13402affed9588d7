"""`kubectl gatevalve`: what people ask of the log."""
