"""The training step: the mean loss over the tokens of all replicas, gradients, and the update."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import keras
import tensorflow as tf

from keras_transformer.config import TrainingConfig, TransformerConfig
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.masks import padding_mask
from keras_transformer.metrics import MaskedAccuracy, Perplexity
from keras_transformer.models import Transformer, build_transformer
from keras_transformer.models.transformer import GUIDED_HEAD
from keras_transformer.tensors import Tensor

from .crossentropy import alignment_loss, projected_crossentropy
from .optimizer import Adam, LossScale, learning_rate, update_average

# The difference between the seeds of consecutive parts. It is a prime, and the seeds of the
# generators are random numbers below 10^9.
_SEEDS_BETWEEN_PARTS = 1_000_003
# The generators count their draws. Each step may draw up to this many times.
_DRAWS_IN_A_STEP = 16

# Token ids of source and target, int (batch, length), and labels, int (batch, target length).
Batch = tuple[dict[str, Tensor], Tensor]
# A loss that is summed over tokens, and the gradient of each variable.
LossAndGradients = tuple[Tensor, list[Tensor]]


class StepResult(NamedTuple):
    """The result of an update, over all replicas."""

    loss: float  # the mean over all tokens
    num_tokens: float
    num_stop_requests: float  # number of replicas that asked all replicas to stop


class TrainingStep(keras.Model):
    """A Transformer with its optimizer and losses, which callbacks see as `self.model`.

    Each replica divides its summed loss and gradients by the number of tokens on all replicas
    before they are added up. Keras would average the means of the replicas instead, so a token on a
    replica with more padding would have more weight.

    Dropout depends on the step and on the position of the rows in the batch, but not on the replica
    that computes them. With the same total number of parts, training produces the same results on
    any number of devices.

    Create the model in the scope of the strategy.

    Args:
        optimizer: The optimizer, built for the trainable variables. In float16, it skips gradients
            that contain NaN.
        parallel_parts: Number of parts into which a replica divides its rows, to compute them in
            parallel. Defaults to 1.

    Attributes:
        averaged: A Transformer with the moving average of the weights, or None without `ema`.
        loss_scale: The scale of the loss in float16, or None in other precisions.
        validation_metrics: The metrics that `validate` updates.
    """

    def __init__(
        self,
        transformer: Transformer,
        optimizer: Adam,
        config: TrainingConfig,
        parallel_parts: int = 1,
    ) -> None:
        super().__init__()
        # This class scales the loss, because Keras' loss scaling fails under a strategy.
        self.compile(optimizer, auto_scale_loss=False)
        self.strategy = tf.distribute.get_strategy()
        self.transformer = transformer
        self.config = config
        self.parallel_parts = parallel_parts
        self.averaged: Transformer | None = None
        if config.ema:
            self.averaged = Transformer.from_config(transformer.get_config())
        self.loss_scale: LossScale | None = None
        if config.precision == "float16":
            self.loss_scale = LossScale(config.tokens_per_batch)
        self.validation_loss = MaskedLabelSmoothedCrossentropy(
            config.label_smoothing, reduction=None
        )
        self.validation_metrics = [
            keras.metrics.Mean("loss"),
            Perplexity(),
            MaskedAccuracy("accuracy"),
        ]
        self.built = True

    @property
    def model_to_save(self) -> Transformer:
        """The Transformer that is validated and saved: with `ema`, the one with average weights."""
        return self.averaged or self.transformer

    @property
    def num_updates(self) -> int:
        """The number of updates, including updates that were skipped in float16."""
        return int(keras.ops.convert_to_numpy(self.optimizer.iterations))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))

    def update(self, batches: Iterator[Batch], requests_stop: bool = False) -> StepResult:
        """Trains on the next batch.

        Args:
            batches: Yields the shares of this process's replicas.
            requests_stop: Whether this process asks all processes to stop. Defaults to False.
        """
        stop_request = tf.constant(float(requests_stop))
        return StepResult(*self._update(batches, stop_request).numpy().tolist())

    # Keras' own functions would reduce every result over all processes, and they support only
    # tensors of rank 1.
    @tf.function(autograph=False, reduce_retracing=True)
    def _update(
        self, batches: tf.data.Iterator, stop_request: Tensor
    ) -> Annotated[Tensor, "float32 (3,)"]:
        results = self.strategy.run(self._update_on_replica, (batches.get_next(), stop_request))
        return self.strategy.experimental_local_results(results)[0]

    @tf.function(autograph=False, reduce_retracing=True)
    def validate(self, batches: tf.data.Iterator) -> None:
        """Updates the validation metrics with the next batch."""
        self.strategy.run(self._validate_on_replica, (batches.get_next(),))

    def _update_on_replica(
        self, batch: Batch, stop_request: Tensor
    ) -> Annotated[Tensor, "float32 (3,)"]:
        inputs, labels = batch
        replica = tf.distribute.get_replica_context()
        num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
        numbers = tf.stack([num_tokens, stop_request])
        numbers = replica.all_reduce(tf.distribute.ReduceOp.SUM, numbers)
        num_tokens, num_stop_requests = tf.unstack(numbers)
        total, gradients = self._sum_over_tokens(inputs, labels)
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        means = [total / num_tokens, *(gradient / (num_tokens * scale) for gradient in gradients)]
        loss, *gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, means)
        if self.loss_scale is not None:
            gradients = self.loss_scale.update(gradients)
        if self.config.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm)
        step = tf.convert_to_tensor(self.optimizer.iterations)
        self.optimizer.apply_sum(gradients, self.transformer.trainable_variables)
        if self.averaged is not None:
            update_average(self.averaged.weights, self.transformer.weights, self.config.ema, step)
        return tf.stack([loss, num_tokens, num_stop_requests])

    def _sum_over_tokens(self, inputs: dict[str, Tensor], labels: Tensor) -> LossAndGradients:
        """Returns a replica's loss and scaled gradients, summed over its tokens.

        The rows are divided into `accumulate_steps` shares, which are computed one after another.
        """
        if self.config.accumulate_steps == 1:
            return self._sum_over_parts(0, inputs, labels)

        def add_parts(
            i: Tensor, total: Tensor, gradients: list[Tensor]
        ) -> tuple[Tensor, Tensor, list[Tensor]]:
            total_of_parts, gradients_of_parts = self._sum_over_parts(i, inputs, labels)
            pairs = zip(gradients, gradients_of_parts, strict=True)
            sums = [sum_of_gradients + gradient for sum_of_gradients, gradient in pairs]
            return i + 1, total + total_of_parts, sums

        variables = self.transformer.trainable_variables
        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        _, total, gradients = tf.while_loop(
            lambda i, *_: i < self.config.accumulate_steps,
            add_parts,
            (0, 0.0, zeros),
            # With more parallel iterations, the activations of several shares would be in memory.
            parallel_iterations=1,
        )
        return total, gradients

    def _sum_over_parts(
        self, i: int | Tensor, inputs: dict[str, Tensor], labels: Tensor
    ) -> LossAndGradients:
        """Returns the loss and gradients of the i-th share, in `parallel_parts` parallel parts."""
        num_parts = self.config.accumulate_steps * self.parallel_parts
        first = i * self.parallel_parts
        number = tf.distribute.get_replica_context().replica_id_in_sync_group * num_parts + first
        totals = []
        gradients_of_parts = []
        parts = _split(inputs, labels, num_parts, first, self.parallel_parts)
        for k, (part_inputs, part_labels) in enumerate(parts):
            total, gradients = self._loss_of_part(number + k, part_inputs, part_labels)
            totals.append(total)
            gradients_of_parts.append(gradients)
        sums = [tf.add_n(gradients) for gradients in zip(*gradients_of_parts, strict=True)]
        return tf.add_n(totals), sums

    def _loss_of_part(
        self, number: Tensor, inputs: dict[str, Tensor], labels: Tensor
    ) -> LossAndGradients:
        """Returns the loss and gradients of a part.

        `number` is the index of the part among the parts of all replicas.
        """
        passes = 2 if self.config.consistency else 1
        if passes == 2:
            inputs = {name: tf.tile(side, (2, 1)) for name, side in inputs.items()}
        loss_scale = None if self.loss_scale is None else self.loss_scale.value
        with tf.GradientTape() as tape, keras.StatelessScope(self._seeds_of_part(number)):
            if self.config.guided_alignment:
                hidden, _, scores = self.transformer.hidden_states(
                    inputs, True, return_attention_scores=True
                )
                attention = scores[-1][:, GUIDED_HEAD]
            else:
                hidden = self.transformer.hidden_states(inputs, True)
            # from (passes * rows, length, d_model)
            hidden = tf.reshape(hidden, (passes, -1, hidden.shape[-1]))
            # Do not project padding.
            real = tf.where(tf.reshape(padding_mask(labels), (-1,)))[:, 0]
            projection = self.transformer.output_projection
            total = projected_crossentropy(
                tf.gather(hidden, real, axis=1),  # (passes, tokens, d_model)
                tf.convert_to_tensor(projection.kernel),
                tf.gather(tf.reshape(labels, (-1,)), real),
                self.config.label_smoothing,
                self.config.consistency,
                loss_scale,
                None if projection.bias is None else tf.convert_to_tensor(projection.bias),
            )
            targets = [total]
            if self.config.guided_alignment:
                weight = self.config.guided_alignment / passes
                guidance = weight * alignment_loss(attention, inputs["links"])
                total += guidance
                # The gradient of the cross-entropy is already scaled.
                targets.append(guidance if loss_scale is None else loss_scale * guidance)
        variables = self.transformer.trainable_variables
        gradients = []
        for variable, gradient in zip(variables, tape.gradient(targets, variables), strict=True):
            # If dropout drops everything, weights have no gradient.
            if gradient is None:
                gradient = tf.zeros(variable.shape, variable.dtype)
            gradients.append(tf.convert_to_tensor(gradient))
        return total, gradients

    def _seeds_of_part(self, number: Tensor) -> list[tuple[keras.Variable, Tensor]]:
        """Returns the states of all random generators in this step, for a part of the batch."""
        weights = {id(weight) for weight in self.transformer.weights}
        seeds = [variable for variable in self.transformer.variables if id(variable) not in weights]
        seed_offset = tf.cast(number, tf.int64) * _SEEDS_BETWEEN_PARTS
        draw_offset = tf.cast(self.optimizer.iterations, tf.int64) * _DRAWS_IN_A_STEP
        offset = tf.stack([seed_offset, draw_offset])
        return [(seed, seed.value + offset) for seed in seeds]

    def _validate_on_replica(self, batch: Batch) -> None:
        loss, *metrics = self.validation_metrics
        for inputs, labels in _split(*batch, self.parallel_parts, 0, self.parallel_parts):
            logits = self.model_to_save(inputs, training=False)
            num_tokens = tf.reduce_sum(tf.cast(padding_mask(labels), "float32"))
            total = tf.reduce_sum(self.validation_loss(labels, logits))
            loss.update_state(tf.math.divide_no_nan(total, num_tokens), num_tokens)
            for metric in metrics:
                metric.update_state(labels, logits)


def build_training_step(
    config: TransformerConfig,
    training: TrainingConfig,
    strategy: tf.distribute.Strategy,
    parallel_parts: int = 1,
) -> TrainingStep:
    """Builds a Transformer with its optimizer in the scope of a strategy.

    Args:
        training: The training options. `precision` must not be "auto".
        parallel_parts: Number of parts into which a replica divides its rows. Defaults to 1.
    """
    policy = "float32" if training.precision == "float32" else f"mixed_{training.precision}"
    with strategy.scope():
        transformer = build_transformer(config, dtype=policy)
        if training.freeze in ("embeddings", "both"):
            transformer.source_embedding.trainable = transformer.target_embedding.trainable = False
        if training.freeze in ("encoder", "both"):
            transformer.encoder.trainable = False
        # These values are from section 5.3 of the paper.
        optimizer = Adam(
            learning_rate(config.d_model, training),
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
            skip_nan=training.precision == "float16",
        )
        optimizer.build(transformer.trainable_variables)
        return TrainingStep(transformer, optimizer, training, parallel_parts)


def _split(
    inputs: dict[str, Tensor], labels: Tensor, num_parts: int, first: int | Tensor, number: int
) -> Sequence[Batch]:
    """Divides a batch into `num_parts` parts, and returns `number` of them, starting at `first`.

    The sizes of the parts differ by at most one row.
    """
    ends = [tf.shape(labels)[0] * (first + k) // num_parts for k in range(number + 1)]
    return [
        ({name: side[begin:end] for name, side in inputs.items()}, labels[begin:end])
        for begin, end in itertools.pairwise(ends)
    ]
