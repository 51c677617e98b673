"""Pairs that a model makes: back-translations, and a teacher's translations."""
