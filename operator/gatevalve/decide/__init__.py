"""Decisions: pure functions from one frozen view (with `now` in it) to a plan. No clock, network, environment or logger."""
