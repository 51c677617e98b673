"""A time series of floats: forecast the next 24 values from the last 96, on any backend.

    python examples/layers/time_series.py

Two channels are measured every hour, each with a daily and a slower rhythm of its own and with
noise. Features that are floats need no embedding: a `Dense` layer gives them the model's width, and
`PositionalEncoding` tells them apart.
"""

import argparse

import keras
import numpy as np

from keras_transformer import EncoderLayer, PositionalEncoding

PAST, FUTURE, CHANNELS, NOISE = 96, 24, 2, 0.1


def series(count, seed):
    """Returns the past (count, PAST, CHANNELS) and the future (count, FUTURE, CHANNELS)."""
    generator = np.random.default_rng(seed)
    hours = np.arange(PAST + FUTURE)[:, None]
    size = (2, count, 1, CHANNELS)
    periods = np.stack([np.full(size[1:], 24.0), generator.uniform(40, 120, size[1:])])
    waves = generator.uniform(0.3, 1, size) * np.sin(
        2 * np.pi * (hours / periods + generator.uniform(0, 1, size))
    )
    values = waves.sum(axis=0) + generator.normal(0, NOISE, (count, PAST + FUTURE, CHANNELS))
    return np.split(values.astype("float32"), [PAST], axis=1)


def build_model(d_model=64):
    past = keras.Input((PAST, CHANNELS))
    hidden = PositionalEncoding()(keras.layers.Dense(d_model)(past))
    for _ in range(2):
        hidden = EncoderLayer(num_heads=4, d_ff=2 * d_model, dropout=0.0, norm_first=True)(hidden)
    hidden = keras.layers.Flatten()(hidden)
    return keras.Model(
        past,
        keras.layers.Reshape((FUTURE, CHANNELS))(keras.layers.Dense(FUTURE * CHANNELS)(hidden)),
    )


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    keras.utils.set_random_seed(1)
    past, future = series(6000, seed=1)
    model = build_model()
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    model.fit(past, future, batch_size=64, epochs=epochs, verbose=2)

    past, future = series(1000, seed=2)
    print(
        f"mean squared error of yesterday's values: "
        f"{np.mean((past[:, -FUTURE:] - future) ** 2):.3f}"
    )
    print(f"of the noise alone, which nobody can forecast: {NOISE**2:.3f}")
    print(f"mean squared error of the model: {model.evaluate(past, future, verbose=0):.3f}")


if __name__ == "__main__":
    main()
