"""Which subwords of a parallel text are translations of each other, and shortlists made of them."""
