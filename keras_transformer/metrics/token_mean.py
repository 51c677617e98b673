"""Base class for accuracy and perplexity: a mean over the tokens of all batches."""

from typing import Any

import keras
from keras import ops

from ..checks import boolean, integer, non_negative_int
from ..losses import token_mask, token_weights
from ..masks import refuse_ragged
from ..tensors import Tensor


class TokenMean(keras.metrics.Mean):
    """Mean over all tokens of a value that a subclass computes in `token_values`.

    The metric ignores padding, `ignore_class` and labels below 0.

    Args:
        name: str. Name of the metric in logs.
        dtype: str, `keras.DTypePolicy` or None. Dtype of the metric.
        padding_id: int or None. The label of padding.
        ignore_class: int or None. Another label to ignore.
        from_logits: bool. Whether the predictions are logits instead of probabilities.
    """

    def __init__(
        self,
        name: str,
        dtype: keras.DTypePolicy | str | None,
        padding_id: int | None,
        ignore_class: int | None,
        from_logits: bool,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.padding_id = non_negative_int("padding_id", padding_id, optional=True)
        self.ignore_class = integer("ignore_class", ignore_class, optional=True)
        self.from_logits = boolean("from_logits", from_logits)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        refuse_ragged("y_true", y_true)
        refuse_ragged("y_pred", y_pred)
        refuse_ragged("sample_weight", sample_weight)
        y_true = ops.cast(ops.convert_to_tensor(y_true), "int32")
        # Read the mask first, because the conversion to a tensor may lose it.
        mask = token_mask(y_true, y_pred, self.padding_id, self.ignore_class)
        y_pred = ops.convert_to_tensor(y_pred)
        # An ignored label may be outside the vocabulary.
        values = self.token_values(ops.where(mask, y_true, 0), y_pred)
        weights = ops.cast(mask, "float32")
        if sample_weight is not None:
            weights = weights * token_weights(sample_weight, values)
        # Flatten the values. Otherwise, Keras would first average each sentence, and tokens of a
        # long batch would count less than tokens of a short batch.
        super().update_state(ops.reshape(values, (-1,)), sample_weight=ops.reshape(weights, (-1,)))

    def token_values(self, labels: Tensor, predictions: Tensor) -> Tensor:
        """Returns the value of every token.

        Args:
            labels: int32 (batch, length).
            predictions: (batch, length, vocab_size).

        Returns:
            float32 (batch, length).
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "padding_id": self.padding_id,
            "ignore_class": self.ignore_class,
            "from_logits": self.from_logits,
        }
