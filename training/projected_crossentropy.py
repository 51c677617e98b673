"""The training loss from hidden states, without ever laying out a batch's logits."""

import tensorflow as tf

# Logits at once: few enough to stay in a processor's cache, enough for fast products.
_LOGITS = 2**21


def projected_crossentropy(hidden, table, labels, label_smoothing=0.0, consistency=0.0):
    """The sum of `token_crossentropy(labels, hidden tableᵀ, label_smoothing)`, and its gradient in the same pass.

    The softmax of a few tokens at a time becomes their part of the gradient at once, so that nothing as large as all
    tokens times the vocabulary is ever held. What smoothing adds to loss and gradient is linear in the logits: the mean
    of the table's rows stands for it, at no cost.

    With two passes over the same tokens the result is the mean of both, plus what R-Drop (Liang et al. 2021,
    arXiv 2106.14448) adds: `consistency / 4 · (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))` of every token. (Its paper adds the two
    passes up, and so has twice this loss.)

    Args:
        hidden: (passes, tokens, d_model), float32, or bfloat16, whose products then are in bfloat16 too; softmax and
            loss are in float32 anyway. One pass, or two that differ in their dropout.
        table: float32 (vocab_size, d_model), one row for each token of the vocabulary.
        labels: int (tokens,).
        label_smoothing: ε.
        consistency: R-Drop's α; counts where there are two passes.

    Returns:
        float32 scalar.
    """
    passes, _, d_model = hidden.shape
    num_tokens = tf.shape(labels)[0]
    vocab_size = table.shape[0]
    rows_at_once = max(_LOGITS // (passes * vocab_size), 1)
    dtype = hidden.dtype

    @tf.custom_gradient
    def crossentropy(hidden, table):
        rounded_table = tf.cast(table, dtype)
        mean_row = tf.reduce_mean(table, axis=0)

        def step(start, loss, of_hidden, of_table):
            rows = tf.reshape(hidden[:, start : start + rows_at_once], (-1, d_model))
            row_labels = labels[start : start + rows_at_once]
            places = tf.stack([tf.range(tf.size(row_labels)), row_labels], axis=-1)
            logits = tf.cast(tf.matmul(rows, rounded_table, transpose_b=True), tf.float32)
            logits = tf.split(logits, passes)
            probabilities = [tf.nn.softmax(pass_) for pass_ in logits]
            # A probability that float32 holds as 0 counts as its smallest number; the gradient is exact anyway.
            of_labels = [tf.gather_nd(pass_, places) for pass_ in probabilities]
            loss -= tf.reduce_sum(tf.math.log(tf.maximum(of_labels, 1.2e-38))) / passes
            if label_smoothing:
                of_labels = tf.reduce_sum([tf.gather_nd(pass_, places) for pass_ in logits])
                of_all = tf.reduce_sum(tf.linalg.matvec(tf.cast(rows, tf.float32), mean_row))
                loss += label_smoothing / passes * (of_labels - of_all)
            slopes = probabilities
            if passes == 2:
                divergence, slopes = _consistent(probabilities, logits, consistency / 2)
                loss += divergence / 2
            # The labels are taken off before anything is rounded: near the end of training little is left of a frequent
            # token's probabilities, less than rounding their sum would change.
            label_slopes = tf.fill(tf.shape(row_labels), 1 - label_smoothing)
            slopes = [tf.tensor_scatter_nd_sub(pass_, places, label_slopes) for pass_ in slopes]
            slopes = tf.concat([tf.cast(pass_, dtype) for pass_ in slopes], axis=0)
            of_rows = tf.cast(tf.matmul(slopes, rounded_table), tf.float32) - label_smoothing * mean_row
            of_rows = tf.reshape(of_rows, (passes, -1, d_model))
            of_hidden = of_hidden.write(
                start // rows_at_once, tf.transpose(tf.cast(of_rows, dtype), (1, 0, 2))
            )
            of_table += tf.cast(tf.matmul(slopes, rows, transpose_a=True), tf.float32)
            return start + rows_at_once, loss, of_hidden, of_table

        gradients = tf.TensorArray(
            dtype, 0, dynamic_size=True, infer_shape=False, element_shape=(None, passes, d_model)
        )
        _, loss, of_hidden, of_table = tf.while_loop(
            lambda start, *_: start < num_tokens,
            step,
            (0, 0.0, gradients, tf.zeros_like(table)),
            # More would hold the logits of that many steps at once.
            parallel_iterations=1,
        )
        of_hidden = tf.transpose(of_hidden.concat(), (1, 0, 2))
        of_table -= label_smoothing / vocab_size * tf.reduce_sum(tf.cast(hidden, tf.float32), axis=(0, 1))

        def gradient(upstream):
            upstream /= passes
            return tf.cast(upstream, dtype) * of_hidden, upstream * of_table

        return loss, gradient

    return crossentropy(hidden, table)


def _consistent(probabilities, logits, weight):
    """What `weight` times the sum of KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁) is, and the probabilities plus its gradient.

    With d, the difference of the logits, the sum is (p₁ - p₂)·d, as the normalizers cancel out; its slope is
    p₁ (d + 1 - p₁·d) - p₂ with the first logits, and p₂ (1 - d + p₂·d) - p₁ with the second.
    """
    first, second = probabilities
    slopes, divergence = [], 0.0
    for own, other, difference in (
        (first, -weight * second, weight * (logits[0] - logits[1])),
        (second, -weight * first, weight * (logits[1] - logits[0])),
    ):
        product = own * difference
        mean = tf.reduce_sum(product, axis=-1, keepdims=True)
        slopes.append(tf.add_n([product, own * (1 + weight - mean), other]))
        divergence += tf.reduce_sum(mean)
    return divergence, slopes
