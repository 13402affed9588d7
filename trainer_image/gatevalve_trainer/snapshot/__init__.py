"""Snapshot: freezes the captured traffic of a window into a named set of rows."""
