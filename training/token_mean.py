"""The training step: exact per-token mean over all replicas."""

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
    """

    def __init__(self, transformer, label_smoothing, clip_norm=None):
        super().__init__()
        self.label_smoothing = label_smoothing
        self.clip_norm = clip_norm
        self.transformer = transformer
        self.token_loss = MaskedLabelSmoothedCrossentropy(label_smoothing, reduction=None)
        self.mean_loss = keras.metrics.Mean(name="loss")
        self.validation_metrics = [Perplexity(), MaskedAccuracy(name="accuracy")]
        self.built = True

    @property
    def metrics(self):
        return [self.mean_loss, *self.validation_metrics]

    def call(self, inputs, training=None):
        return self.transformer(inputs, training=training)

    def train_step(self, data):
        inputs, labels = data
        num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
        replicas = tf.distribute.get_replica_context()
        all_tokens = replicas.all_reduce(tf.distribute.ReduceOp.SUM, num_tokens)
        with tf.GradientTape() as tape:
            hidden = self.transformer.hidden_states(inputs, training=True)
            real = tf.where(padding_mask(labels))
            total = projected_crossentropy(
                tf.gather_nd(hidden, real),
                self.transformer.output_table,
                tf.gather_nd(labels, real),
                self.label_smoothing,
            )
            loss = total / all_tokens
        variables = self.transformer.trainable_variables
        gradients = tape.gradient(loss, variables)
        if self.clip_norm is not None:
            gradients = replicas.all_reduce(
                tf.distribute.ReduceOp.SUM, [tf.convert_to_tensor(part) for part in gradients]
            )
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
            # Now every replica holds the whole gradient, and the optimizer will add them up.
            gradients = [whole / replicas.num_replicas_in_sync for whole in gradients]
        self.optimizer.apply(gradients, variables)
        # Keras logs what the first replica returns, so each returns the mean of all.
        all_loss = replicas.all_reduce(tf.distribute.ReduceOp.SUM, loss)
        self.mean_loss.update_state(all_loss, all_tokens)
        return {"loss": self.mean_loss.result()}

    def test_step(self, data):
        inputs, labels = data
        logits = self.transformer(inputs, training=False)
        num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
        total = tf.reduce_sum(self.token_loss(labels, logits))
        self.mean_loss.update_state(tf.math.divide_no_nan(total, num_tokens), num_tokens)
        for metric in self.validation_metrics:
            metric.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}
