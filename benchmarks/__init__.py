"""Measurements, run from the repository's root; not installed."""
