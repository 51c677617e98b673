"""Accuracy and perplexity over real tokens."""

from typing import Annotated

import keras
from keras import ops

from .losses import token_crossentropy
from .masks import label_mask
from .tensors import Tensor


class _TokenMean(keras.metrics.Mean):
    """The mean of a value over all real tokens."""

    def update_state(
        self,
        y_true: Annotated[Tensor, "int (batch, length)"],
        y_pred: Annotated[Tensor, "(batch, length, vocab_size)"],
        sample_weight: Annotated[Tensor, "(batch,) or (batch, length)"] | None = None,
    ) -> None:
        y_true = ops.cast(y_true, "int32")
        weights = ops.cast(label_mask(y_true), "float32")
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            weights = weights * (sample_weight[:, None] if len(sample_weight.shape) == 1 else sample_weight)
        # Flat: Keras would take the mean of each sentence first, and a token of a long batch would count less than
        # one of a short batch.
        values = ops.reshape(self.token_values(y_true, y_pred), (-1,))
        super().update_state(values, sample_weight=ops.reshape(weights, (-1,)))

    def token_values(
        self,
        labels: Annotated[Tensor, "int32 (batch, length)"],
        logits: Annotated[Tensor, "(batch, length, vocab_size)"],
    ) -> Annotated[Tensor, "float32 (batch, length)"]:
        """Returns the value of every token."""
        raise NotImplementedError


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedAccuracy(_TokenMean):
    """The share of real tokens whose label has the highest logit.

    Label 0 is padding; labels below 0 are left out too.

    Args:
        name: str. Defaults to "masked_accuracy".
        dtype: Keras dtype policy of the metric. Defaults to None.

    Example:
        >>> accuracy = MaskedAccuracy()
        >>> accuracy.update_state(np.array([[1, 2, 0]]), keras.ops.one_hot([[1, 3, 3]], 4))
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, name: str = "masked_accuracy", dtype: keras.DTypePolicy | str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def token_values(self, labels: Tensor, logits: Tensor) -> Tensor:
        return ops.cast(ops.equal(ops.argmax(logits, axis=-1), labels), "float32")


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """exp of the mean cross-entropy, without label smoothing, of the real tokens.

    Label 0 is padding; labels below 0 are left out too.

    Args:
        name: str. Defaults to "perplexity".
        dtype: Keras dtype policy of the metric. Defaults to None.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state(np.array([[1, 0]]), np.zeros((1, 2, 4)))
        >>> round(float(perplexity.result()), 4)
        4.0
    """

    def __init__(self, name: str = "perplexity", dtype: keras.DTypePolicy | str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def token_values(self, labels: Tensor, logits: Tensor) -> Tensor:
        return token_crossentropy(labels, logits)

    def result(self) -> Annotated[Tensor, "float32 ()"]:
        return ops.exp(super().result())
