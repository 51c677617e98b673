"""Trains a translator with `fit` and R-Drop on JAX, PyTorch or TensorFlow, for the commands that
translate and serve.

    keras-transformer train --config multi30k-modern --set training.steps=1 --model-dir
    models/modern \
        --source train.en --target train.de --valid-source val.en --valid-target val.de
    KERAS_BACKEND=jax python examples/train_with_fit.py --model-dir models/modern --source train.en
    --target train.de \
        --steps 10000 --dtype mixed_bfloat16
    keras-transformer evaluate --model-dir models/modern --source test.en --reference test.de

The first command makes the directory, with its configuration and vocabulary. Training itself needs
neither TensorFlow nor the first machine: copy the directory to one with a GPU and `pip install .
jax sentencepiece pyyaml`, and back.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
import sentencepiece
from keras import ops

from keras_transformer import MaskedLabelSmoothedCrossentropy, build_transformer
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import save_weights

START, END = 2, 3
# JAX compiles for each shape: one for most pairs, and one for the longest that are used.
LENGTHS = (32, 96)


class RDrop(keras.Model):
    """Computes each batch twice, with other dropout, and trains for equal probabilities (Liang et
    al. 2021)."""

    def __init__(self, transformer, consistency):
        super().__init__()
        self.transformer = transformer
        self.consistency = consistency

    def call(self, inputs, training=False):
        if training:
            inputs = {name: ops.concatenate([ids, ids]) for name, ids in inputs.items()}
        return self.transformer(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        crossentropy = super().compute_loss(x, ops.concatenate([y, y]), y_pred)
        first, second = ops.split(ops.log_softmax(ops.cast(y_pred, "float32")), 2)
        # Both directions of the divergence between the passes.
        divergences = ops.sum((ops.exp(first) - ops.exp(second)) * (first - second), axis=-1)
        is_token = ops.cast(y != 0, "float32")
        return crossentropy + self.consistency / 4 * ops.sum(divergences * is_token) / ops.sum(
            is_token
        )


class Progress(keras.callbacks.Callback):
    """Prints a line after each epoch."""

    def on_train_begin(self, logs=None):
        self.start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        steps = (epoch + 1) * self.params["steps"]
        print(
            f"step {steps:,}: loss {logs['loss']:.3f}, {time.monotonic() - self.start:.0f} s",
            flush=True,
        )


def encode(tokenizer, path):
    """Returns the token ids of each line, with the end token."""
    lines = pathlib.Path(path).read_text("utf-8").removesuffix("\n").split("\n")
    # As the commands encode text: with a space in front.
    return [[*ids, END] for ids in tokenizer.encode([f" {line}" if line else "" for line in lines])]


def padded(rows, num_rows, length):
    ids = np.zeros((num_rows, length), "int32")
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return ids


def batches(pairs, batch_size, seed):
    """Yields batches of all pairs, short ones with short ones, in another order in each epoch."""
    buckets = np.searchsorted(LENGTHS, [max(map(len, pair)) for pair in pairs])
    generator = np.random.default_rng(seed)
    while True:
        planned = []
        for bucket, length in enumerate(LENGTHS):
            order = generator.permutation(np.flatnonzero(buckets == bucket))
            planned += [
                (order[begin : begin + batch_size], length)
                for begin in range(0, len(order), batch_size)
            ]
        for index in generator.permutation(len(planned)):
            order, length = planned[index]
            sources, targets = zip(*(pairs[i] for i in order), strict=True)
            shifted = [[START, *target[:-1]] for target in targets]
            source, target, labels = (
                padded(rows, batch_size, length) for rows in (sources, shifted, targets)
            )
            yield {"source": source, "target": target}, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=112, help="pairs (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", default="float32", help="Keras' dtype policy (%(default)s)")
    arguments = parser.parse_args()
    if arguments.steps < 2 or arguments.batch_size < 1:
        parser.error("--steps must be at least 2 and --batch-size at least 1")

    keras.utils.set_random_seed(arguments.seed)
    model_dir = ModelDir(arguments.model_dir)
    try:
        config = model_dir.read_config()
        tokenizer = sentencepiece.SentencePieceProcessor(
            model_file=str(model_dir.path / "tokenizer.model")
        )
        sources, targets = encode(tokenizer, arguments.source), encode(tokenizer, arguments.target)
    except (ConfigError, OSError) as error:
        parser.error(str(error))
    if len(sources) != len(targets):
        parser.error(
            f"source and target must have as many lines; received {len(sources)} and {len(targets)}"
        )
    pairs = [
        pair for pair in zip(sources, targets, strict=True) if max(map(len, pair)) <= LENGTHS[-1]
    ]
    print(f"{len(pairs):,} of {len(sources):,} pairs have at most {LENGTHS[-1]} tokens")

    transformer = build_transformer(config.model, dtype=arguments.dtype)
    model = RDrop(transformer, config.training.consistency)
    warmup_steps = min(config.training.warmup_steps, arguments.steps // 2)
    rate = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        # Without a rate of the recipe's own, the paper's at the end of the warm-up.
        warmup_target=config.training.peak_learning_rate
        or (config.model.d_model * warmup_steps) ** -0.5,
        warmup_steps=warmup_steps,
        decay_steps=arguments.steps - warmup_steps,
    )
    optimizer = keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, MaskedLabelSmoothedCrossentropy(config.training.label_smoothing))
    steps_per_epoch = min(200, arguments.steps)
    model.fit(
        batches(pairs, arguments.batch_size, arguments.seed),
        steps_per_epoch=steps_per_epoch,
        # The rate of steps after the last is 0.
        epochs=-(-arguments.steps // steps_per_epoch),
        callbacks=[Progress()],
        verbose=0,
        shuffle=False,
    )
    save_weights(transformer, model_dir.average_path)


if __name__ == "__main__":
    main()
