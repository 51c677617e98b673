"""The paper's loss for `model.fit`, which ignores padding (section 5.4).

The command `train` computes the same loss in training/step/crossentropy.py, but does not keep all
logits in memory at once.
"""

from typing import Any

import keras
from keras import ops

from ..checks import boolean, integer, non_negative_int, rate, require
from ..masks import PADDING_ID, refuse_ragged
from ..tensors import Tensor
from .softmax_warning import warn_of_softmax
from .token_crossentropy import (
    SMALLEST_PROBABILITY,
    token_crossentropy,
    token_mask,
    token_weights,
)


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedLabelSmoothedCrossentropy(keras.losses.Loss):
    """Mean cross-entropy with label smoothing over the tokens of a batch (section 5.4).

    The loss ignores padding, `ignore_class` and labels below 0, such as -100, the label that
    PyTorch and Hugging Face ignore. It uses the Keras mask of the logits only with
    `padding_id=None`. The loss is float32, regardless of the dtype policy.

    Under a `tf.distribute` strategy, `fit` and `evaluate` compute the same loss and gradients as on
    a single device, even if replicas have different numbers of rows or tokens: the sum is divided
    by the number of tokens on all replicas. On each replica, the value of the loss is the loss of
    the whole batch divided by the number of replicas, and the gradient is the replica's share.
    Summed over the replicas, they are the loss and the gradient of the whole batch, even in a
    custom training loop. In such a loop, call the loss directly in the function passed to
    `strategy.run`, because `MirroredStrategy` cannot communicate inside a `tf.while_loop` or
    `tf.cond`.

    Args:
        label_smoothing: float. Label smoothing ε, the probability that is spread over the whole
            vocabulary. Defaults to 0.1, as in the paper.
        reduction: "sum_over_batch_size" divides the sum by the number of tokens that are not
            ignored; "sum" does not divide; None returns the loss of every token, which is 0 for
            ignored labels. Defaults to "sum_over_batch_size".
        name: str. Defaults to "masked_label_smoothed_crossentropy".
        padding_id: int or None. The label of padding. With None, the loss ignores tokens that the
            Keras mask of the logits hides, as Keras' losses do. Defaults to 0.
        ignore_class: int or None. Another label to ignore, which may be outside the vocabulary.
            Defaults to None.
        from_logits: bool. Whether the predictions are logits instead of probabilities. On
            TensorFlow and PyTorch, you get a warning if you pass probabilities from a softmax with
            `from_logits=True`. Defaults to True.

    Call arguments:
        y_true: int (batch, length). The labels.
        y_pred: (batch, length, vocab_size). Logits or probabilities.
        sample_weight: (batch,), (batch, 1) or (batch, length). Weights of sentences or tokens. As
            in Keras, the mean is the weighted sum divided by the unweighted number of tokens.

    Returns:
        float32 (), or (batch, length) without reduction.

    Raises:
        ConfigError: An argument is invalid, or a tensor is ragged.

    Example:
        >>> loss = MaskedLabelSmoothedCrossentropy(label_smoothing=0.1)
        >>> round(float(loss(np.array([[3, 0]]), np.zeros((1, 2, 8)))), 4)  # log(8), of one token
        2.0794
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "masked_label_smoothed_crossentropy",
        padding_id: int | None = PADDING_ID,
        ignore_class: int | None = None,
        from_logits: bool = True,
    ) -> None:
        require(
            reduction in ("sum_over_batch_size", "sum", "none", None),
            "reduction",
            "'sum_over_batch_size', 'sum' or None",
            reduction,
        )
        # The dtype is not an argument, because the loss is always computed in float32, regardless
        # of `keras.config.floatx()`.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = rate("label_smoothing", label_smoothing)
        self.padding_id = non_negative_int("padding_id", padding_id, optional=True)
        self.ignore_class = integer("ignore_class", ignore_class, optional=True)
        self.from_logits = boolean("from_logits", from_logits)
        self._has_warned = False

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        mask = token_mask(y_true, y_pred, self.padding_id, self.ignore_class)
        return self._token_losses(y_true, y_pred, mask)

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        refuse_ragged("y_true", y_true)
        refuse_ragged("y_pred", y_pred)
        refuse_ragged("sample_weight", sample_weight)
        if self.from_logits and not self._has_warned:
            self._has_warned = warn_of_softmax(self.name, y_pred)
        y_true = ops.cast(ops.convert_to_tensor(y_true), "int32")
        # Read the mask first, because the conversion to a tensor may lose it.
        mask = token_mask(y_true, y_pred, self.padding_id, self.ignore_class)
        losses = self._token_losses(y_true, ops.convert_to_tensor(y_pred), mask)
        if sample_weight is not None:
            losses = losses * token_weights(sample_weight, losses)
        if self.reduction in (None, "none"):
            return losses
        num_tokens = None if self.reduction == "sum" else ops.sum(ops.cast(mask, "float32"))
        return _reduce_over_replicas(ops.sum(losses), num_tokens)

    def _token_losses(self, labels: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
        if not self.from_logits:
            # Logarithms of probabilities are logits of the same distribution.
            logits = ops.log(ops.maximum(ops.cast(logits, "float32"), SMALLEST_PROBABILITY))
        # An ignored label may be outside the vocabulary.
        losses = token_crossentropy(ops.where(mask, labels, 0), logits, self.label_smoothing)
        return ops.where(mask, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "padding_id": self.padding_id,
            "ignore_class": self.ignore_class,
            "from_logits": self.from_logits,
        }


def _reduce_over_replicas(total: Tensor, num_tokens: Tensor | None) -> Tensor:
    """Adds the losses of all replicas, and divides the sum by their `num_tokens`, if given.

    The gradients are divided in the same way. All tensors are float32 ().
    """
    replicas = _replica_context()
    if replicas is None:
        return total if num_tokens is None else total / ops.maximum(num_tokens, 1.0)
    sums = ops.stack(
        [ops.stop_gradient(total)] if num_tokens is None else [ops.stop_gradient(total), num_tokens]
    )
    sums = replicas.all_reduce("SUM", sums)
    denominator = 1.0 if num_tokens is None else ops.maximum(sums[1], 1.0)
    # Keras' trainer weights each replica's loss by its number of rows, and multiplies it by the
    # number of replicas. The numbers of rows do not matter here, because all replicas return the
    # same value. The gradient comes from the replica's own sum.
    share = total / denominator
    return sums[0] / (denominator * replicas.num_replicas_in_sync) + (
        share - ops.stop_gradient(share)
    )


def _replica_context() -> Any:
    """Returns the `tf.distribute.ReplicaContext` if there are several replicas, or None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    # In the scope of a strategy, but outside of `run`, this is None, and the batch is not divided.
    replicas = tf.distribute.get_replica_context()
    return replicas if replicas is not None and replicas.num_replicas_in_sync > 1 else None
