"""Stock attention replaced in a model that exists, weights and all, on any backend.

    python examples/layers/replace_attention.py

A classifier was built with `keras.layers.MultiHeadAttention` and trained.
`keras.models.clone_model` makes a copy of its graph in which `from_keras` replaces every attention
layer: settings and weights are read from the stock layer, the outputs stay the same, and training
goes on.
"""

import argparse

import keras
import numpy as np
from text_classification import WORDS, reviews, token_ids

from keras_transformer import from_keras


def build_stock_model(d_model=32):
    inputs = keras.Input((None,), dtype="int32")
    words = keras.layers.Embedding(len(WORDS) + 1, d_model)(inputs)
    neighbors = keras.layers.Conv1D(d_model, 3, padding="same")(words)  # tells where a word stands
    hidden = keras.layers.Add()([words, neighbors])
    for _ in range(2):
        attended = keras.layers.MultiHeadAttention(num_heads=4, key_dim=8)(hidden, hidden)
        hidden = keras.layers.LayerNormalization()(keras.layers.Add()([hidden, attended]))
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))


def replace_attention(model):
    """Returns a model with our attention, which shares all its other layers with the one that is
    given."""

    def replaced(layer):
        return from_keras(layer) if isinstance(layer, keras.layers.MultiHeadAttention) else layer

    return keras.models.clone_model(model, clone_function=replaced)


def train(model, texts, labels, epochs):
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(token_ids(texts), labels, epochs=epochs, verbose=2)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs

    keras.utils.set_random_seed(1)
    texts, labels = reviews(6000, seed=1)
    new_texts, new_labels = reviews(1000, seed=2)
    stock = build_stock_model()
    train(stock, texts, labels, epochs)

    model = replace_attention(stock)
    print([type(layer).__module__ for layer in model.layers if "attention" in layer.name])
    difference = model.predict(token_ids(new_texts), verbose=0) - stock.predict(
        token_ids(new_texts), verbose=0
    )
    print(f"largest difference between the two models: {np.abs(difference).max():.1e}")

    train(model, texts, labels, epochs)
    _, accuracy = model.evaluate(token_ids(new_texts), new_labels, verbose=0)
    print(f"accuracy on new reviews: {accuracy:.3f}")


if __name__ == "__main__":
    main()
