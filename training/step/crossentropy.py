"""The training loss from hidden states, without materializing a batch's logits."""

from collections.abc import Callable, Sequence
from typing import Annotated

import tensorflow as tf

from keras_transformer.losses import SMALLEST_PROBABILITY
from keras_transformer.tensors import Tensor

# Logits computed at a time: few enough to stay in a processor's cache, enough for fast products.
_LOGITS = 2**21


def projected_crossentropy(
    hidden: Annotated[Tensor, "(passes, tokens, d_model)"],
    kernel: Annotated[Tensor, "float32 (d_model, vocab_size)"],
    labels: Annotated[Tensor, "int (tokens,)"],
    label_smoothing: float = 0.0,
    consistency: float = 0.0,
    gradient_scale: Annotated[Tensor, "float32 ()"] | None = None,
    bias: Annotated[Tensor, "float32 (vocab_size,)"] | None = None,
    cutoff_consistency: float = 0.0,
) -> Annotated[Tensor, "float32 ()"]:
    """Computes the sum of `token_crossentropy(labels, hidden @ kernel + bias, label_smoothing)`.

    The gradient is computed in the same pass: the softmax of a few tokens at a time becomes their part of the
    gradient at once, so that no tensor has as many elements as there are tokens times vocabulary. What label
    smoothing adds to loss and gradient is linear in the logits: the mean of the kernel's columns stands for it.

    Of two passes over the same tokens, the result is the mean of both plus the term of R-Drop (Liang et al. 2021,
    arXiv 2106.14448): `consistency / 4 * (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))` for every token. (That paper adds the losses
    of the passes, and so has twice this loss.)

    With SimCut (Gao et al. 2022, arXiv 2206.02368), the first pass alone has labels, and the second one, in which
    tokens were cut off, adds `cutoff_consistency * KL(p₁ ‖ p₂)` for every token. Both get its gradient, as in that
    paper.

    Args:
        hidden: in float32, or in bfloat16 or float16, in which the products then are too; softmax and loss are in
            float32 anyway. One pass, or two that differ in their dropout.
        kernel: of the output projection.
        labels: token ids.
        label_smoothing: float. ε. Defaults to 0.
        consistency: float. R-Drop's α, for two passes. Defaults to 0.
        gradient_scale: The gradients are multiplied by it, the loss is not: for float16, in
            which they have to be scaled before they are rounded. Defaults to None: 1.
        bias: of the output projection. Defaults to None: it has none.
        cutoff_consistency: float. SimCut's α, for two passes without `consistency`. Defaults to 0.
    """
    num_labeled = 1 if cutoff_consistency else hidden.shape[0]

    @tf.custom_gradient
    def crossentropy(
        hidden: Tensor, kernel: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        loss, grad_hidden, *grad_weights = _loss_and_gradients(
            hidden, kernel, bias, labels, label_smoothing, consistency, gradient_scale, cutoff_consistency
        )

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            upstream /= num_labeled
            return tf.cast(upstream, hidden.dtype) * grad_hidden, *(upstream * each for each in grad_weights)

        return loss, gradient

    return crossentropy(hidden, kernel) if bias is None else crossentropy(hidden, kernel, bias)


def _loss_and_gradients(
    hidden: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    label_smoothing: float,
    consistency: float,
    gradient_scale: Tensor | None,
    cutoff_consistency: float,
) -> tuple[Tensor, ...]:
    """Returns the loss, and its scaled gradients times the number of passes with labels.

    These are of hidden, kernel and, if there is one, bias.
    """
    passes, _, d_model = hidden.shape
    num_labeled = 1 if cutoff_consistency else passes
    vocab_size, dtype = kernel.shape[1], hidden.dtype
    chunk_size = max(_LOGITS // (passes * vocab_size), 1)
    rounded_kernel = tf.cast(kernel, dtype)
    mean_column = tf.reduce_mean(kernel, axis=1)  # (d_model,)
    scaled_smoothing = label_smoothing if gradient_scale is None else label_smoothing * gradient_scale
    mean_bias = 0.0 if bias is None else tf.reduce_mean(bias)
    # What label smoothing adds to the gradient of a row, in the passes that have labels.
    smoothed_rows = tf.pad(tf.ones((num_labeled, 1, 1)), [[0, passes - num_labeled], [0, 0], [0, 0]]) * (
        scaled_smoothing * mean_column
    )

    def add_chunk(
        start: Tensor, loss: Tensor, grad_hidden: tf.TensorArray, grad_kernel: Tensor, *grad_bias: Tensor
    ) -> tuple[Tensor | tf.TensorArray, ...]:
        rows = tf.reshape(hidden[:, start : start + chunk_size], (-1, d_model))  # (passes * chunk, d_model)
        logits = tf.cast(tf.matmul(rows, rounded_kernel), tf.float32)  # (passes * chunk, vocab_size)
        logits = logits if bias is None else logits + bias
        chunk_loss, grad_logits = _chunk_loss(
            tf.split(logits, passes),
            labels[start : start + chunk_size],
            label_smoothing,
            consistency,
            cutoff_consistency,
        )
        if label_smoothing:
            labeled_rows = rows[: num_labeled * tf.shape(rows)[0] // passes]
            all_logits = tf.linalg.matvec(tf.cast(labeled_rows, tf.float32), mean_column) + mean_bias
            chunk_loss -= label_smoothing / num_labeled * tf.reduce_sum(all_logits)
        if gradient_scale is not None:
            grad_logits = [gradient_scale * each for each in grad_logits]
        grad_bias = tuple(each + tf.reduce_sum(tf.add_n(grad_logits), axis=0) for each in grad_bias)
        grad_logits = tf.concat([tf.cast(each, dtype) for each in grad_logits], axis=0)
        grad_rows = tf.cast(tf.matmul(grad_logits, rounded_kernel, transpose_b=True), tf.float32)
        grad_rows = tf.reshape(grad_rows, (passes, -1, d_model)) - smoothed_rows
        grad_hidden = grad_hidden.write(start // chunk_size, tf.transpose(tf.cast(grad_rows, dtype), (1, 0, 2)))
        grad_kernel += tf.cast(tf.matmul(rows, grad_logits, transpose_a=True), tf.float32)
        return start + chunk_size, loss + chunk_loss, grad_hidden, grad_kernel, *grad_bias

    chunks = tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False, element_shape=(None, passes, d_model))
    _, loss, chunks, grad_kernel, *grad_bias = tf.while_loop(
        lambda start, *_: start < tf.shape(labels)[0],
        add_chunk,
        (0, 0.0, chunks, *(tf.zeros_like(weight) for weight in (kernel, bias) if weight is not None)),
        # More would hold the logits of several chunks at once.
        parallel_iterations=1,
    )
    all_rows = tf.reduce_sum(tf.cast(hidden[:num_labeled], tf.float32), axis=(0, 1))  # (d_model,)
    grad_kernel -= scaled_smoothing / vocab_size * all_rows[:, None]
    num_rows = tf.cast(num_labeled * tf.size(labels), tf.float32)
    grad_bias = [each - scaled_smoothing / vocab_size * num_rows for each in grad_bias]
    return loss, tf.transpose(chunks.concat(), (1, 0, 2)), grad_kernel, *grad_bias


def _chunk_loss(
    logits: Sequence[Tensor],
    labels: Tensor,
    label_smoothing: float,
    consistency: float,
    cutoff_consistency: float = 0.0,
) -> tuple[Tensor, list[Tensor]]:
    """Returns a chunk's loss and, for each pass, the gradient of the sum of the losses of the passes with labels.

    Both lack the term of label smoothing that is the same for every token of the vocabulary.

    Args:
        logits: float32 (chunk, vocab_size) of each pass.
        labels: int (chunk,).
    """
    if cutoff_consistency:
        loss, (gradient,) = _chunk_loss(logits[:1], labels, label_smoothing, consistency)
        first, second = logits
        divergence, (of_first, of_second) = _divergence_from_first(first, second, cutoff_consistency)
        return loss + divergence, [gradient + of_first, of_second]
    passes = len(logits)
    places = tf.stack([tf.range(tf.size(labels)), labels], axis=-1)  # (chunk, 2)
    probabilities = [tf.nn.softmax(each) for each in logits]
    label_probabilities = [tf.gather_nd(each, places) for each in probabilities]
    loss = -tf.reduce_sum(tf.math.log(tf.maximum(label_probabilities, SMALLEST_PROBABILITY))) / passes
    if label_smoothing:
        loss += label_smoothing / passes * tf.reduce_sum([tf.gather_nd(each, places) for each in logits])
    gradients = probabilities
    if passes == 2:
        divergence, gradients = _add_divergence(probabilities, logits, consistency / 2)
        loss += divergence / 2
    # The labels are subtracted before anything is rounded: late in training less is left of a frequent token's
    # probabilities than rounding their sum would change.
    label_masses = tf.fill(tf.shape(labels), 1 - label_smoothing)
    return loss, [tf.tensor_scatter_nd_sub(each, places, label_masses) for each in gradients]


def _add_divergence(
    probabilities: Sequence[Tensor], logits: Sequence[Tensor], weight: float
) -> tuple[Tensor, list[Tensor]]:
    """Returns `weight * (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))`, summed, and the probabilities plus its gradients.

    With d, the difference of the logits, the sum of the divergences is (p₁ - p₂)·d, since the normalizers cancel. Its
    gradient is p₁ (d + 1 - p₁·d) - p₂ for the first logits and p₂ (1 - d + p₂·d) - p₁ for the second.
    """
    first, second = probabilities
    gradients, divergences = [], []
    for own, other, difference in (
        (first, -weight * second, weight * (logits[0] - logits[1])),
        (second, -weight * first, weight * (logits[1] - logits[0])),
    ):
        product = own * difference
        mean = tf.reduce_sum(product, axis=-1, keepdims=True)
        gradients.append(tf.add_n([product, own * (1 + weight - mean), other]))
        divergences.append(tf.reduce_sum(mean))
    return tf.add_n(divergences), gradients


def _divergence_from_first(first: Tensor, second: Tensor, weight: float) -> tuple[Tensor, list[Tensor]]:
    """Returns `weight * KL(p₁ ‖ p₂)`, summed, and its gradient for the logits of both passes.

    With r = log p₁ - log p₂, the gradient is p₁ (r - p₁·r) for the first logits and p₂ - p₁ for the second.
    """
    p, q = tf.nn.softmax(first), tf.nn.softmax(second)
    ratio = tf.nn.log_softmax(first) - tf.nn.log_softmax(second)
    divergence = tf.reduce_sum(p * ratio, axis=-1, keepdims=True)
    return weight * tf.reduce_sum(divergence), [weight * p * (ratio - divergence), weight * (q - p)]
