"""Word alignment of parallel text, and shortlists that are learned from it."""
