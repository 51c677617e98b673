"""Trains translators, from text files to model directories."""
