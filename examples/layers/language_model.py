"""A language model of characters that goes on with what it is given, on any backend.

    python examples/layers/language_model.py --prompt "A layer that "

Trained on the documentation of Keras, in its docstrings. The model is a decoder without a source,
in the form that has become usual for language models: rotary positions, RMS normalization before
each sublayer, gated feed-forward networks. `generate` computes one character at a time and keeps
keys and values of those before.
"""

import argparse
import inspect

import keras
import numpy as np

from keras_transformer import (
    Decoder,
    LanguageModel,
    MaskedLabelSmoothedCrossentropy,
    Perplexity,
    PositionalEmbedding,
    generate,
)

LENGTH = 96
MODULES = (
    keras.layers,
    keras.losses,
    keras.metrics,
    keras.optimizers,
    keras.ops,
    keras.activations,
    keras.initializers,
)


def documentation():
    """Returns the docstrings of all public classes and functions of some modules of Keras."""
    members = (
        getattr(module, name)
        for module in MODULES
        for name in sorted(dir(module))
        if name[0] != "_"
    )
    return "\n\n".join(
        dict.fromkeys(inspect.getdoc(member) or "" for member in members if callable(member))
    )


def batches(ids, generator, size=32):
    """Yields characters and those that follow them, int (size, LENGTH) each, from anywhere in the
    text."""
    while True:
        rows = ids[generator.integers(len(ids) - LENGTH, size=(size, 1)) + np.arange(LENGTH + 1)]
        yield rows[:, :-1], rows[:, 1:]


def build_model(vocab_size, d_model=96):
    # No character is padding, and positions are the attention's affair.
    embedding = PositionalEmbedding(vocab_size, d_model, positions=None, padding_id=None)
    decoder = Decoder(
        num_layers=3,
        num_heads=4,
        d_ff=192,
        dropout=0.0,
        relative_positions="rotary",
        normalization="rms",
        norm_first=True,
        activation="silu",
        gated=True,
    )
    return LanguageModel(embedding, decoder)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--prompt", default="A layer that ")
    arguments = parser.parse_args()

    keras.utils.set_random_seed(1)
    text = documentation()
    alphabet = sorted(set(text))
    ids = np.searchsorted(alphabet, list(text))
    ids, new_ids = np.split(ids, [-len(ids) // 20])
    print(f"{len(ids)} characters, of {len(alphabet)} kinds")

    model = build_model(len(alphabet))
    model.compile(
        keras.optimizers.Adam(3e-3),
        MaskedLabelSmoothedCrossentropy(0.0, padding_id=None),
        metrics=[Perplexity(padding_id=None)],
    )
    model.fit(batches(ids, np.random.default_rng(1)), steps_per_epoch=arguments.steps, verbose=2)

    prompt = [alphabet.index(character) for character in arguments.prompt]
    generated = generate(
        model, [prompt] * 3, max_new_tokens=80, padding_id=None, temperature=0.7, seed=1
    )
    for row in generated.token_ids:
        print(repr(arguments.prompt + "".join(alphabet[character] for character in row)))
    _, perplexity = model.evaluate(batches(new_ids, np.random.default_rng(2)), steps=10, verbose=0)
    print(f"perplexity of a character of new text: {perplexity:.2f}")


if __name__ == "__main__":
    main()
