"""`python -m keras_transformer` is `keras-transformer`."""

from .cli import main

main()
