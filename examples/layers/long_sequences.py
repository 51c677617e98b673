"""Restricted attention on sequences of 8,192 tokens: in which mode was the machine? On any backend.

    python examples/layers/long_sequences.py

A log lists 8,192 events. Some of them put a machine into one of four modes, and the model tells for
every event in which mode the machine was then: that of the last such event. With
`sliding_window=33` and a causal mask, an event attends to itself and to the 32 before it, in time
and memory that grow linearly with the length. ALiBi prefers what is near, and needs no positions in
the embedding.
"""

import argparse
import time

import keras
import numpy as np

from keras_transformer import EncoderLayer, PositionalEmbedding

LENGTH, MODES, EVENTS = 8192, 4, 20  # Events 1 to 4 set the modes 0 to 3; 5 to 20 mean nothing.


def logs(count, seed):
    """Returns events and modes, int (count, LENGTH) each."""
    generator = np.random.default_rng(seed)
    events = generator.integers(MODES + 1, EVENTS + 1, size=(count, LENGTH))
    modes = np.zeros_like(events)
    for row, log in enumerate(events):
        # At the first event, and again after 8 to 32 events each time.
        places = np.r_[0, np.cumsum(generator.integers(8, 33, size=LENGTH // 8))]
        places = places[places < LENGTH]
        log[places] = generator.integers(1, MODES + 1, size=len(places))
        modes[row] = log[places].repeat(np.diff(np.r_[places, LENGTH])) - 1
    return events, modes


def build_model(d_model=32):
    events = keras.Input((None,), dtype="int32")
    hidden = PositionalEmbedding(EVENTS + 1, d_model, positions=None)(events)
    for _ in range(2):
        layer = EncoderLayer(
            num_heads=4, d_ff=64, dropout=0.0, sliding_window=33, relative_positions="alibi"
        )
        hidden = layer(hidden, use_causal_mask=True)
    return keras.Model(events, keras.layers.Dense(MODES)(hidden))


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args().steps

    keras.utils.set_random_seed(1)
    events, modes = logs(2 * steps, seed=1)
    model = build_model()
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start = time.monotonic()
    model.fit(events, modes, batch_size=2, verbose=2)
    print(f"{(time.monotonic() - start) / steps:.2f} s for a step of 2 * {LENGTH} events")

    new_events, new_modes = logs(8, seed=2)
    guesses = model.predict(new_events, batch_size=2, verbose=0).argmax(axis=-1)
    print(f"accuracy on new logs: {np.mean(guesses == new_modes):.3f}")


if __name__ == "__main__":
    main()
