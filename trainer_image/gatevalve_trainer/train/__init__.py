"""Train: turns a snapshot into an adapter, from the incumbent or from a fresh one on the base."""
