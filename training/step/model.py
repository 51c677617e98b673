"""The model that `fit` trains: its steps compute the exact mean over the tokens of all replicas."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import keras
import tensorflow as tf

from keras_transformer.config import TrainingConfig
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.masks import padding_mask
from keras_transformer.metrics import MaskedAccuracy, Perplexity
from keras_transformer.models import Transformer
from keras_transformer.models.transformer import GUIDED_HEAD
from keras_transformer.tensors import Tensor

from .alignment_loss import alignment_loss
from .crossentropy import projected_crossentropy
from .loss_scale import LossScale
from .moving_average import update_average

# A prime: the seeds of the generators are random numbers below 10^9.
_SEEDS_BETWEEN_PARTS = 1_000_003
# A generator counts its draws; there is room for a few between two steps.
_DRAWS_IN_A_STEP = 16

# Token ids of both sides, int (batch, length) each, and the labels, int (batch, target length).
Batch = tuple[dict[str, Tensor], Tensor]
Logs = dict[str, Tensor]
# A loss that is summed over tokens, and the gradient of each variable.
LossAndGradients = tuple[Tensor, list[Tensor]]


class TrainingModel(keras.Model):
    """Trains a Transformer on the mean loss over all real tokens of a batch, wherever they are computed.

    Keras gives the mean of every replica the same weight, so that a token of a replica with more padding would count
    more. Here each replica divides its sums by the number of tokens of all replicas before these are added up.

    Dropout depends on the step and on the place of the rows in the batch, not on which replica computes them: as many
    parts altogether give the same training on any number of devices.

    Args:
        transformer: Transformer, made in the scope of the strategy.
        config: TrainingConfig. Its `label_smoothing`, `clip_norm`, `consistency`, `cutoff_consistency`, `cutoff`,
            `guided_alignment`, `accumulate_steps` and `seed` are used, and `precision` and `ema`: float16 needs an
            optimizer that skips gradients of NaN.
        parallel_parts: int. Into how many parts a replica divides its rows, to compute them side by side. Defaults
            to 1.
        strategy: tf.distribute.Strategy. Defaults to TensorFlow's default, for one device. The model itself is made
            outside of its scope.

    Attributes:
        averaged: Transformer with the moving average of the weights, or None without `ema`.
        loss_scale: LossScale, or None unless the precision is float16.
        stop_request: tf.Variable. Set it to 1 in any process to ask all of them to stop.
        stop_requests: float32 scalar. How many replicas were asked to stop before the last step.
        num_traces: int. How often a replica's training step was traced; each trace is a program.
    """

    train_function: Callable[[Iterator[Batch]], Logs] | None
    test_function: Callable[[Iterator[Batch]], Logs] | None

    def __init__(
        self,
        transformer: Transformer,
        config: TrainingConfig,
        parallel_parts: int = 1,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        super().__init__()
        self.strategy = strategy or tf.distribute.get_strategy()
        self.transformer = transformer
        self.config = config
        self.parallel_parts = parallel_parts
        self.token_loss = MaskedLabelSmoothedCrossentropy(config.label_smoothing, reduction=None)
        with self.strategy.scope():
            # Made after the transformer, whose initial weights do not depend on it then.
            self.averaged = Transformer.from_config(transformer.get_config()) if config.ema else None
            self.loss_scale = LossScale(config.tokens_per_batch) if config.precision == "float16" else None
            self.mean_loss = keras.metrics.Mean(name="loss")
            self.validation_metrics = [Perplexity(), MaskedAccuracy(name="accuracy")]
        self.stop_request = tf.Variable(0.0, trainable=False)
        self.stop_requests: float | Tensor = 0.0
        self.num_traces = 0
        self.built = True

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy:
        """What Keras' `fit` asks for: by default it is the strategy in whose scope the model was made."""
        return self.strategy

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.mean_loss, *self.validation_metrics]

    @property
    def validated(self) -> Transformer:
        """The Transformer that is validated and saved."""
        return self.averaged or self.transformer

    @property
    def num_updates(self) -> int:
        """How many updates there were, including those that float16 skipped."""
        return int(keras.ops.convert_to_numpy(self.optimizer.iterations))

    @property
    def learning_rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))

    def call(
        self, inputs: Annotated[dict[str, Tensor], "int (batch, length)"], training: bool | None = None
    ) -> Annotated[Tensor, "(batch, target length, vocab_size)"]:
        return self.transformer(inputs, training=training)

    def make_train_function(self, force: bool = False) -> None:
        if self.train_function is not None and not force:
            return
        step = self._on_all_replicas(self.train_step)

        def train(iterator: Iterator[Batch]) -> Logs:
            logs = step(iterator)
            self.stop_requests = logs.pop("stop_requests")
            return logs

        self.train_function = train

    def make_test_function(self, force: bool = False) -> None:
        if self.test_function is None or force:
            self.test_function = self._on_all_replicas(self.test_step)

    def _on_all_replicas(self, step: Callable[[Batch], Logs]) -> Callable[[Iterator[Batch]], Logs]:
        """A function from an iterator to what the first replica of this process returns for the next batch.

        Keras' own reduces every result over all processes, and takes tensors of rank 1 only.
        """

        @tf.function(autograph=False, reduce_retracing=True)
        def step_on_all_replicas(iterator: tf.data.Iterator) -> Logs:
            results = self.strategy.run(step, (iterator.get_next(),))
            return {name: self.strategy.experimental_local_results(result)[0] for name, result in results.items()}

        return step_on_all_replicas

    def train_step(self, data: Batch) -> Logs:
        # Python runs this only when the step is traced.
        self.num_traces += 1
        inputs, labels = data
        num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
        replicas = tf.distribute.get_replica_context()
        all_tokens, stop_requests = tf.unstack(
            replicas.all_reduce(tf.distribute.ReduceOp.SUM, tf.stack([num_tokens, self.stop_request]))
        )
        variables = self.transformer.trainable_variables
        total, gradients = self._accumulate_gradients(inputs, labels, variables)
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        means = [total / all_tokens, *(gradient / (all_tokens * scale) for gradient in gradients)]
        loss, *gradients = replicas.all_reduce(tf.distribute.ReduceOp.SUM, means)
        if self.loss_scale is not None:
            gradients = self.loss_scale.update(gradients)
        if self.config.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm)
        step = tf.convert_to_tensor(self.optimizer.iterations)
        self.optimizer.apply_sum(gradients, variables)
        if self.averaged is not None:
            update_average(self.averaged.weights, self.transformer.weights, self.config.ema, step)
        # What the first replica returns is logged.
        self.mean_loss.update_state(loss, all_tokens)
        return {"loss": self.mean_loss.result(), "stop_requests": stop_requests}

    def _accumulate_gradients(
        self, inputs: dict[str, Tensor], labels: Tensor, variables: Sequence[keras.Variable]
    ) -> LossAndGradients:
        """A replica's loss and scaled gradients, summed over its tokens, in `accumulate_steps` one after another."""
        if self.config.accumulate_steps == 1:
            return self._gradients_of_parts(0, inputs, labels, variables)

        def add_parts(i: Tensor, total: Tensor, gradients: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
            part_total, part_gradients = self._gradients_of_parts(i, inputs, labels, variables)
            return i + 1, total + part_total, _add(gradients, part_gradients)

        _, total, gradients = tf.while_loop(
            lambda i, *_: i < self.config.accumulate_steps,
            add_parts,
            (0, 0.0, [tf.zeros(variable.shape, variable.dtype) for variable in variables]),
            # More would hold the activations of several parts at once.
            parallel_iterations=1,
        )
        return total, gradients

    def _gradients_of_parts(
        self, i: int | Tensor, inputs: dict[str, Tensor], labels: Tensor, variables: Sequence[keras.Variable]
    ) -> LossAndGradients:
        """The same for the rows of the i-th of `accumulate_steps`, in `parallel_parts` parts side by side."""
        num_parts = self.config.accumulate_steps * self.parallel_parts
        first = i * self.parallel_parts
        rows = _split(labels, num_parts, first, self.parallel_parts)
        number = tf.distribute.get_replica_context().replica_id_in_sync_group * num_parts + first
        totals, gradients = zip(
            *(
                self._gradients_of_part(number + k, *_rows(inputs, labels, part), variables)
                for k, part in enumerate(rows)
            ),
            strict=True,
        )
        return tf.add_n(totals), [tf.add_n(parts) for parts in zip(*gradients, strict=True)]

    def _gradients_of_part(
        self, number: Tensor, inputs: dict[str, Tensor], labels: Tensor, variables: Sequence[keras.Variable]
    ) -> LossAndGradients:
        """The same for one part, whose number among those of all replicas is given."""
        passes = 2 if self.config.consistency or self.config.cutoff_consistency else 1
        if passes == 2:
            inputs = {name: tf.tile(side, (2, 1)) for name, side in inputs.items()}
        with tf.GradientTape() as tape, keras.StatelessScope(self._seeds_of_part(number)):
            if self.config.guided_alignment:
                hidden, _, scores = self.transformer.hidden_states(inputs, True, return_attention_scores=True)
                attention = scores[-1][:, GUIDED_HEAD]
            else:
                hidden = self.transformer.hidden_states(inputs, True)  # (passes * rows, length, d_model)
            hidden = tf.reshape(hidden, (passes, -1, hidden.shape[-1]))
            # Padding is not projected.
            real = tf.where(tf.reshape(padding_mask(labels), (-1,)))[:, 0]
            projection = self.transformer.output_projection
            total = projected_crossentropy(
                tf.gather(hidden, real, axis=1),  # (passes, tokens, d_model)
                tf.convert_to_tensor(projection.kernel),
                tf.gather(tf.reshape(labels, (-1,)), real),
                self.config.label_smoothing,
                self.config.consistency,
                None if self.loss_scale is None else self.loss_scale.value,
                None if projection.bias is None else tf.convert_to_tensor(projection.bias),
                self.config.cutoff_consistency,
            )
            targets = [total]
            if self.config.guided_alignment:
                guidance = self.config.guided_alignment / passes * alignment_loss(attention, inputs["links"])
                total += guidance
                # The gradient of the other loss is scaled already.
                targets.append(guidance if self.loss_scale is None else self.loss_scale.value * guidance)
        # Dropout that drops everything leaves weights without a gradient.
        return total, [
            tf.zeros(variable.shape, variable.dtype) if gradient is None else tf.convert_to_tensor(gradient)
            for variable, gradient in zip(variables, tape.gradient(targets, variables), strict=True)
        ]

    def _seeds_of_part(self, number: Tensor) -> list[tuple[keras.Variable, Tensor]]:
        """The states that all random generators have in this step, for the part of a batch with this number."""
        weights = {id(weight) for weight in self.transformer.weights}
        seeds = [variable for variable in self.transformer.variables if id(variable) not in weights]
        step = tf.cast(self.optimizer.iterations, tf.int64)
        offset = tf.stack([tf.cast(number, tf.int64) * _SEEDS_BETWEEN_PARTS, step * _DRAWS_IN_A_STEP])
        return [(seed, seed.value + offset) for seed in seeds]

    def test_step(self, data: Batch) -> Logs:
        all_inputs, all_labels = data
        for part in _split(all_labels, self.parallel_parts, 0, self.parallel_parts):
            inputs, labels = _rows(all_inputs, all_labels, part)
            logits = self.validated(inputs, training=False)
            num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
            total = tf.reduce_sum(self.token_loss(labels, logits))
            self.mean_loss.update_state(tf.math.divide_no_nan(total, num_tokens), num_tokens)
            for metric in self.validation_metrics:
                metric.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}


def _split(labels: Tensor, num_parts: int, first: int | Tensor, number: int) -> list[slice]:
    """Divides rows into parts of as many rows, give or take one; the rows of a number of parts, from the first on."""
    ends = [tf.shape(labels)[0] * (first + k) // num_parts for k in range(number + 1)]
    return [slice(*ends) for ends in itertools.pairwise(ends)]


def _rows(inputs: dict[str, Tensor], labels: Tensor, rows: slice) -> Batch:
    return {name: side[rows] for name, side in inputs.items()}, labels[rows]


def _add(sums: Sequence[Tensor], terms: Sequence[Tensor]) -> list[Tensor]:
    return [sum_ + term for sum_, term in zip(sums, terms, strict=True)]
