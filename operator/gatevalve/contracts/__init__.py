"""Names, files, messages and kinds that the parts of gatevalve agree on: pydantic and the standard library only."""
