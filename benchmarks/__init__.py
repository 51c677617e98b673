"""Benchmarks. They are run from the root of the repository and are not installed."""
