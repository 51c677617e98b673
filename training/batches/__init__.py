"""Converts parallel text to batches of token ids."""
