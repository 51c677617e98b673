"""Attention between two modalities: a question in words about a picture, on any backend.

    python examples/layers/two_modalities.py

A picture shows shapes in different colours, and a question asks for one of them: "what colour is
the cross", "what shape is green". Words and patches have different widths: a `DecoderLayer` attends
to a source of any width. With `use_causal_mask=False` every word sees the whole question.
"""

import argparse

import keras
import numpy as np

from keras_transformer import DecoderLayer, EncoderLayer, PositionalEmbedding, PositionalEncoding

CELL, CELLS = 8, 3  # pixels; a picture is 3 x 3 cells, each empty or with a shape
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
SHAPES = {
    "cross": "18187E7E18180000",
    "frame": "7E4242427E000000",
    "wedge": "406070787C7E0000",
    "bar": "00007E7E00000000",
}
STENCILS = [
    np.unpackbits(np.frombuffer(bytes.fromhex(rows), "uint8")).reshape(CELL, CELL)
    for rows in SHAPES.values()
]
QUESTIONS = [f"what colour is the {shape}" for shape in SHAPES] + [
    f"what shape is {colour}" for colour in COLOURS
]
WORDS = sorted({word for question in QUESTIONS for word in question.split()})
WORD_IDS = {word: number for number, word in enumerate(WORDS, start=1)}  # 0 is padding.
ANSWERS = [*COLOURS, *SHAPES]


def token_ids(questions):
    rows = [[WORD_IDS[word] for word in question.split()] for question in questions]
    return keras.utils.pad_sequences(rows, maxlen=5, padding="post")


def examples(count, seed):
    """Returns {"picture": (count, 24, 24, 3), "question": (count, 5)}, and the numbers of the
    answers (count,)."""
    generator = np.random.default_rng(seed)
    pictures = generator.normal(0, 0.1, (count, CELLS * CELL, CELLS * CELL, 3)).astype("float32")
    questions, answers = [], []
    for picture in pictures:
        # Three of the four shapes in three of the four colours.
        shapes, colours = (generator.permutation(4)[:3] for _ in range(2))
        for shape, colour, cell in zip(shapes, colours, generator.permutation(CELLS**2)):
            row, column = CELL * (cell // CELLS), CELL * (cell % CELLS)
            pixels = STENCILS[shape][..., None] * np.array([*COLOURS.values()][colour])
            picture[row : row + CELL, column : column + CELL] += pixels
        asks_for_colour, asked = generator.integers(2), generator.integers(3)
        questions.append(
            QUESTIONS[shapes[asked]] if asks_for_colour else QUESTIONS[4 + colours[asked]]
        )
        answers.append(colours[asked] if asks_for_colour else 4 + shapes[asked])
    return {"picture": pictures, "question": token_ids(questions)}, np.array(answers)


def build_model(word_width=64, patch_width=48, patch=4):
    picture = keras.Input((CELLS * CELL, CELLS * CELL, 3), name="picture")
    patches = keras.layers.Conv2D(patch_width, patch, strides=patch)(picture)
    patches = keras.layers.Reshape((-1, patch_width))(patches)
    patches = PositionalEncoding("learned", max_length=(CELLS * CELL // patch) ** 2)(patches)
    patches = EncoderLayer(num_heads=4, d_ff=2 * patch_width, dropout=0.0, norm_first=True)(patches)

    question = keras.Input((None,), dtype="int32", name="question")
    words = PositionalEmbedding(len(WORDS) + 1, word_width)(question)
    for _ in range(2):
        words = DecoderLayer(num_heads=4, d_ff=2 * word_width, dropout=0.0, norm_first=True)(
            words, patches, use_causal_mask=False
        )
    hidden = keras.layers.GlobalAveragePooling1D()(words)
    return keras.Model(
        {"picture": picture, "question": question}, keras.layers.Dense(len(ANSWERS))(hidden)
    )


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs

    keras.utils.set_random_seed(1)
    inputs, answers = examples(6000, seed=1)
    model = build_model()
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(inputs, answers, batch_size=64, epochs=epochs, verbose=2)

    new_inputs, new_answers = examples(1000, seed=2)
    guesses = model.predict(new_inputs, verbose=0).argmax(axis=-1)
    for words, guess in zip(new_inputs["question"][:3], guesses):
        print(" ".join(WORDS[word - 1] for word in words if word), "?", ANSWERS[guess])
    print(f"accuracy on new pictures: {np.mean(guesses == new_answers):.3f}")


if __name__ == "__main__":
    main()
