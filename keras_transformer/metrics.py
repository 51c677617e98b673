"""Accuracy and perplexity over real tokens."""

from typing import Annotated, Any

import keras
from keras import ops

from .losses import SMALLEST_PROBABILITY, token_crossentropy, token_mask, token_weights
from .masks import PADDING_ID
from .rules import Count, annotations_of, check_attributes
from .tensors import Tensor


class _TokenMean(keras.metrics.Mean):
    """The mean of a value over all real tokens."""

    def __init__(
        self,
        name: str,
        dtype: keras.DTypePolicy | str | None,
        padding_id: Count | None,
        ignore_class: int | None,
        from_logits: bool,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.padding_id = padding_id
        self.ignore_class = ignore_class
        self.from_logits = from_logits
        check_attributes(self, _TokenMean)

    def update_state(
        self,
        y_true: Annotated[Tensor, "int (batch, length)"],
        y_pred: Annotated[Tensor, "(batch, length, vocab_size)"],
        sample_weight: Annotated[Tensor, "(batch,), (batch, 1) or (batch, length)"] | None = None,
    ) -> None:
        y_true = ops.cast(y_true, "int32")
        # Read the mask before the conversion, which may lose it.
        mask = token_mask(y_true, y_pred, self.padding_id, self.ignore_class)
        y_pred = ops.convert_to_tensor(y_pred)
        # An ignored label may lie outside the vocabulary.
        values = self.token_values(ops.where(mask, y_true, 0), y_pred)
        weights = ops.cast(mask, "float32")
        if sample_weight is not None:
            weights = weights * token_weights(sample_weight, values)
        # Flat: Keras would take the mean of each sentence first, and a token of a long batch would
        # count less than one of a short batch.
        super().update_state(ops.reshape(values, (-1,)), sample_weight=ops.reshape(weights, (-1,)))

    def token_values(
        self,
        labels: Annotated[Tensor, "int32 (batch, length)"],
        predictions: Annotated[Tensor, "(batch, length, vocab_size)"],
    ) -> Annotated[Tensor, "float32 (batch, length)"]:
        """Returns the value of every token."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in annotations_of(_TokenMean.__init__)},
        }


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedAccuracy(_TokenMean):
    """The share of real tokens whose label has the highest logit.

    Padding, `ignore_class` and labels below 0 are left out.

    Args:
        name: str. Defaults to "masked_accuracy".
        dtype: Keras dtype policy of the metric. Defaults to None.
        padding_id: int or None. The label of padding. None means that no label is: then tokens that
            the Keras mask of the predictions hides are left out, as in Keras' own metrics. Defaults
            to 0.
        ignore_class: int. Another label that is left out. Defaults to None.
        from_logits: bool. Whether the predictions are logits, or probabilities: here, it makes no
            difference. Defaults to True.

    Raises:
        ConfigError: An argument breaks its rule.

    Example:
        >>> accuracy = MaskedAccuracy()
        >>> accuracy.update_state(np.array([[1, 2, 0]]), keras.ops.one_hot([[1, 3, 3]], 4))
        >>> float(accuracy.result())
        0.5
    """

    def __init__(
        self,
        name: str = "masked_accuracy",
        dtype: keras.DTypePolicy | str | None = None,
        *,
        padding_id: Count | None = PADDING_ID,
        ignore_class: int | None = None,
        from_logits: bool = True,
    ) -> None:
        super().__init__(name, dtype, padding_id, ignore_class, from_logits)

    def token_values(self, labels: Tensor, predictions: Tensor) -> Tensor:
        return ops.cast(ops.equal(ops.argmax(predictions, axis=-1), labels), "float32")


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """exp of the mean cross-entropy, without label smoothing, of the real tokens.

    Padding, `ignore_class` and labels below 0 are left out.

    Args:
        name: str. Defaults to "perplexity".
        dtype: Keras dtype policy of the metric. Defaults to None.
        padding_id: int or None. The label of padding. None means that no label is: then tokens that
            the Keras mask of the predictions hides are left out, as in Keras' own metrics. Defaults
            to 0.
        ignore_class: int. Another label that is left out. Defaults to None.
        from_logits: bool. Whether the predictions are logits, or probabilities. Defaults to True.

    Raises:
        ConfigError: An argument breaks its rule.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state(np.array([[1, 0]]), np.zeros((1, 2, 4)))
        >>> round(float(perplexity.result()), 4)
        4.0
    """

    def __init__(
        self,
        name: str = "perplexity",
        dtype: keras.DTypePolicy | str | None = None,
        *,
        padding_id: Count | None = PADDING_ID,
        ignore_class: int | None = None,
        from_logits: bool = True,
    ) -> None:
        super().__init__(name, dtype, padding_id, ignore_class, from_logits)

    def token_values(self, labels: Tensor, predictions: Tensor) -> Tensor:
        if self.from_logits:
            return token_crossentropy(labels, predictions)
        probabilities = ops.cast(
            ops.take_along_axis(predictions, labels[..., None], axis=-1)[..., 0], "float32"
        )
        return -ops.log(ops.maximum(probabilities, SMALLEST_PROBABILITY))

    def result(self) -> Annotated[Tensor, "float32 ()"]:
        return ops.exp(super().result())
