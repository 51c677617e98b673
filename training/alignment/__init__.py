"""Aligns the words of parallel text, and learns shortlists from the alignments."""
