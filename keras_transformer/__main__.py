"""`python -m keras_transformer` is `keras-transformer`."""

from .commands.main import main

main()
