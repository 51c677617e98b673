"""Encoder and decoder, their layers and sublayers, one subject to a file."""
