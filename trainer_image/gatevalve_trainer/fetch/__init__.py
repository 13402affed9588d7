"""Fetch: verifies an adapter made elsewhere and writes it as one of ours."""
