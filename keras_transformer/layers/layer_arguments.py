"""Types of arguments for users' type checkers: Keras has none."""

from collections.abc import Callable
from typing import Any, TypedDict

import keras


class CommonArguments(TypedDict, total=False):
    """What the constructor of each layer takes besides its own arguments."""

    name: str | None
    dtype: str | keras.DTypePolicy | None
    trainable: bool
    autocast: bool


class LayerArguments(CommonArguments, total=False):
    """The same for layers that do not describe `activity_regularizer` themselves."""

    activity_regularizer: str | keras.regularizers.Regularizer | None


# To a type checker Keras' own activations return anything, and None.
Activation = str | Callable[..., Any]
