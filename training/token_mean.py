"""The training step: exact per-token mean over all replicas."""

import itertools

import keras
import tensorflow as tf

from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.masks import padding_mask
from keras_transformer.metrics import MaskedAccuracy, Perplexity

from .projected_crossentropy import projected_crossentropy


class TokenMeanTraining(keras.Model):
    """Trains a model on the mean loss over all real tokens of a batch, however they fall to the replicas.

    Keras gives every replica's mean the same weight, so that the tokens of a replica with more padding would count
    more. Here each replica divides its sum by the tokens of all; the optimizer adds up the gradients.

    Args:
        transformer: a model from `{"source": …, "target": …}` to logits.
        label_smoothing: ε.
        clip_norm: largest norm of the whole gradient, of all replicas together; None clips nothing.
        consistency: R-Drop's α; 0 for one pass over each batch, otherwise two with dropout of their own.
        accumulate_steps: in how many parts, one after another, a replica computes its rows.
        parts_at_once: into how many such a part is split again, to be computed side by side.

    Attributes:
        num_traces: how often a replica's step was traced: a program each.
    """

    def __init__(
        self,
        transformer,
        label_smoothing,
        clip_norm=None,
        consistency=0.0,
        accumulate_steps=1,
        parts_at_once=1,
    ):
        super().__init__()
        self.label_smoothing = label_smoothing
        self.clip_norm = clip_norm
        self.consistency = consistency
        self.accumulate_steps = accumulate_steps
        self.parts_at_once = parts_at_once
        self.transformer = transformer
        self.token_loss = MaskedLabelSmoothedCrossentropy(label_smoothing, reduction=None)
        self.mean_loss = keras.metrics.Mean(name="loss")
        self.validation_metrics = [Perplexity(), MaskedAccuracy(name="accuracy")]
        self.num_traces = 0
        self.built = True

    @property
    def metrics(self):
        return [self.mean_loss, *self.validation_metrics]

    def call(self, inputs, training=None):
        return self.transformer(inputs, training=training)

    def train_step(self, data):
        # Python comes by here only when the step is traced.
        self.num_traces += 1
        inputs, labels = data
        num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
        replicas = tf.distribute.get_replica_context()
        all_tokens = replicas.all_reduce(tf.distribute.ReduceOp.SUM, num_tokens)
        variables = self.transformer.trainable_variables
        total, gradients = self._totals(inputs, labels, variables)
        loss = total / all_tokens
        gradients = [part / all_tokens for part in gradients]
        if self.clip_norm is not None:
            gradients = replicas.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
            # Now every replica holds the whole gradient, and the optimizer will add them up.
            gradients = [whole / replicas.num_replicas_in_sync for whole in gradients]
        self.optimizer.apply(gradients, variables)
        # Keras logs what the first replica returns, so each returns the mean of all.
        all_loss = replicas.all_reduce(tf.distribute.ReduceOp.SUM, loss)
        self.mean_loss.update_state(all_loss, all_tokens)
        return {"loss": self.mean_loss.result()}

    def _totals(self, inputs, labels, variables):
        """The loss of a replica's rows, summed over their tokens, and its gradients."""
        if self.accumulate_steps == 1:
            return self._totals_at_once(inputs, labels, variables)
        num_rows = tf.shape(labels)[0]
        rows_at_once = tf.maximum(-(-num_rows // self.accumulate_steps), 1)

        def add_part(start, total, gradients):
            rows = slice(start, start + rows_at_once)
            part, part_gradients = self._totals_at_once(*_cut(inputs, labels, rows), variables)
            gradients = [sum_ + part for sum_, part in zip(gradients, part_gradients)]
            return start + rows_at_once, total + part, gradients

        _, total, gradients = tf.while_loop(
            lambda start, *_: start < num_rows,
            add_part,
            (0, 0.0, [tf.zeros(variable.shape, variable.dtype) for variable in variables]),
            # More would hold the activations of that many parts at once.
            parallel_iterations=1,
        )
        return total, gradients

    def _totals_at_once(self, inputs, labels, variables):
        totals, gradients = zip(
            *(self._totals_of_part(*part, variables) for part in self._split(inputs, labels))
        )
        return tf.add_n(totals), [tf.add_n(parts) for parts in zip(*gradients)]

    def _split(self, inputs, labels):
        num_rows = tf.shape(labels)[0]
        ends = [num_rows * i // self.parts_at_once for i in range(self.parts_at_once + 1)]
        return [_cut(inputs, labels, slice(*rows)) for rows in itertools.pairwise(ends)]

    def _totals_of_part(self, inputs, labels, variables):
        passes = 1
        if self.consistency:
            passes = 2
            inputs = {name: tf.tile(side, (2, 1)) for name, side in inputs.items()}
        with tf.GradientTape() as tape:
            hidden = self.transformer.hidden_states(inputs, training=True)
            # Padding is not projected.
            real = tf.where(tf.reshape(padding_mask(labels), (-1,)))[:, 0]
            hidden = tf.reshape(hidden, (passes, -1, hidden.shape[-1]))
            hidden = tf.gather(hidden, real, axis=1)
            labels = tf.gather(tf.reshape(labels, (-1,)), real)
            total = projected_crossentropy(
                hidden, self.transformer.output_table, labels, self.label_smoothing, self.consistency
            )
        gradients = tape.gradient(total, variables)
        return total, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def test_step(self, data):
        for inputs, labels in self._split(*data):
            logits = self.transformer(inputs, training=False)
            num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
            total = tf.reduce_sum(self.token_loss(labels, logits))
            self.mean_loss.update_state(tf.math.divide_no_nan(total, num_tokens), num_tokens)
            for metric in self.validation_metrics:
                metric.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}


def _cut(inputs, labels, rows):
    return {name: side[rows] for name, side in inputs.items()}, labels[rows]
