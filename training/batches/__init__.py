"""Text to batches of token ids."""
