"""Token-level cross-entropy, masks and weights."""

from collections.abc import Callable

import keras
from keras import ops

from ..masks import PADDING_ID, implicit_mask
from ..tensors import Tensor

# About the smallest normal float32 number. It replaces smaller probabilities, such as 0.
SMALLEST_PROBABILITY = 1.2e-38


def token_mask(
    labels: Tensor,
    logits: Tensor,
    padding_id: int | None = PADDING_ID,
    ignore_class: int | None = None,
) -> Tensor:
    """Returns True where a token counts toward losses and metrics.

    Padding, `ignore_class` and negative labels, such as -100, do not count. The Keras mask of the
    logits is used only if `padding_id` is None.

    Args:
        labels: int (...).
        logits: (..., vocab_size).
        padding_id: int or None. The label of padding. Defaults to 0.
        ignore_class: int or None. Another label to ignore. Defaults to None.

    Returns:
        bool (...).
    """
    left_out = (padding_id, ignore_class)
    # One comparison excludes negative labels and 0.
    mask = ops.greater(labels, 0) if 0 in left_out else ops.greater_equal(labels, 0)
    for token_id in left_out:
        if token_id is not None and token_id > 0:
            mask = ops.logical_and(mask, ops.not_equal(labels, token_id))
    model_mask = implicit_mask(logits) if padding_id is None else None
    return mask if model_mask is None else ops.logical_and(mask, ops.cast(model_mask, "bool"))


def token_weights(sample_weight: Tensor, values: Tensor) -> Tensor:
    """Returns the weights of samples or tokens in a shape that broadcasts to one value per token.

    Args:
        sample_weight: (batch,), (batch, 1) or (...).
        values: float32 (...). Only the number of axes is used.

    Returns:
        float32, broadcasts to (...).
    """
    sample_weight = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    num_axes = len(values.shape) - len(sample_weight.shape)
    if num_axes <= 0:
        return sample_weight
    return ops.expand_dims(sample_weight, [-1 - axis for axis in range(num_axes)])


def token_crossentropy(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Returns the cross-entropy of every token, in float32.

    The smoothed label distribution `(1 - ε) [k = label] + ε / vocab_size` (Szegedy et al. 2015) is
    not materialized: the loss is `logsumexp(z) - (1 - ε) z[label] - ε mean(z)`.

    Args:
        labels: int (...). Labels below 0 are replaced by 0; the caller must mask them.
        logits: (..., vocab_size).
        label_smoothing: float. ε. Defaults to 0.

    Returns:
        float32 (...).
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
    """Computes `token_crossentropy` with a custom gradient, for TensorFlow.

    TensorFlow's automatic differentiation would materialize a vocabulary-sized tensor for every
    term, and take three times as long. JAX and PyTorch do not need a custom gradient. If they had
    one from Keras, JAX's `jvp` and PyTorch's `func.grad` would raise an error.
    """
    import tensorflow as tf  # Imported here, because other backends do not need TensorFlow.

    vocab_size = logits.shape[-1]
    flat_labels = tf.reshape(labels, (-1,))
    places = tf.stack(
        [tf.range(tf.size(flat_labels, flat_labels.dtype)), flat_labels], axis=-1
    )  # (tokens, 2)

    @tf.custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        # Shapes are (tokens, vocab_size). The gradient needs the softmax anyway, and its largest
        # value yields the normalizer: max(softmax(z)) = exp(max(z) - logsumexp(z)), which is at
        # least 1 / vocab_size. The formula uses only differences of logits, so a small loss stays
        # accurate even with large logits.
        probabilities = tf.nn.softmax(logits)
        largest = tf.reduce_max(logits, axis=-1)
        losses = (1.0 - label_smoothing) * (largest - tf.gather_nd(logits, places))
        if label_smoothing:
            losses += label_smoothing * (largest - tf.reduce_mean(logits, axis=-1))
        losses -= tf.math.log(tf.reduce_max(probabilities, axis=-1))

        def gradient(upstream: Tensor) -> Tensor:
            # The gradient is the softmax minus the smoothed labels.
            rows = probabilities * upstream[:, None]
            if label_smoothing:
                rows -= upstream[:, None] * (label_smoothing / vocab_size)
            return tf.tensor_scatter_nd_add(rows, places, (label_smoothing - 1.0) * upstream)

        return losses, gradient

    return tf.reshape(crossentropy(tf.reshape(logits, (-1, vocab_size))), tf.shape(labels))
