"""The same model made of Keras' own layers, trained with plain `compile` and `fit`.

For what Keras has no layer, this does the usual: sinusoids are a constant that is added, and label
smoothing is that of `CategoricalCrossentropy`, with one-hot labels, averaged over the real tokens.
Attention is given its masks explicitly.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.processes import versions
from benchmarks.training_task import Batch, TrainingTask, make_parser


def build_stock_transformer(
    vocab_size: int,
    max_length: int,
    num_layers: int,
    d_model: int,
    d_ff: int,
    num_heads: int,
    dropout: float,
) -> keras.Model:
    """Builds the Transformer of the paper, with one embedding for both sides and the output."""
    positions = sinusoids(max_length, d_model)
    embedding = layers.ReversibleEmbedding(vocab_size, d_model)

    def add_positions(embedded: Any) -> Any:
        some_positions = ops.convert_to_tensor(positions)[: ops.shape(embedded)[1]]
        return embedded * d_model**0.5 + ops.cast(some_positions, embedded.dtype)

    positional_encoding = layers.Lambda(add_positions)

    def embed(token_ids: Any) -> Any:
        return layers.Dropout(dropout)(positional_encoding(embedding(token_ids)))

    def add_and_normalize(inputs: Any, outputs: Any) -> Any:
        return layers.LayerNormalization(epsilon=1e-6)(inputs + layers.Dropout(dropout)(outputs))

    def attend(query: Any, value: Any, mask: Any, use_causal_mask: bool = False) -> Any:
        attention = layers.MultiHeadAttention(num_heads, d_model // num_heads, use_bias=False)
        attended = attention(query, value, attention_mask=mask, use_causal_mask=use_causal_mask)
        return add_and_normalize(query, attended)

    def feed_forward(inputs: Any) -> Any:
        hidden = layers.Dense(d_ff, activation="relu")(inputs)
        return add_and_normalize(inputs, layers.Dense(d_model)(hidden))

    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    source_mask = ops.expand_dims(ops.not_equal(source, 0), 1)
    target_mask = ops.expand_dims(ops.not_equal(target, 0), 1)
    encoded = embed(source)
    for _ in range(num_layers):
        encoded = feed_forward(attend(encoded, encoded, source_mask))
    decoded = embed(target)
    for _ in range(num_layers):
        decoded = attend(decoded, decoded, target_mask, use_causal_mask=True)
        decoded = feed_forward(attend(decoded, encoded, source_mask))
    return keras.Model({"source": source, "target": target}, embedding(decoded, reverse=True))


def sinusoids(length: int, width: int) -> np.ndarray:
    """Returns the positions of section 3.5 of the paper: float32 (length, width)."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return pairs.reshape(length, width).astype("float32")


def smoothed_crossentropy(label_smoothing: float) -> Callable[[Any, Any], Any]:
    """Returns a loss function of labels and logits: the mean over real tokens."""

    def loss(labels: Any, logits: Any) -> Any:
        one_hot = ops.one_hot(labels, logits.shape[-1])
        losses = keras.losses.categorical_crossentropy(
            one_hot, logits, from_logits=True, label_smoothing=label_smoothing
        )
        is_token = ops.cast(ops.not_equal(labels, 0), losses.dtype)
        return ops.sum(losses * is_token) / ops.sum(is_token)

    return loss


def make_dataset(batches: Sequence[Batch]) -> tf.data.Dataset:
    """Makes a dataset for `fit` that prepares batches ahead of time."""
    rows = tf.TensorSpec((None, None), tf.int32)

    def elements() -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        for source, target, labels in batches:
            yield {"source": source, "target": target}, labels

    dataset = tf.data.Dataset.from_generator(
        elements, output_signature=({"source": rows, "target": rows}, rows)
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(batches)))
    return dataset.prefetch(tf.data.AUTOTUNE)


def main() -> None:
    """Measures the contender and prints its report."""
    options = make_parser(__doc__).parse_args()
    task = TrainingTask(options.task)
    if options.precision == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    facts = task.facts
    model = build_stock_transformer(facts["vocab_size"], facts["max_length"], **facts["sizes"])
    optimizer = keras.optimizers.Adam(1e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer=optimizer, loss=smoothed_crossentropy(0.1))
    warmup = make_dataset(task.warmup_batches())
    epoch = make_dataset(task.batches)
    model.fit(warmup, verbose=0)
    begin = time.perf_counter()
    model.fit(epoch, verbose=0)
    seconds = time.perf_counter() - begin
    print(json.dumps(task.make_report(seconds, versions("keras", "tensorflow"))))


if __name__ == "__main__":
    main()
