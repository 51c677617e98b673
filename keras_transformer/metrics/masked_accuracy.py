"""Accuracy over all tokens that are not padding."""

import keras
from keras import ops

from ..masks import PADDING_ID
from ..tensors import Tensor
from .token_mean import TokenMean


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedAccuracy(TokenMean):
    """Accuracy: the fraction of tokens whose label has the highest logit.

    The metric ignores padding, `ignore_class` and labels below 0.

    Args:
        name: str. Defaults to "masked_accuracy".
        dtype: str, `keras.DTypePolicy` or None. Defaults to None: the global floatx.
        padding_id: int or None. The label of padding. With None, the metric ignores tokens that the
            Keras mask of the predictions hides, as Keras' metrics do. On JAX, however, Keras loses
            this mask in `fit` and `train_on_batch`, so these tokens count. Defaults to 0.
        ignore_class: int or None. Another label to ignore. Defaults to None.
        from_logits: bool. Whether the predictions are logits instead of probabilities. This does
            not affect the accuracy. Defaults to True.

    Call arguments:
        y_true: int (batch, length). The labels.
        y_pred: (batch, length, vocab_size). Logits or probabilities.
        sample_weight: (batch,), (batch, 1) or (batch, length). Weights of sentences or tokens.

    Raises:
        ConfigError: An argument is invalid, or a tensor is ragged.

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
        padding_id: int | None = PADDING_ID,
        ignore_class: int | None = None,
        from_logits: bool = True,
    ) -> None:
        super().__init__(name, dtype, padding_id, ignore_class, from_logits)

    def token_values(self, labels: Tensor, predictions: Tensor) -> Tensor:
        return ops.cast(ops.equal(ops.argmax(predictions, axis=-1), labels), "float32")
