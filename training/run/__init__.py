"""Runs training, from the first step or from where an earlier run stopped."""
