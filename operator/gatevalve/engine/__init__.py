"""The engine: kopf events feed a queue of channel names; each is gathered into a view, decided, and the plan executed."""
