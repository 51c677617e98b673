"""Multi-head attention and its parts, one subject to a file."""
