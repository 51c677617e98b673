"""Reads and filters parallel text."""
