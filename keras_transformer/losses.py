"""Cross-entropy over the real tokens of a batch, with label smoothing (section 5.4 of the paper)."""

from collections.abc import Callable
from typing import Annotated, Any

import keras
from keras import ops

from .config.rules import Rate, check_attributes, require
from .masks import label_mask
from .tensors import Tensor


def token_crossentropy(
    labels: Annotated[Tensor, "int (...)"], logits: Annotated[Tensor, "(..., vocab_size)"], label_smoothing: float = 0.0
) -> Annotated[Tensor, "float32 (...)"]:
    """Computes the cross-entropy of every token, in float32.

    The label is smoothed to the distribution `(1 - ε) [k = label] + ε / vocab_size` (Szegedy et al. 2015), which is
    never materialized: the loss is `logsumexp(z) - (1 - ε) z[label] - ε mean(z)`.

    Args:
        labels: token ids. Labels below 0 are taken for 0: callers leave both out.
        logits: scores of the vocabulary.
        label_smoothing: ε. Defaults to 0.

    Returns:
        The cross-entropy of every token.
    """
    vocab_size = logits.shape[-1]
    # Backends gather a negative index each in its own way, or not at all.
    labels = ops.maximum(labels, 0)

    @ops.custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        # The gradient needs the softmax anyway, and its largest value gives the normalizer: max(softmax(z)) =
        # exp(max(z) - logsumexp(z)), which is never below 1 / vocab_size. Large logits meet only in differences, so
        # that a small loss keeps its digits.
        probabilities = ops.softmax(logits)
        largest = ops.max(logits, axis=-1)
        label_logits = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        losses = (1.0 - label_smoothing) * (largest - label_logits)
        if label_smoothing:
            losses = losses + label_smoothing * (largest - ops.mean(logits, axis=-1))
        losses = losses - ops.log(ops.max(probabilities, axis=-1))

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> Tensor:
            # softmax - smoothed labels. Automatic differentiation would materialize a vocabulary-sized tensor for
            # every term.
            upstream = ops.reshape(args[0] if upstream is None else upstream, (-1, 1))  # (tokens, 1)
            rows = ops.reshape(probabilities, (-1, vocab_size)) * upstream
            if label_smoothing:
                rows = rows - upstream * (label_smoothing / vocab_size)
            flat_labels = ops.reshape(labels, (-1,))
            row_numbers = ops.arange(ops.shape(flat_labels)[0], dtype=flat_labels.dtype)
            rows = ops.scatter_update(
                rows,
                ops.stack([row_numbers, flat_labels], axis=-1),
                (label_smoothing - 1.0) * upstream[:, 0],
                reduction="add",
            )
            return ops.reshape(rows, ops.shape(logits))

        return losses, gradient

    return crossentropy(ops.cast(logits, "float32"))


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedLabelSmoothedCrossentropy(keras.losses.Loss):
    """Mean cross-entropy over a batch's real tokens, with label smoothing (section 5.4).

    Label 0 is padding and does not count, whether or not the model passes on a Keras mask. Labels below 0 are left out
    too, such as -100, the ignored label of PyTorch and Hugging Face. The loss is float32 under every dtype policy.

    Args:
        label_smoothing: float. ε, the mass spread over the whole vocabulary. Defaults to 0.1, the paper's.
        reduction: "sum_over_batch_size", the sum divided by the number of real tokens; "sum"; or None, the loss of
            every token, 0 where the label is left out. Defaults to "sum_over_batch_size".
        name: str. Defaults to "masked_label_smoothed_crossentropy".

    Call arguments:
        y_true: labels.
        y_pred: logits.
        sample_weight: of sentences or of tokens. The mean is then the weighted sum divided by the number of real
            tokens, as in Keras.

    Returns:
        float32 (), or (batch, length) without reduction. A replica of a `tf.distribute` strategy divides its mean by
        the number of replicas, as Keras' own losses do: `fit` and `evaluate` expect it.

    Raises:
        ConfigError: An argument breaks its rule.

    Example:
        >>> loss = MaskedLabelSmoothedCrossentropy(label_smoothing=0.1)
        >>> round(float(loss(np.array([[3, 0]]), np.zeros((1, 2, 8)))), 4)  # log(8), of one token
        2.0794
    """

    def __init__(
        self,
        label_smoothing: Rate = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "masked_label_smoothed_crossentropy",
    ) -> None:
        require(
            reduction in ("sum_over_batch_size", "sum", "none", None),
            "reduction",
            "'sum_over_batch_size', 'sum' or None",
            reduction,
        )
        # No argument: it is what the loss computes in, whatever `keras.config.floatx()` says.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing
        check_attributes(self, MaskedLabelSmoothedCrossentropy)

    def call(
        self,
        y_true: Annotated[Tensor, "int (batch, length)"],
        y_pred: Annotated[Tensor, "(batch, length, vocab_size)"],
    ) -> Annotated[Tensor, "float32 (batch, length)"]:
        losses = token_crossentropy(y_true, y_pred, self.label_smoothing)  # (batch, length)
        return ops.where(label_mask(y_true), losses, 0.0)

    def __call__(
        self,
        y_true: Annotated[Tensor, "int (batch, length)"],
        y_pred: Annotated[Tensor, "(batch, length, vocab_size)"],
        sample_weight: Annotated[Tensor, "(batch,) or (batch, length)"] | None = None,
    ) -> Annotated[Tensor, "float32 () or (batch, length)"]:
        y_true = ops.cast(ops.convert_to_tensor(y_true), "int32")
        losses = self.call(y_true, ops.convert_to_tensor(y_pred))
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            if len(sample_weight.shape) == 1:
                sample_weight = sample_weight[:, None]
            losses = losses * sample_weight
        if self.reduction in (None, "none"):
            return losses
        total = ops.sum(losses)
        if self.reduction == "sum":
            return total
        num_tokens = ops.sum(ops.cast(label_mask(y_true), "float32"))
        return total / (ops.maximum(num_tokens, 1.0) * _num_replicas())

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


def _num_replicas() -> int:
    """The number of replicas whose gradients are added up."""
    if keras.backend.backend() != "tensorflow":
        return 1
    # `Loss.__call__` asks for it too, but its mean also depends on the mask of the logits, and Keras has no public
    # function for it. Imported here, because other backends do without TensorFlow.
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync
