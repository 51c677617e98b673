"""One update of the weights."""
