"""Text classification: does the critic recommend the film? The layers in an ordinary Keras model,
on any backend.

    KERAS_BACKEND=jax python examples/layers/text_classification.py    # or tensorflow, or torch

The words alone do not tell: "not" turns an adjective around, and only the main clause counts. So
"although the plot was dull , the music was never boring" is a recommendation, and the model has to
find out which words belong together.
"""

import argparse

import keras
import numpy as np

from keras_transformer import EncoderLayer, PositionalEmbedding

NOUNS = "film plot cast music ending dialogue scenery humour".split()
ADJECTIVES = {
    True: "great moving clever funny gripping lovely".split(),
    False: "dull silly boring awful bleak".split(),
}
NEGATIONS = ["not", "never", "hardly"]
SHAPES = ["{main}", "{main} , although {side}", "although {side} , {main}", "{side} , but {main}"]
WORDS = [
    *NOUNS,
    *ADJECTIVES[True],
    *ADJECTIVES[False],
    *NEGATIONS,
    "the",
    "was",
    "although",
    "but",
    ",",
]
WORD_IDS = {word: number for number, word in enumerate(WORDS, start=1)}  # 0 is padding.


def clause(praises, generator):
    negated = generator.random() < 0.5
    adjective = generator.choice(ADJECTIVES[praises != negated])
    negation = generator.choice(NEGATIONS) + " " if negated else ""
    return f"the {generator.choice(NOUNS)} was {negation}{adjective}"


def reviews(count, seed):
    """Returns texts, and whether each of them recommends the film."""
    generator = np.random.default_rng(seed)
    texts, labels = [], []
    for main, side in generator.integers(2, size=(count, 2)):
        shape = generator.choice(SHAPES)
        texts.append(shape.format(main=clause(main, generator), side=clause(side, generator)))
        labels.append(main)
    return texts, np.array(labels)


def token_ids(texts):
    rows = [[WORD_IDS[word] for word in text.split()] for text in texts]
    return keras.utils.pad_sequences(rows, padding="post")


def build_model(d_model=64):
    inputs = keras.Input((None,), dtype="int32")
    hidden = PositionalEmbedding(len(WORDS) + 1, d_model)(inputs)
    for _ in range(2):
        hidden = EncoderLayer(num_heads=4, d_ff=4 * d_model)(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(
        hidden
    )  # leaves out padding: the layers pass its mask on
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs

    keras.utils.set_random_seed(1)
    texts, labels = reviews(8000, seed=1)
    new_texts, new_labels = reviews(1000, seed=2)
    model = build_model()
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(token_ids(texts), labels, epochs=epochs, verbose=2)

    for text in (
        "although the plot was dull , the music was never boring",
        "the cast was funny , but the film was hardly moving",
    ):
        probability = model.predict(token_ids([text]), verbose=0)[0, 0]
        print(f"{probability:.2f} {text}")
    _, accuracy = model.evaluate(token_ids(new_texts), new_labels, verbose=0)
    print(f"accuracy on new reviews: {accuracy:.3f}")


if __name__ == "__main__":
    main()
