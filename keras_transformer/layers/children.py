"""What a layer hands down to its children: each gets an initializer and a seed of its own."""

import random
from collections.abc import Callable
from typing import TypeVar

import keras

Initializer = TypeVar("Initializer", bound=keras.initializers.Initializer | Callable[..., object])


def child_seed(seed: int | None, name: str) -> int | None:
    """Returns a seed for a child that its siblings do not have: the same in every process, or None without a seed.

    Args:
        seed: the layer's own.
        name: the child's.
    """
    return None if seed is None else random.Random(f"{seed} {name}").getrandbits(31)


def child_initializer(initializer: Initializer, name: str) -> Initializer:
    """Returns an initializer for a child: an instance that is shared, or has the same seed, draws the same numbers.

    Args:
        initializer: the layer's own.
        name: the child's.
    """
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = child_seed(config["seed"], name)
    return type(initializer).from_config(config)
