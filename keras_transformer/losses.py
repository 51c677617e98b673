"""Cross-entropy over the real tokens of a batch, with label smoothing (section 5.4 of the
paper)."""

from collections.abc import Callable
from typing import Annotated, Any

import keras
from keras import ops

from .checks import require
from .masks import PADDING_ID, implicit_mask
from .rules import Count, Rate, annotations_of, check_attributes
from .tensors import Tensor

# What float32 rounds to 0 counts as its smallest number.
SMALLEST_PROBABILITY = 1.2e-38


def token_mask(
    labels: Annotated[Tensor, "int (...)"],
    logits: Annotated[Tensor, "(..., vocab_size)"],
    padding_id: int | None = PADDING_ID,
    ignore_class: int | None = None,
) -> Annotated[Tensor, "bool (...)"]:
    """Returns True where a token counts in losses and metrics.

    Its label is neither padding, nor `ignore_class`, nor negative, such as -100. The Keras mask of
    the logits counts only if no label says what is padding.
    """
    left_out = (padding_id, ignore_class)
    # One comparison excludes negative labels and 0.
    mask = ops.greater(labels, 0) if 0 in left_out else ops.greater_equal(labels, 0)
    for token_id in left_out:
        if token_id is not None and token_id > 0:
            mask = ops.logical_and(mask, ops.not_equal(labels, token_id))
    model_mask = implicit_mask(logits) if padding_id is None else None
    return mask if model_mask is None else ops.logical_and(mask, ops.cast(model_mask, "bool"))


def token_weights(
    sample_weight: Annotated[Tensor, "(batch,), (batch, 1) or (...)"],
    values: Annotated[Tensor, "float32 (...)"],
) -> Annotated[Tensor, "float32, broadcasts to (...)"]:
    """Returns the weights of samples or of tokens so that they multiply a value for each token."""
    sample_weight = ops.cast(sample_weight, "float32")
    num_axes = len(values.shape) - len(sample_weight.shape)
    return (
        ops.expand_dims(sample_weight, [-1 - axis for axis in range(num_axes)])
        if num_axes > 0
        else sample_weight
    )


def token_crossentropy(
    labels: Annotated[Tensor, "int (...)"],
    logits: Annotated[Tensor, "(..., vocab_size)"],
    label_smoothing: float = 0.0,
) -> Annotated[Tensor, "float32 (...)"]:
    """Computes the cross-entropy of every token, in float32.

    The label is smoothed to the distribution `(1 - ε) [k = label] + ε / vocab_size` (Szegedy et al.
    2015), which is never materialized: the loss is `logsumexp(z) - (1 - ε) z[label] - ε mean(z)`.

    Labels below 0 are taken for 0: callers leave both out.
    """
    # Backends treat negative indices differently.
    labels = ops.maximum(labels, 0)
    logits = ops.cast(logits, "float32")
    if keras.backend.backend() == "tensorflow":
        return _crossentropy_with_gradient(labels, logits, label_smoothing)
    log_probabilities = ops.log_softmax(logits)
    losses = (label_smoothing - 1.0) * ops.take_along_axis(
        log_probabilities, labels[..., None], axis=-1
    )[..., 0]
    if label_smoothing:
        losses = losses - label_smoothing * ops.mean(log_probabilities, axis=-1)
    return losses


def _crossentropy_with_gradient(labels: Tensor, logits: Tensor, label_smoothing: float) -> Tensor:
    """`token_crossentropy` with a gradient of its own, for TensorFlow.

    Its automatic differentiation materializes a vocabulary-sized tensor for every term, and takes
    three times as long. JAX and PyTorch do not, and their `jvp` and `func.grad` refuse custom
    gradients of Keras.
    """
    import tensorflow as tf  # Here, because other backends do without TensorFlow.

    vocab_size = logits.shape[-1]
    flat_labels = tf.reshape(labels, (-1,))
    places = tf.stack(
        [tf.range(tf.size(flat_labels, flat_labels.dtype)), flat_labels], axis=-1
    )  # (tokens, 2)

    @tf.custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        # (tokens, vocab_size). The gradient needs the softmax anyway, and its largest value gives
        # the normalizer: max(softmax(z)) = exp(max(z) - logsumexp(z)), which is never below 1 /
        # vocab_size. Large logits meet only in differences, so that a small loss keeps its digits.
        probabilities = tf.nn.softmax(logits)
        largest = tf.reduce_max(logits, axis=-1)
        losses = (1.0 - label_smoothing) * (largest - tf.gather_nd(logits, places))
        if label_smoothing:
            losses += label_smoothing * (largest - tf.reduce_mean(logits, axis=-1))
        losses -= tf.math.log(tf.reduce_max(probabilities, axis=-1))

        def gradient(upstream: Tensor) -> Tensor:
            # softmax - smoothed labels.
            rows = probabilities * upstream[:, None]
            if label_smoothing:
                rows -= upstream[:, None] * (label_smoothing / vocab_size)
            return tf.tensor_scatter_nd_add(rows, places, (label_smoothing - 1.0) * upstream)

        return losses, gradient

    return tf.reshape(crossentropy(tf.reshape(logits, (-1, vocab_size))), tf.shape(labels))


@keras.saving.register_keras_serializable("keras_transformer")
class MaskedLabelSmoothedCrossentropy(keras.losses.Loss):
    """Mean cross-entropy over a batch's real tokens, with label smoothing (section 5.4).

    The labels decide which tokens are real: padding, `ignore_class` and labels below 0, such as
    -100, the ignored label of PyTorch and Hugging Face, are left out. The Keras mask of the logits
    counts only with `padding_id=None`. The loss is float32 under every dtype policy.

    Under a `tf.distribute` strategy, `fit` and `evaluate` have the loss and the gradients of one
    device, whatever the replicas' numbers of rows and of real tokens: the loss divides by the
    tokens of all replicas. Its value in a replica is that of the whole batch divided by the number
    of replicas, and its gradient is the replica's share: both add up to those of the whole batch,
    also in a loop of your own. There, call the loss directly in the function that `strategy.run`
    runs: within a `tf.while_loop` or `tf.cond`, `MirroredStrategy` cannot communicate.

    Args:
        label_smoothing: float. ε, the mass spread over the whole vocabulary. Defaults to 0.1, the
            paper's.
        reduction: "sum_over_batch_size", the sum divided by the number of real tokens; "sum"; or
            None, the loss of every token, 0 where the label is left out. Defaults to
            "sum_over_batch_size".
        name: str. Defaults to "masked_label_smoothed_crossentropy".
        padding_id: int or None. The label of padding. None means that no label is: then tokens that
            the Keras mask of the logits hides are left out, as in Keras' own losses. Defaults to 0.
        ignore_class: int. Another label that is left out; it may lie outside the vocabulary.
            Defaults to None.
        from_logits: bool. Whether the predictions are logits, or probabilities. Defaults to True.

    Call arguments:
        y_true: labels.
        y_pred: logits, or probabilities.
        sample_weight: of sentences or of tokens. The mean is then the weighted sum divided by the
            number of real tokens, as in Keras.

    Returns:
        float32 (), or (batch, length) without reduction.

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
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "masked_label_smoothed_crossentropy",
        padding_id: Count | None = PADDING_ID,
        ignore_class: int | None = None,
        from_logits: bool = True,
    ) -> None:
        require(
            reduction in ("sum_over_batch_size", "sum", "none", None),
            "reduction",
            "'sum_over_batch_size', 'sum' or None",
            reduction,
        )
        # Fixed rather than an argument: the loss always computes in this type, whatever
        # `keras.config.floatx()` says.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing
        self.padding_id = padding_id
        self.ignore_class = ignore_class
        self.from_logits = from_logits
        check_attributes(self, MaskedLabelSmoothedCrossentropy)

    def call(
        self,
        y_true: Annotated[Tensor, "int (batch, length)"],
        y_pred: Annotated[Tensor, "(batch, length, vocab_size)"],
    ) -> Annotated[Tensor, "float32 (batch, length)"]:
        return self._token_losses(
            y_true, y_pred, token_mask(y_true, y_pred, self.padding_id, self.ignore_class)
        )

    def __call__(
        self,
        y_true: Annotated[Tensor, "int (batch, length)"],
        y_pred: Annotated[Tensor, "(batch, length, vocab_size)"],
        sample_weight: Annotated[Tensor, "(batch,), (batch, 1) or (batch, length)"] | None = None,
    ) -> Annotated[Tensor, "float32 () or (batch, length)"]:
        y_true = ops.cast(ops.convert_to_tensor(y_true), "int32")
        # Read the mask before the conversion, which may lose it.
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
        # An ignored label may lie outside the vocabulary.
        losses = token_crossentropy(ops.where(mask, labels, 0), logits, self.label_smoothing)
        return ops.where(mask, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        arguments = annotations_of(MaskedLabelSmoothedCrossentropy.__init__)
        return {**super().get_config(), **{name: getattr(self, name) for name in arguments}}


def _reduce_over_replicas(
    total: Annotated[Tensor, "float32 ()"], num_tokens: Annotated[Tensor, "float32 ()"] | None
) -> Annotated[Tensor, "float32 ()"]:
    """Adds the losses, and divides them by the tokens if these are given, over all replicas; so do
    their gradients."""
    replicas = _replica_context()
    if replicas is None:
        return total if num_tokens is None else total / ops.maximum(num_tokens, 1.0)
    sums = ops.stack(
        [ops.stop_gradient(total)] if num_tokens is None else [ops.stop_gradient(total), num_tokens]
    )
    sums = replicas.all_reduce("SUM", sums)
    denominator = 1.0 if num_tokens is None else ops.maximum(sums[1], 1.0)
    # Keras' trainer weights the replicas' losses by their rows and multiplies them by the number of
    # replicas. If all have the same value, their rows do not matter. The gradient is that of the
    # replica's own sum.
    share = total / denominator
    return sums[0] / (denominator * replicas.num_replicas_in_sync) + (
        share - ops.stop_gradient(share)
    )


def _replica_context() -> Any:
    """The `tf.distribute.ReplicaContext` of one of several replicas, or None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    # In the scope of a strategy this is None, and the batch is the whole one.
    replicas = tf.distribute.get_replica_context()
    return replicas if replicas is not None and replicas.num_replicas_in_sync > 1 else None
