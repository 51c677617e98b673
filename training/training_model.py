"""The model that `fit` trains: its steps compute the exact mean over the tokens of all replicas."""

import itertools
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.config import TrainingConfig
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.masks import padding_mask
from keras_transformer.metrics import MaskedAccuracy, Perplexity
from keras_transformer.models import Transformer

from .loss_scale import LossScale
from .moving_average import update_average
from .projected_crossentropy import projected_crossentropy


class TrainingModel(keras.Model):
    """Trains a Transformer on the mean loss over all real tokens of a batch, wherever they are computed.

    Keras gives the mean of every replica the same weight, so that a token of a replica with more padding would count
    more. Here each replica divides its sum by the number of tokens of all replicas, and the optimizer adds up the
    gradients.

    Args:
        transformer: Transformer.
        config: TrainingConfig. Its `label_smoothing`, `clip_norm`, `consistency` and `accumulate_steps` are used, and
            `precision` and `ema`: float16 needs an optimizer that skips gradients of NaN.
        parallel_parts: int. Into how many parts a replica divides its rows, to compute them side by side. Defaults
            to 1.

    Attributes:
        averaged: Transformer with the moving average of the weights, or None without `ema`.
        loss_scale: LossScale, or None unless the precision is float16.
        num_traces: int. How often a replica's training step was traced; each trace is a program.
    """

    def __init__(self, transformer: Transformer, config: TrainingConfig, parallel_parts: int = 1) -> None:
        super().__init__()
        self.transformer = transformer
        self.config = config
        self.parallel_parts = parallel_parts
        self.token_loss = MaskedLabelSmoothedCrossentropy(config.label_smoothing, reduction=None)
        # Made after the transformer, whose initial weights do not depend on it then.
        self.averaged = Transformer.from_config(transformer.get_config()) if config.ema else None
        self.loss_scale = LossScale(config.tokens_per_batch) if config.precision == "float16" else None
        self.mean_loss = keras.metrics.Mean(name="loss")
        self.validation_metrics = [Perplexity(), MaskedAccuracy(name="accuracy")]
        self.num_traces = 0
        self.built = True

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.mean_loss, *self.validation_metrics]

    @property
    def validated(self) -> Transformer:
        """The Transformer that is validated and saved."""
        return self.averaged or self.transformer

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.transformer(inputs, training=training)

    def train_step(self, data: Any) -> dict[str, Any]:
        # Python runs this only when the step is traced.
        self.num_traces += 1
        inputs, labels = data
        num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
        replicas = tf.distribute.get_replica_context()
        all_tokens = replicas.all_reduce(tf.distribute.ReduceOp.SUM, num_tokens)
        variables = self.transformer.trainable_variables
        total, gradients = self._sum_in_turn(inputs, labels, variables)
        loss = total / all_tokens
        divisor = all_tokens if self.loss_scale is None else all_tokens * self.loss_scale.value
        gradients = [gradient / divisor for gradient in gradients]
        if self.config.clip_norm is not None or self.loss_scale is not None:
            gradients = replicas.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
            if self.loss_scale is not None:
                gradients = self.loss_scale.update(gradients)
            if self.config.clip_norm is not None:
                gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm)
            # Every replica holds the whole gradient now, and the optimizer adds them up.
            gradients = [gradient / replicas.num_replicas_in_sync for gradient in gradients]
        step = tf.convert_to_tensor(self.optimizer.iterations)
        self.optimizer.apply(gradients, variables)
        if self.averaged is not None:
            update_average(self.averaged.weights, self.transformer.weights, self.config.ema, step)
        # Keras logs what the first replica returns, so each returns the mean of all.
        self.mean_loss.update_state(replicas.all_reduce(tf.distribute.ReduceOp.SUM, loss), all_tokens)
        return {"loss": self.mean_loss.result()}

    def _sum_in_turn(self, inputs: dict[str, Any], labels: Any, variables: list[Any]) -> tuple[Any, list[Any]]:
        """A replica's loss, summed over the tokens of its rows, and its scaled gradients; `accumulate_steps` parts."""
        if self.config.accumulate_steps == 1:
            return self._sum_side_by_side(inputs, labels, variables)
        num_rows = tf.shape(labels)[0]
        rows_per_part = tf.maximum(-(-num_rows // self.config.accumulate_steps), 1)

        def add_part(start: Any, total: Any, gradients: list[Any]) -> Any:
            part = _rows(inputs, labels, slice(start, start + rows_per_part))
            part_total, part_gradients = self._sum_side_by_side(*part, variables)
            return start + rows_per_part, total + part_total, _add(gradients, part_gradients)

        _, total, gradients = tf.while_loop(
            lambda start, *_: start < num_rows,
            add_part,
            (0, 0.0, [tf.zeros(variable.shape, variable.dtype) for variable in variables]),
            # More would hold the activations of several parts at once.
            parallel_iterations=1,
        )
        return total, gradients

    def _sum_side_by_side(self, inputs: dict[str, Any], labels: Any, variables: list[Any]) -> tuple[Any, list[Any]]:
        totals, gradients = zip(
            *(self._sum_of_part(*part, variables) for part in self._split(inputs, labels)), strict=True
        )
        return tf.add_n(totals), [tf.add_n(parts) for parts in zip(*gradients, strict=True)]

    def _split(self, inputs: dict[str, Any], labels: Any) -> list[tuple[dict[str, Any], Any]]:
        num_rows = tf.shape(labels)[0]
        ends = [num_rows * i // self.parallel_parts for i in range(self.parallel_parts + 1)]
        return [_rows(inputs, labels, slice(*range_)) for range_ in itertools.pairwise(ends)]

    def _sum_of_part(self, inputs: dict[str, Any], labels: Any, variables: list[Any]) -> tuple[Any, list[Any]]:
        passes = 2 if self.config.consistency else 1
        if passes == 2:
            inputs = {name: tf.tile(side, (2, 1)) for name, side in inputs.items()}
        with tf.GradientTape() as tape:
            hidden = self.transformer.hidden_states(inputs, training=True)  # (passes * rows, length, d_model)
            hidden = tf.reshape(hidden, (passes, -1, hidden.shape[-1]))
            # Padding is not projected.
            real = tf.where(tf.reshape(padding_mask(labels), (-1,)))[:, 0]
            total = projected_crossentropy(
                tf.gather(hidden, real, axis=1),  # (passes, tokens, d_model)
                tf.convert_to_tensor(self.transformer.output_projection.kernel),
                tf.gather(tf.reshape(labels, (-1,)), real),
                self.config.label_smoothing,
                self.config.consistency,
                None if self.loss_scale is None else self.loss_scale.value,
            )
        gradients = tape.gradient(total, variables)
        return total, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def test_step(self, data: Any) -> dict[str, Any]:
        for inputs, labels in self._split(*data):
            logits = self.validated(inputs, training=False)
            num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
            total = tf.reduce_sum(self.token_loss(labels, logits))
            self.mean_loss.update_state(tf.math.divide_no_nan(total, num_tokens), num_tokens)
            for metric in self.validation_metrics:
                metric.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}


def _rows(inputs: dict[str, Any], labels: Any, rows: slice) -> tuple[dict[str, Any], Any]:
    return {name: side[rows] for name, side in inputs.items()}, labels[rows]


def _add(sums: list[Any], terms: list[Any]) -> list[Any]:
    return [sum_ + term for sum_, term in zip(sums, terms, strict=True)]
