"""A training run, from its first step or resumed, to its last."""
