"""The same model from Keras' own layers, with `compile` and `fit` as they come.

What Keras has no layer for is written in the ordinary way: sinusoids are a constant that is added, and label
smoothing is that of `CategoricalCrossentropy`, over one-hot labels, averaged over the real tokens. Attention gets its
masks explicitly.
"""

import argparse
import json
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.processes import versions
from benchmarks.training_task import TrainingTask


def build_stock_transformer(vocab_size, max_length, num_layers, d_model, d_ff, num_heads, dropout):
    """The Transformer of the paper, one embedding for both inputs and the output, from stock layers."""
    table = sinusoids(max_length, d_model)
    embedding = layers.ReversibleEmbedding(vocab_size, d_model)
    add_positions = layers.Lambda(
        lambda embedded: embedded * d_model**0.5
        + ops.cast(ops.convert_to_tensor(table)[: ops.shape(embedded)[1]], embedded.dtype)
    )

    def embed(token_ids):
        return layers.Dropout(dropout)(add_positions(embedding(token_ids)))

    def residual(inputs, outputs):
        return layers.LayerNormalization(epsilon=1e-6)(inputs + layers.Dropout(dropout)(outputs))

    def attend(query, value, mask, use_causal_mask=False):
        attention = layers.MultiHeadAttention(num_heads, d_model // num_heads, use_bias=False)
        attended = attention(query, value, attention_mask=mask, use_causal_mask=use_causal_mask)
        return residual(query, attended)

    def feed_forward(inputs):
        hidden = layers.Dense(d_ff, activation="relu")(inputs)
        return residual(inputs, layers.Dense(d_model)(hidden))

    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    source_mask, target_mask = (
        ops.expand_dims(ops.not_equal(token_ids, 0), 1) for token_ids in (source, target)
    )
    encoded = embed(source)
    for _ in range(num_layers):
        encoded = feed_forward(attend(encoded, encoded, source_mask))
    decoded = embed(target)
    for _ in range(num_layers):
        decoded = attend(decoded, decoded, target_mask, use_causal_mask=True)
        decoded = feed_forward(attend(decoded, encoded, source_mask))
    return keras.Model({"source": source, "target": target}, embedding(decoded, reverse=True))


def sinusoids(length, width):
    """Section 3.5 of the paper: (length, width), float32."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width).astype("float32")


def smoothed_crossentropy(label_smoothing):
    def loss(labels, logits):
        one_hot = ops.one_hot(labels, logits.shape[-1])
        losses = keras.losses.categorical_crossentropy(
            one_hot, logits, from_logits=True, label_smoothing=label_smoothing
        )
        real = ops.cast(ops.not_equal(labels, 0), losses.dtype)
        return ops.sum(losses * real) / ops.sum(real)

    return loss


def dataset(batches):
    """Batches for `fit`, prepared ahead of the step."""
    rows = tf.TensorSpec((None, None), tf.int32)

    def elements():
        for source, target, labels in batches:
            yield {"source": source, "target": target}, labels

    made = tf.data.Dataset.from_generator(
        elements, output_signature=({"source": rows, "target": rows}, rows)
    )
    return made.apply(tf.data.experimental.assert_cardinality(len(batches))).prefetch(tf.data.AUTOTUNE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    task = TrainingTask(options.task)
    if options.precision == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    facts = task.facts
    model = build_stock_transformer(facts["vocab_size"], facts["max_length"], **facts["sizes"])
    optimizer = keras.optimizers.Adam(1e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer=optimizer, loss=smoothed_crossentropy(0.1))
    warmup, epoch = dataset(task.warmup()), dataset(task.batches)
    model.fit(warmup, verbose=0)
    begin = time.perf_counter()
    model.fit(epoch, verbose=0)
    seconds = time.perf_counter() - begin
    report = task.report(seconds, versions("keras", "tensorflow"), parameters=model.count_params())
    print(json.dumps(report))


if __name__ == "__main__":
    main()
