"""Training losses: cross-entropy without all logits of a batch in memory, and guided alignment."""

from collections.abc import Callable, Sequence
from typing import Annotated

import tensorflow as tf

from keras_transformer.losses import SMALLEST_PROBABILITY
from keras_transformer.tensors import Tensor

# The number of logits to compute at a time: few enough to fit into a processor's cache, but enough
# for efficient matrix products.
_LOGITS = 2**21


def projected_crossentropy(
    hidden: Annotated[Tensor, "(passes, tokens, d_model)"],
    kernel: Annotated[Tensor, "float32 (d_model, vocab_size)"],
    labels: Annotated[Tensor, "int (tokens,)"],
    label_smoothing: float = 0.0,
    consistency: float = 0.0,
    gradient_scale: Annotated[Tensor, "float32 ()"] | None = None,
    bias: Annotated[Tensor, "float32 (vocab_size,)"] | None = None,
) -> Annotated[Tensor, "float32 ()"]:
    """Computes the label-smoothed cross-entropy of `hidden @ kernel + bias`, summed over tokens.

    The result equals the sum of `keras_transformer.losses.token_crossentropy`. For the logits z of
    a token, the loss is `logsumexp(z) - (1 - ε) z[label] - ε mean(z)`, and the gradient is
    `softmax(z) - (1 - ε) one_hot(label) - ε / vocab_size`.

    The gradient is computed in the same pass: the softmax of a few tokens at a time is converted to
    their part of the gradient immediately, so no tensor has num_tokens * vocab_size elements. The
    term `ε mean(z)` is linear in the logits, so the term and its gradient with respect to `hidden`
    are computed from the mean of the kernel's columns.

    For two passes over the same tokens, the result is the mean of both losses plus the R-Drop term
    (Liang et al. 2021, arXiv 2106.14448): `consistency / 4 * (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))` for every
    token. (The R-Drop paper adds the losses of the passes, so its loss is twice as large.)

    Args:
        hidden: Hidden states in float32, bfloat16 or float16, for one pass or for two passes that
            differ in their dropout. Matrix products are computed in the same dtype. Softmax and
            loss are always computed in float32.
        label_smoothing: ε. Defaults to 0.
        consistency: R-Drop's α, for two passes. Defaults to 0.
        gradient_scale: Factor by which the gradients, but not the loss, are multiplied. In float16,
            gradients must be scaled before they are rounded. Defaults to None, which means 1.
    """

    @tf.custom_gradient
    def crossentropy(
        hidden: Tensor, kernel: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        loss, grad_hidden, *grad_weights = _loss_and_gradients(
            hidden, kernel, bias, labels, label_smoothing, consistency, gradient_scale
        )

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            upstream /= hidden.shape[0]
            scaled = [tf.cast(upstream, hidden.dtype) * grad_hidden]
            scaled += [upstream * grad for grad in grad_weights]
            return tuple(scaled)

        return loss, gradient

    if bias is None:
        return crossentropy(hidden, kernel)
    return crossentropy(hidden, kernel, bias)


def alignment_loss(
    attention: Annotated[Tensor, "(batch, target length, source length)"],
    links: Annotated[Tensor, "int32 (batch, target length)"],
) -> Annotated[Tensor, "float32 ()"]:
    """Computes the loss of guided alignment: attention's cross-entropy, summed over aligned tokens.

    Args:
        attention: Attention weights, which sum to 1 for each target token.
        links: For each target token, the position of the source token that it is aligned with,
            counted from 1, or 0 if there is none.

    Example:
        >>> float(alignment_loss(tf.constant([[[0.5, 0.5], [0.25, 0.75]]]), tf.constant([[0, 1]])))
        1.3862943649291992
    """
    weights = tf.gather(tf.cast(attention, tf.float32), tf.maximum(links - 1, 0), batch_dims=2)
    losses = -tf.math.log(tf.maximum(weights, SMALLEST_PROBABILITY))
    return tf.reduce_sum(tf.where(links > 0, losses, 0.0))


def _loss_and_gradients(
    hidden: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    label_smoothing: float,
    consistency: float,
    gradient_scale: Tensor | None,
) -> tuple[Tensor, ...]:
    """Returns the loss, and its scaled gradients times the number of passes.

    The gradients are with respect to hidden, kernel and, if there is one, bias.
    """
    passes, _, d_model = hidden.shape
    vocab_size = kernel.shape[1]
    dtype = hidden.dtype
    chunk_size = max(_LOGITS // (passes * vocab_size), 1)
    rounded_kernel = tf.cast(kernel, dtype)
    mean_column = tf.reduce_mean(kernel, axis=1)  # (d_model,)
    mean_bias = 0.0 if bias is None else tf.reduce_mean(bias)
    scaled_smoothing = label_smoothing
    if gradient_scale is not None:
        scaled_smoothing = label_smoothing * gradient_scale
    # Label smoothing subtracts this from the gradient of each row.
    smoothing_of_row = scaled_smoothing * mean_column  # (d_model,)

    def add_chunk(
        start: Tensor,
        loss: Tensor,
        grad_hidden: tf.TensorArray,
        grad_kernel: Tensor,
        *grad_bias: Tensor,
    ) -> tuple[Tensor | tf.TensorArray, ...]:
        # (passes * chunk, d_model)
        rows = tf.reshape(hidden[:, start : start + chunk_size], (-1, d_model))
        # (passes * chunk, vocab_size)
        logits = tf.cast(tf.matmul(rows, rounded_kernel), tf.float32)
        if bias is not None:
            logits += bias
        chunk_labels = labels[start : start + chunk_size]
        chunk_loss, grad_logits = _chunk_loss(
            tf.split(logits, passes), chunk_labels, label_smoothing, consistency
        )
        if label_smoothing:
            mean_logits = tf.linalg.matvec(tf.cast(rows, tf.float32), mean_column) + mean_bias
            chunk_loss -= label_smoothing / passes * tf.reduce_sum(mean_logits)
        if gradient_scale is not None:
            grad_logits = [gradient_scale * grad for grad in grad_logits]
        grad_bias = tuple(
            total + tf.reduce_sum(tf.add_n(grad_logits), axis=0) for total in grad_bias
        )
        grad_logits = tf.concat([tf.cast(grad, dtype) for grad in grad_logits], axis=0)
        grad_rows = tf.cast(tf.matmul(grad_logits, rounded_kernel, transpose_b=True), tf.float32)
        grad_rows = tf.reshape(grad_rows, (passes, -1, d_model)) - smoothing_of_row
        grad_rows = tf.transpose(tf.cast(grad_rows, dtype), (1, 0, 2))
        grad_hidden = grad_hidden.write(start // chunk_size, grad_rows)
        grad_kernel += tf.cast(tf.matmul(rows, grad_logits, transpose_a=True), tf.float32)
        return start + chunk_size, loss + chunk_loss, grad_hidden, grad_kernel, *grad_bias

    chunks = tf.TensorArray(
        dtype, 0, dynamic_size=True, infer_shape=False, element_shape=(None, passes, d_model)
    )
    grad_weights = [tf.zeros_like(kernel)]
    if bias is not None:
        grad_weights.append(tf.zeros_like(bias))
    _, loss, chunks, grad_kernel, *grad_bias = tf.while_loop(
        lambda start, *_: start < tf.shape(labels)[0],
        add_chunk,
        (0, 0.0, chunks, *grad_weights),
        # With more parallel iterations, the logits of several chunks would be in memory.
        parallel_iterations=1,
    )
    sum_of_rows = tf.reduce_sum(tf.cast(hidden, tf.float32), axis=(0, 1))  # (d_model,)
    grad_kernel -= scaled_smoothing / vocab_size * sum_of_rows[:, None]
    num_rows = tf.cast(passes * tf.size(labels), tf.float32)
    grad_bias = [total - scaled_smoothing / vocab_size * num_rows for total in grad_bias]
    return loss, tf.transpose(chunks.concat(), (1, 0, 2)), grad_kernel, *grad_bias


def _chunk_loss(
    logits: Sequence[Tensor],  # float32 (chunk, vocab_size) of each pass
    labels: Tensor,  # int (chunk,)
    label_smoothing: float,
    consistency: float,
) -> tuple[Tensor, list[Tensor]]:
    """Returns a chunk's loss, and, for each pass, the gradient of the sum of all passes' losses.

    Both exclude the label smoothing term that is the same for every token of the vocabulary.
    """
    passes = len(logits)
    places = tf.stack([tf.range(tf.size(labels)), labels], axis=-1)  # (chunk, 2)
    probabilities = [tf.nn.softmax(logits_of_pass) for logits_of_pass in logits]
    label_probabilities = [
        tf.gather_nd(probabilities_of_pass, places) for probabilities_of_pass in probabilities
    ]
    log_probabilities = tf.math.log(tf.maximum(label_probabilities, SMALLEST_PROBABILITY))
    loss = -tf.reduce_sum(log_probabilities) / passes
    if label_smoothing:
        label_logits = [tf.gather_nd(logits_of_pass, places) for logits_of_pass in logits]
        loss += label_smoothing / passes * tf.reduce_sum(label_logits)
    gradients = probabilities
    if passes == 2:
        divergence, gradients = _add_divergence(probabilities, logits, consistency / 2)
        loss += divergence / 2
    # Subtract the labels before anything is rounded. Late in training, the remaining gradient of a
    # frequent token is smaller than the rounding error of its summed probabilities.
    label_masses = tf.fill(tf.shape(labels), 1 - label_smoothing)
    gradients = [tf.tensor_scatter_nd_sub(grad, places, label_masses) for grad in gradients]
    return loss, gradients


def _add_divergence(
    probabilities: Sequence[Tensor], logits: Sequence[Tensor], weight: float
) -> tuple[Tensor, list[Tensor]]:
    """Returns the sum of `weight * (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))`, and the gradients.

    The gradients include the probabilities, which are the gradients of the cross-entropy. If d is
    the difference of the logits, the sum of the divergences is (p₁ - p₂)·d, because the normalizers
    cancel. Its gradient is p₁ (d + 1 - p₁·d) - p₂ for the first logits and p₂ (1 - d + p₂·d) - p₁
    for the second logits.
    """
    p_1, p_2 = probabilities
    logits_1, logits_2 = logits
    # Keep this order. Rounding depends on the order in which TensorFlow's graph was built, and a
    # resumed run must round as before.
    minus_p_2 = -weight * p_2
    difference_1 = weight * (logits_1 - logits_2)
    minus_p_1 = -weight * p_1
    difference_2 = weight * (logits_2 - logits_1)

    def one_side(p: Tensor, minus_other: Tensor, difference: Tensor) -> tuple[Tensor, Tensor]:
        product = p * difference
        mean = tf.reduce_sum(product, axis=-1, keepdims=True)
        gradient = tf.add_n([product, p * (1 + weight - mean), minus_other])
        return tf.reduce_sum(mean), gradient

    divergence_1, gradient_1 = one_side(p_1, minus_p_2, difference_1)
    divergence_2, gradient_2 = one_side(p_2, minus_p_1, difference_2)
    return tf.add_n([divergence_1, divergence_2]), [gradient_1, gradient_2]
