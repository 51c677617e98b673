"""Perplexity over all tokens that are not padding."""

import keras
from keras import ops

from ..losses import SMALLEST_PROBABILITY, token_crossentropy
from ..losses.softmax_warning import warn_of_softmax
from ..masks import PADDING_ID
from ..tensors import Tensor
from .token_mean import TokenMean


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(TokenMean):
    """Perplexity: exp of the mean cross-entropy of the tokens, without label smoothing.

    The metric ignores padding, `ignore_class` and labels below 0.

    Args:
        name: str. Defaults to "perplexity".
        dtype: str, `keras.DTypePolicy` or None. Defaults to None: the global floatx.
        padding_id: int or None. The label of padding. With None, the metric ignores tokens that the
            Keras mask of the predictions hides, as Keras' metrics do. Defaults to 0.
        ignore_class: int or None. Another label to ignore. Defaults to None.
        from_logits: bool. Whether the predictions are logits instead of probabilities. On
            TensorFlow and PyTorch, you get a warning if you pass probabilities from a softmax with
            `from_logits=True`. Defaults to True.

    Call arguments:
        y_true: int (batch, length). The labels.
        y_pred: (batch, length, vocab_size). Logits or probabilities.
        sample_weight: (batch,), (batch, 1) or (batch, length). Weights of sentences or tokens.

    Raises:
        ConfigError: An argument is invalid, or a tensor is ragged.

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
        padding_id: int | None = PADDING_ID,
        ignore_class: int | None = None,
        from_logits: bool = True,
    ) -> None:
        super().__init__(name, dtype, padding_id, ignore_class, from_logits)
        self._has_warned = False

    def token_values(self, labels: Tensor, predictions: Tensor) -> Tensor:
        if self.from_logits:
            if not self._has_warned:
                self._has_warned = warn_of_softmax(self.name, predictions)
            return token_crossentropy(labels, predictions)
        probabilities = ops.cast(
            ops.take_along_axis(predictions, labels[..., None], axis=-1)[..., 0], "float32"
        )
        return -ops.log(ops.maximum(probabilities, SMALLEST_PROBABILITY))

    def result(self) -> Tensor:
        return ops.exp(super().result())
