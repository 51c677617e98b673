"""A user's models with our layers. A script, run in one process per backend:

python other_models.py train DIRECTORY            trains models, writes them and their outputs
python other_models.py load OUTPUT DIRECTORY...   loads such files, writes their outputs
"""

import os
import pathlib
import sys

if os.environ["KERAS_BACKEND"] != "tensorflow":
    sys.modules["tensorflow"] = None  # From here on an import of TensorFlow fails.

import keras
import numpy as np

import keras_transformer

VOCAB_SIZE, WIDTH = 12, 16
generator = np.random.default_rng(0)
TOKEN_IDS = generator.integers(1, VOCAB_SIZE, size=(64, 9))
TOKEN_IDS[::2, -3:] = 0
# The next token is the sum of the last two.
SUMS = (TOKEN_IDS + np.pad(TOKEN_IDS, ((0, 0), (1, 0)))[:, :-1]) % (VOCAB_SIZE - 1) + 1
SUMS[TOKEN_IDS == 0] = 0


def tied_language_model():
    """Functional: which token comes next? Logits come from the table of the embedding."""
    token_ids = keras.Input((None,), dtype="int32")
    embedding = keras_transformer.PositionalEmbedding(VOCAB_SIZE, WIDTH)
    hidden = keras_transformer.Decoder(num_layers=1, num_heads=2, d_ff=32, dropout=0.0)(
        embedding(token_ids)
    )
    logits = keras_transformer.TiedProjection(embedding)(hidden)
    return keras.Model(token_ids, logits), keras_transformer.MaskedLabelSmoothedCrossentropy()


def subclassed_language_model():
    """Subclassed, with our positions and our loss."""

    @keras.saving.register_keras_serializable("somebody_else")
    class LanguageModel(keras.Model):
        def __init__(self, vocab_size, **kwargs):
            super().__init__(**kwargs)
            self.vocab_size = vocab_size
            self.embedding = keras_transformer.PositionalEmbedding(vocab_size, WIDTH)
            self.decoder = keras_transformer.DecoderLayer(2, d_ff=32, dropout=0.0)
            self.dense = keras.layers.Dense(vocab_size)

        def call(self, token_ids):
            return self.dense(self.decoder(self.embedding(token_ids)))

        def get_config(self):
            return {**super().get_config(), "vocab_size": self.vocab_size}

    return LanguageModel(VOCAB_SIZE), keras_transformer.MaskedLabelSmoothedCrossentropy()


def translator():
    config = keras_transformer.TransformerConfig.preset(
        "tiny", source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE, num_layers=1
    )
    return keras_transformer.build_transformer(
        config
    ), keras_transformer.MaskedLabelSmoothedCrossentropy(0.2)


MODELS = {
    make.__name__: make for make in (tied_language_model, translator, subclassed_language_model)
}


def inputs(name):
    return {"source": TOKEN_IDS, "target": TOKEN_IDS} if name == "translator" else TOKEN_IDS


def predict(model, name):
    return keras.ops.convert_to_numpy(model(inputs(name)))


def train(directory):
    predictions = {}
    for name, make_model in MODELS.items():
        keras.utils.set_random_seed(0)
        model, loss = make_model()
        optimizer = keras.optimizers.Adam(
            keras_transformer.WarmupInverseSqrt(d_model=8, warmup_steps=7, scale=0.05)
        )
        # XLA would compile for longer than TensorFlow trains.
        jit_compile = "auto" if keras.backend.backend() == "jax" else False
        model.compile(
            optimizer, loss, metrics=[keras_transformer.MaskedAccuracy()], jit_compile=jit_compile
        )
        losses = model.fit(inputs(name), SUMS, batch_size=32, epochs=25, verbose=0).history["loss"]
        assert losses[-1] < 0.8 * losses[0], (name, losses)
        predictions[name] = predict(model, name)
        model.save(directory / f"{name}.keras")
    np.savez(directory / "predictions.npz", **predictions)


def load(output, *directories):
    predictions = {}
    for name in MODELS:
        if name == "subclassed_language_model":
            subclassed_language_model()  # Defines the class; all before came without definitions.
        for directory in directories:
            model = keras.saving.load_model(directory / f"{name}.keras")
            predictions[f"{directory}/{name}"] = predict(model, name)
    np.savez(output, **predictions)


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"train": train, "load": load}[command](*map(pathlib.Path, paths))
