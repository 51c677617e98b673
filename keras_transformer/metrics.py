"""Accuracy and perplexity over real tokens."""

import keras
from keras import ops

from .losses import token_crossentropy
from .masks import padding_mask


class _TokenMean(keras.metrics.Mean):
    """The mean of a value of every real token."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "int32")
        weights = ops.cast(padding_mask(y_true), "float32")
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            weights = weights * (
                sample_weight[:, None] if len(sample_weight.shape) == 1 else sample_weight
            )
        # Flat, because Keras would take the mean of each sentence first, and tokens of a long batch
        # would count less than those of a short one.
        values = ops.reshape(self.of_tokens(y_true, y_pred), (-1,))
        super().update_state(values, sample_weight=ops.reshape(weights, (-1,)))


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedAccuracy(_TokenMean):
    """The share of real tokens (label 0 is padding) whose label has the highest logit.

    Example:
        >>> accuracy = MaskedAccuracy()
        >>> accuracy.update_state(np.array([[1, 2, 0]]), keras.ops.one_hot([[1, 3, 3]], 4))
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, name="masked_accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def of_tokens(self, labels, logits):
        return ops.cast(ops.equal(ops.argmax(logits, axis=-1), labels), "float32")


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """exp of the mean cross-entropy (no label smoothing) of the real tokens; label 0 is padding.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state(np.array([[1, 0]]), np.zeros((1, 2, 4)))
        >>> round(float(perplexity.result()), 4)
        4.0
    """

    def __init__(self, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def of_tokens(self, labels, logits):
        return token_crossentropy(labels, logits)

    def result(self):
        return ops.exp(super().result())
