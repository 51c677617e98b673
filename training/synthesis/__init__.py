"""Pairs that a model makes: back-translations of a text in the target language, and a teacher's
translations."""
