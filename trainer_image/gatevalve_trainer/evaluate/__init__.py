"""Measures a candidate against incumbent and anchor on sealed and fixed suites; it reports and never judges."""
