"""The training loss from hidden states, without ever laying out a batch's logits."""

import tensorflow as tf

# Rows at once: few enough that their logits stay in a CPU's cache, many enough for fast products.
_ROWS = 1024


def projected_crossentropy(hidden, table, labels, label_smoothing=0.0):
    """The sum of `token_crossentropy(labels, hidden tableᵀ, label_smoothing)`, and its gradient in the same pass.

    The softmax of a few rows at a time becomes their part of the gradient at once, so that nothing as large as all
    tokens times the vocabulary is ever held. What smoothing adds to loss and gradient is linear in the logits: the mean
    of the table's rows stands for it, at no cost.

    Args:
        hidden: (tokens, d_model), float32, or bfloat16, whose products then are in bfloat16 too; softmax and loss are
            in float32 anyway.
        table: float32 (vocab_size, d_model), an embedding of the vocabulary, one row for each token.
        labels: int (tokens,).
        label_smoothing: ε.

    Returns:
        float32 scalar.
    """
    num_tokens = tf.shape(hidden)[0]
    dtype = hidden.dtype
    d_model = hidden.shape[-1]

    @tf.custom_gradient
    def crossentropy(hidden, table):
        rounded_table = tf.cast(table, dtype)
        mean_row = tf.reduce_mean(table, axis=0)

        def step(start, loss, of_hidden, of_table):
            rows = hidden[start : start + _ROWS]
            label_rows = tf.gather(rounded_table, labels[start : start + _ROWS])
            logits = tf.cast(tf.matmul(rows, rounded_table, transpose_b=True), tf.float32)
            probabilities = tf.nn.softmax(logits)
            places = tf.stack([tf.range(tf.shape(rows)[0]), labels[start : start + _ROWS]], axis=-1)
            exact_rows = tf.cast(rows, tf.float32)
            # A probability that float32 holds as 0 counts as its smallest number; the gradient is exact anyway.
            of_labels = tf.maximum(tf.gather_nd(probabilities, places), 1e-38)
            loss -= tf.reduce_sum(tf.math.log(of_labels))
            if label_smoothing:
                loss += label_smoothing * tf.reduce_sum(
                    tf.gather_nd(logits, places) - tf.linalg.matvec(exact_rows, mean_row)
                )
            rounded = tf.cast(probabilities, dtype)
            of_rows = (
                tf.cast(tf.matmul(rounded, rounded_table), tf.float32)
                - (1.0 - label_smoothing) * tf.cast(label_rows, tf.float32)
                - label_smoothing * mean_row
            )
            of_hidden = of_hidden.write(start // _ROWS, tf.cast(of_rows, dtype))
            of_table += tf.cast(tf.matmul(rounded, rows, transpose_a=True), tf.float32)
            return start + _ROWS, loss, of_hidden, of_table

        _, loss, of_hidden, of_table = tf.while_loop(
            lambda start, *_: start < num_tokens,
            step,
            (
                0,
                0.0,
                tf.TensorArray(
                    dtype, 0, dynamic_size=True, infer_shape=False, element_shape=(None, d_model)
                ),
                tf.zeros_like(table),
            ),
            parallel_iterations=1,
        )
        of_hidden = of_hidden.concat()
        exact_hidden = tf.cast(hidden, tf.float32)
        of_labels = tf.math.unsorted_segment_sum(exact_hidden, labels, tf.shape(table)[0])
        of_table -= (1.0 - label_smoothing) * of_labels
        if label_smoothing:
            smoothing = label_smoothing / tf.cast(tf.shape(table)[0], tf.float32)
            of_table -= smoothing * tf.reduce_sum(exact_hidden, axis=0)

        def gradient(upstream):
            return tf.cast(upstream, dtype) * of_hidden, upstream * of_table

        return loss, gradient

    return crossentropy(hidden, table)
