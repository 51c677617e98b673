"""Runs the command `keras-transformer` as `python -m keras_transformer`."""

from .commands.main import main

main()
