"""Devices, packages, streams, fonts and the progress bar."""
