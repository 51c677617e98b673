"""Parallel text: where it is read from, and which pairs of it are used."""
