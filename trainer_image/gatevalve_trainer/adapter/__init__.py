"""Adapters on disk: what may be in one, how it is read, checked, probed and written."""
