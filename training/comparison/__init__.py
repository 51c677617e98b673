"""Compares the translations of several systems."""
