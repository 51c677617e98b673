"""Cross-entropy over the real tokens of a batch, with label smoothing (section 5.4 of the paper)."""

import keras
from keras import ops

from .masks import padding_mask


def token_crossentropy(labels, logits, label_smoothing=0.0):
    """Cross-entropy of every token, in float32.

    Against the smoothed distribution `(1 - ε) [k = label] + ε / vocab_size` (Szegedy et al. 2015), which is never
    laid out: `logsumexp(z) - (1 - ε) z[label] - ε mean(z)`.

    Args:
        labels: int (…), token ids.
        logits: (…, vocab_size).
        label_smoothing: ε.

    Returns:
        float32 (…).
    """
    vocab_size = logits.shape[-1]

    @ops.custom_gradient
    def crossentropy(logits):
        # Softmax is needed for the gradient anyway, and its largest value gives the normalizer:
        # max(softmax(z)) = exp(max(z) - logsumexp(z)), which is never below 1 / vocab_size. Large logits
        # meet only in differences, so that a small loss keeps its digits.
        probabilities = ops.softmax(logits)
        largest = ops.max(logits, axis=-1)
        of_label = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        losses = (1.0 - label_smoothing) * (largest - of_label)
        if label_smoothing:
            losses = losses + label_smoothing * (largest - ops.mean(logits, axis=-1))
        losses = losses - ops.log(ops.max(probabilities, axis=-1))

        def gradient(*args, upstream=None):
            # By hand: softmax - smoothed labels. The automatic gradient would lay out a vocabulary-sized
            # tensor for every term.
            upstream = ops.reshape(args[0] if upstream is None else upstream, (-1, 1))
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

    Label 0 is padding and counts nothing, whether or not the model hands on a Keras mask.

    Args:
        label_smoothing: ε, the mass spread over the whole vocabulary; the paper's is 0.1.
        reduction: "sum_over_batch_size", the sum divided by the number of real tokens; "sum"; or None, the loss of
            every token, 0 at padding.

    Call arguments:
        y_true: int (batch, length), labels.
        y_pred: (batch, length, vocab_size), logits.
        sample_weight: (batch,) or (batch, length); the mean is then the weighted sum by the number of tokens, as in
            Keras.

    Raises:
        ValueError: `label_smoothing` is not in [0, 1), or `reduction` is none of the three.

    Example:
        >>> loss = MaskedLabelSmoothedCrossentropy(label_smoothing=0.1)
        >>> float(loss(np.array([[3, 0]]), np.zeros((1, 2, 8))))  # log(8), of one token
        2.0794415473937988
    """

    def __init__(
        self,
        label_smoothing=0.1,
        reduction="sum_over_batch_size",
        name="masked_label_smoothed_crossentropy",
        **kwargs,
    ):
        super().__init__(name=name, reduction=reduction, **kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                "label_smoothing must be at least 0 and below 1; "
                f"received label_smoothing={label_smoothing}"
            )
        if reduction not in ("sum_over_batch_size", "sum", "none", None):
            raise ValueError(
                "reduction must be 'sum_over_batch_size', 'sum' or None; "
                f"received reduction={reduction!r}"
            )
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        losses = token_crossentropy(y_true, y_pred, self.label_smoothing)
        return ops.where(padding_mask(y_true), losses, 0.0)

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true)
        y_true = ops.cast(y_true, "int32")
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
        num_tokens = ops.sum(ops.cast(padding_mask(y_true), "float32"))
        return total / ops.maximum(num_tokens, 1.0)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
